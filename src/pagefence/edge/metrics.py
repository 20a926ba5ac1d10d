"""Counters of all workers in one piece of shared memory: a step costs an addition, a scrape adds up the rows.

Every label has a closed set of values, so that nothing a client says can make a series: what is not known is "other".
No tenant, prompt, key or salt is in any.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from pagefence import __version__
from pagefence.edge.call import Operation

CONTENT_TYPE = CONTENT_TYPE_LATEST
OTHER = "other"
_OPERATIONS = (*(operation.value for operation in Operation), "tokenize", OTHER)
_STATUSES = tuple(
    str(status) for status in (200, 400, 401, 403, 404, 405, 408, 413, 415, 417, 422, 429, 431, 499, 500, 502, 503, 504)
)
_FAILURES = ("upstream_unreachable", "upstream_died", "upstream_malformed", "upstream_timeout", OTHER)
_REFUSALS = (
    "answer_withheld", "body_too_large", "capacity_unknown", "context_length_exceeded", "draining", "duplicate_header",
    "forbidden_header", "forbidden_parameter", "headers_too_large", "internal_error", "invalid_api_key",
    "invalid_header", "invalid_json", "invalid_value", "malformed_request", "method_not_allowed",
    "missing_required_parameter", "not_found", "overloaded", "prompt_not_countable", "rate_limit_exceeded",
    "request_timeout", "request_too_large", "tenants_not_separated", "too_many_requests", "unknown_parameter",
    "unknown_tenant", "unsupported_content", "unsupported_encoding", "unsupported_expectation",
    "unsupported_media_type", "untrusted_header", "upstream_encoded", "upstream_error", "upstream_failed",
    "upstream_redirects", "upstream_too_large", "upstream_unfit", *_FAILURES,
)  # fmt: skip
_TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its labels with all their values, the last of which stands for the rest; bounds for a histogram."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    bounds: tuple[float, ...] = ()


def families(upstreams: int, models: Sequence[str] = ()) -> tuple[Family, ...]:
    """Those of the proxy. Steps add their own."""
    operation = ("operation", _OPERATIONS)
    model = ("model_name", (*models, OTHER))
    # A reload may bring more upstreams than there were when the memory was made.
    upstream = ("upstream", (*(f"upstream-{number}" for number in range(upstreams)), OTHER))
    return (
        Family(
            "pagefence_edge_requests_total", "counter", "Requests that ended, by what the client got (499: it left).",
            (operation, model, ("status", (*_STATUSES, OTHER))),
        ),
        Family(
            "pagefence_edge_refusals_total", "counter", "Requests that the edge itself refused.",
            (("code", tuple(dict.fromkeys((*_REFUSALS, OTHER)))),),
        ),
        Family("pagefence_edge_request_duration_seconds", "histogram", "From head to last byte.", (operation,), _TIMES),
        Family(
            "pagefence_edge_time_to_first_byte_seconds", "histogram",
            "From the head of the request to the first byte of the answer's body.", (operation,), _TIMES,
        ),
        Family(
            "pagefence_edge_decision_seconds", "histogram",
            "From the whole body to the request upstream: what reading, policy and admission take.", (operation,),
            _SHORT,
        ),
        Family("pagefence_edge_requests_in_flight", "gauge", "Requests that have begun and not ended."),
        Family("pagefence_edge_connections", "gauge", "Connections of clients."),
        Family("pagefence_edge_answers_cut_total", "counter", "Answers that were cut after their first byte, by whom.",
               (("reason", ("client", "upstream", "watch", OTHER)),)),
        Family("pagefence_edge_upstream_failures_total", "counter", "What went wrong with an upstream.",
               (upstream, ("code", _FAILURES))),
        Family("pagefence_edge_upstream_well", "gauge", "Workers of the edge that ask this upstream.", (upstream,)),
        Family("pagefence_edge_upstream_connections", "gauge", "Connections to an upstream.",
               (upstream, ("state", ("busy", "idle")))),
        Family("pagefence_edge_reloads_total", "counter", "Reloads.", (("outcome", ("done", "refused")),)),
        Family("pagefence_edge_log_lines_dropped_total", "counter", "Log lines that nobody took in time."),
    )  # fmt: skip


class Meters:
    """The shared memory. Made before the workers are forked; each writes to its own row."""

    def __init__(self, known: Sequence[Family], workers: int) -> None:
        self._families = tuple(known)
        self._at: dict[tuple[str, ...], int] = {}
        size = 0
        for family in self._families:
            for values in product(*(values for _, values in family.labels)):
                self._at[(family.name, *values)] = size
                size += len(family.bounds) + 2 if family.kind == "histogram" else 1
        self._size = size
        self._memory = mmap.mmap(-1, max(1, size * workers * 8))
        self._cells = memoryview(self._memory).cast("d")
        self._workers = workers

    def row(self, worker: int) -> Row:
        """Where one worker counts. A worker that is started again goes on in the row of the one before."""
        cells = self._cells[worker * self._size : (worker + 1) * self._size]
        return Row(cells, self._at, {family.name: family for family in self._families})

    def text(self) -> bytes:
        """All rows added up, in Prometheus' text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(self._metrics))
        return generate_latest(registry)

    def _sum(self, at: int) -> float:
        return sum(self._cells[at + worker * self._size] for worker in range(self._workers))

    def _metrics(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("pagefence_edge_info", "1, with the version.", labels=["version"])
        info.add_metric([__version__], 1.0)
        yield info
        for family in self._families:
            yield self._metric(family)

    def _metric(self, family: Family) -> Metric:
        names = [name for name, _ in family.labels]
        shown: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
        if family.kind == "histogram":
            shown = HistogramMetricFamily(family.name, family.help, labels=names)
        elif family.kind == "counter":
            shown = CounterMetricFamily(family.name, family.help, labels=names)
        else:
            shown = GaugeMetricFamily(family.name, family.help, labels=names)
        for values in product(*(values for _, values in family.labels)):
            at = self._at[(family.name, *values)]
            if isinstance(shown, HistogramMetricFamily):
                counts = [self._sum(at + place) for place in range(len(family.bounds) + 1)]
                totals = [sum(counts[: place + 1]) for place in range(len(counts))]
                bounds = [*(str(bound) for bound in family.bounds), "+Inf"]
                buckets: list[tuple[str, float]] = list(zip(bounds, totals, strict=True))
                if totals[-1]:
                    shown.add_metric(list(values), buckets, self._sum(at + len(family.bounds) + 1))
            elif family.kind == "gauge" or not names or self._sum(at):
                # Combinations that never came are left out; a counter without labels shows its 0.
                shown.add_metric(list(values), self._sum(at))
        return shown


class Row:
    """One worker's counters."""

    def __init__(self, cells: memoryview[float], at: dict[tuple[str, ...], int], known: dict[str, Family]) -> None:
        self._cells, self._at, self._known = cells, at, known

    def add(self, name: str, *values: str, by: float = 1.0) -> None:
        """Count; values in the order of the family's labels."""
        self._cells[self._place(name, values)] += by

    def set(self, name: str, *values: str, to: float) -> None:
        """A gauge."""
        self._cells[self._place(name, values)] = to

    def gauge(self, name: str) -> Callable[[float], None]:
        """What moves a gauge without labels; found once, for the path of every request."""
        cells, at = self._cells, self._place(name, ())

        def move(by: float) -> None:
            cells[at] += by

        return move

    def counters(self, name: str) -> Callable[..., None]:
        """What counts one, by the labels' values."""
        cells, at = self._cells, self._at

        def count(*values: str) -> None:
            place = at.get((name, *values))
            cells[self._place(name, values) if place is None else place] += 1.0

        return count

    def histograms(self, name: str) -> Callable[..., None]:
        """What observes seconds, by the labels' values."""
        cells, at, bounds = self._cells, self._at, self._known[name].bounds
        last = len(bounds) + 1

        def observe(seconds: float, *values: str) -> None:
            place = at.get((name, *values))
            if place is None:
                place = self._place(name, values)
            cells[place + bisect_left(bounds, seconds)] += 1.0
            cells[place + last] += seconds

        return observe

    def clear_gauges(self) -> None:
        """What the worker before had open is open no longer."""
        for key, at in self._at.items():
            if self._known[key[0]].kind == "gauge":
                self._cells[at] = 0.0

    def _place(self, name: str, values: tuple[str, ...]) -> int:
        at = self._at.get((name, *values))
        if at is not None:
            return at
        labels = self._known[name].labels
        known = tuple(
            value if value in allowed else allowed[-1] for value, (_, allowed) in zip(values, labels, strict=True)
        )
        return self._at[(name, *known)]


class _Collector:
    def __init__(self, metrics: object) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        assert callable(self._metrics)
        yield from self._metrics()
