"""What is noted about one request while it passes, and where that goes at its end: a log line, counters, a span."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pagefence.edge.metrics import Row


class Say(Protocol):
    """One log line."""

    def __call__(self, event: str, /, **fields: object) -> None: ...


@dataclass(slots=True)
class Mark:
    """Moments are of `time.perf_counter`. `status`: what the client got; 0: nothing. `code`: of a refusal."""

    request_id: str
    began: float = field(default_factory=time.perf_counter)
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
    trace_header: str = ""

    def read(self) -> None:
        """The body is there."""
        self.read_at = time.perf_counter()

    def asked(self) -> None:
        """It goes upstream."""
        self.asked_at = time.perf_counter()

    def first_byte(self) -> None:
        """The first byte of an answer's body has come."""
        self.first_byte_at = time.perf_counter()

    def since_asked(self) -> float:
        """Seconds since it went upstream."""
        return time.perf_counter() - self.asked_at


class Recorder:
    """Begins marks and ends them. `each`: say every request, not only what went wrong."""

    def __init__(self, row: Row, say: Say, each: bool, also: Callable[[Mark, float], None] | None = None) -> None:
        self._row, self._say, self._each, self._also = row, say, each, also
        self.in_flight = 0

    def begin(self, request_id: str) -> Mark:
        """A request has a whole head."""
        self.in_flight += 1
        self._row.add("pagefence_edge_requests_in_flight")
        return Mark(request_id)

    def end(self, mark: Mark) -> None:
        """It has ended, in whatever way."""
        row, took = self._row, time.perf_counter() - mark.began
        self.in_flight -= 1
        row.add("pagefence_edge_requests_in_flight", by=-1.0)
        if mark.operation == "other":
            return
        row.add("pagefence_edge_requests_total", mark.operation, mark.model or "other", str(mark.status))
        row.observe("pagefence_edge_request_duration_seconds", mark.operation, seconds=took)
        if mark.first_byte_at:
            waited = mark.first_byte_at - mark.began
            row.observe("pagefence_edge_time_to_first_byte_seconds", mark.operation, seconds=waited)
        if mark.asked_at and mark.read_at:
            decided = mark.asked_at - mark.read_at
            row.observe("pagefence_edge_decision_seconds", mark.operation, seconds=decided)
        if mark.code is not None:
            row.add("pagefence_edge_refusals_total", mark.code)
        if mark.cut is not None:
            row.add("pagefence_edge_answers_cut_total", mark.cut)
        if self._each or mark.code is not None:
            self._say("request", **self._fields(mark, took))
        if self._also is not None:
            self._also(mark, took)

    def broke(self, mark: Mark, error: Exception) -> None:
        """An error of ours. Its words may quote a request, so only its kind and place are said."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        self._say("internal_error", request_id=mark.request_id, kind=type(error).__name__, place=place)

    @staticmethod
    def _fields(mark: Mark, took: float) -> dict[str, object]:
        return {
            "request_id": mark.request_id,
            "operation": mark.operation,
            "tenant": mark.tenant,
            "status": mark.status,
            "code": mark.code,
            "cut": mark.cut,
            "stream": mark.stream,
            "upstream": mark.upstream,
            "bytes_out": mark.bytes_out,
            "duration_s": round(took, 6),
            "first_byte_s": round(mark.first_byte_at - mark.began, 6) if mark.first_byte_at else None,
            "decision_s": round(mark.asked_at - mark.read_at, 6) if mark.asked_at and mark.read_at else None,
        }
