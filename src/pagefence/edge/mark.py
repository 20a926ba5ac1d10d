"""What is noted about one request while it passes, and where that goes at its end: a log line, counters, a span."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from pagefence.edge.logs import Log
from pagefence.edge.metrics import Row


@dataclass(slots=True)
class Mark:
    """Moments are of `perf_counter`. `status`: what the client got; 0: nothing. `code`: of a refusal."""

    request_id: str
    began: float = field(default_factory=perf_counter)
    operation: str = "other"
    tenant: str | None = None
    model: str | None = None
    stream: bool = False
    status: int = 0
    code: str | None = None
    cut: str | None = None
    upstream: str | None = None
    bytes_out: int = 0
    read_at: float = 0.0
    asked_at: float = 0.0
    first_byte_at: float = 0.0

    def read(self) -> None:
        """The body is there."""
        self.read_at = perf_counter()

    def asked(self) -> None:
        """It goes upstream."""
        self.asked_at = perf_counter()

    def first_byte(self) -> None:
        """The first byte of an answer's body has come."""
        self.first_byte_at = perf_counter()


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is said of a request; what it has not is left out."""

    request_id: str
    operation: str
    status: int
    duration_s: float
    tenant: str | None = None
    code: str | None = None
    cut: str | None = None
    stream: bool = False
    upstream: str | None = None
    bytes_out: int = 0
    first_byte_s: float | None = None
    decision_s: float | None = None


class Recorder:
    """Begins marks and ends them. `each`: say every request, not only what went wrong."""

    def __init__(self, row: Row, log: Log, each: bool, also: Callable[[Mark, float], None] | None = None) -> None:
        self._row, self._log, self._each, self._also = row, log, each, also
        self._in_flight = row.gauge("pagefence_edge_requests_in_flight")
        self._counted = row.counters("pagefence_edge_requests_total")
        self._took = row.histograms("pagefence_edge_request_duration_seconds")
        self._waited = row.histograms("pagefence_edge_time_to_first_byte_seconds")
        self._decided = row.histograms("pagefence_edge_decision_seconds")

    def begin(self, request_id: str) -> Mark:
        """A request has a whole head."""
        self._in_flight(1.0)
        return Mark(request_id)

    def end(self, mark: Mark) -> None:
        """It has ended, in whatever way."""
        self._in_flight(-1.0)
        operation = mark.operation
        if operation == "other":
            return
        took = perf_counter() - mark.began
        waited = mark.first_byte_at - mark.began if mark.first_byte_at else None
        decided = mark.asked_at - mark.read_at if mark.asked_at and mark.read_at else None
        self._counted(operation, mark.model or "other", str(mark.status))
        self._took(took, operation)
        if waited is not None:
            self._waited(waited, operation)
        if decided is not None:
            self._decided(decided, operation)
        if mark.code is not None:
            self._row.add("pagefence_edge_refusals_total", mark.code)
        if mark.cut is not None:
            self._row.add("pagefence_edge_answers_cut_total", mark.cut)
        if self._each or mark.code is not None:
            self._log.line(
                "request",
                _Line(
                    mark.request_id,
                    operation,
                    mark.status,
                    round(took, 6),
                    mark.tenant,
                    mark.code,
                    mark.cut,
                    mark.stream,
                    mark.upstream,
                    mark.bytes_out,
                    None if waited is None else round(waited, 6),
                    None if decided is None else round(decided, 6),
                ),
            )
        if self._also is not None:
            self._also(mark, took)

    def broke(self, mark: Mark, error: Exception) -> None:
        """An error of ours. Its words may quote a request, so only its kind and place are said."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        self._log("internal_error", request_id=mark.request_id, kind=type(error).__name__, place=place)
