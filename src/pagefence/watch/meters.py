"""Prometheus text, read from the watcher and its file at the moment of asking: no figure is kept twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from pagefence import __version__
from pagefence.probes.evidence import Kind
from pagefence.watch.config import Module, Watched
from pagefence.watch.metrics import COUNTER, METRICS, PROBE_METRICS, Metric
from pagefence.watch.records import VERDICTS, Phase, Record
from pagefence.watch.watcher import WAITS, Standing, Wait, Watcher

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, tuple[str, ...], float]
"""Family without its prefix, label values, value."""


class _Families:
    def __init__(self, metrics: Sequence[Metric], samples: Mapping[str, list[tuple[tuple[str, ...], float]]]) -> None:
        self._metrics, self._samples = metrics, samples

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for metric in self._metrics:
            made = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            family = made(metric.name, metric.text, labels=list(metric.labels))
            for labels, value in self._samples.get(metric.name, ()):
                family.add_metric(list(labels), value)
            yield family


def render(metrics: Sequence[Metric], prefix: str, samples: Iterator[Sample]) -> bytes:
    """The families as text. Raises KeyError for a sample of a metric that is not in the table."""
    found: dict[str, list[tuple[tuple[str, ...], float]]] = {metric.name: [] for metric in metrics}
    for name, labels, value in samples:
        found[name if name in found else prefix + name].append((labels, value))
    registry = CollectorRegistry()
    registry.register(_Families(metrics, found))
    return generate_latest(registry)


def watch_text(watcher: Watcher) -> bytes:
    """What `/metrics` answers."""
    return render(METRICS, "pagefence_watch_", _all(watcher))


def _all(watcher: Watcher) -> Iterator[Sample]:
    yield "info", (__version__,), 1
    yield "heartbeat_timestamp_seconds", (), watcher.heartbeat
    yield "start_timestamp_seconds", (), watcher.started
    yield "cycles_total", (), watcher.cycles
    yield "state_writable", (), watcher.trouble is None
    for standing in watcher.standings.values():
        yield from _target(watcher, standing)
        for module in standing.watched.modules:
            yield from _slot(watcher, standing, module)
    for target, module_name, phase, verdict, runs in watcher.state.totals():
        known = watcher.standings.get(target)
        if known is not None:  # what is no longer watched has no series, but its history stays
            yield "runs_total", (known.model, target, module_name, phase, verdict), runs


def _target(watcher: Watcher, standing: Standing) -> Iterator[Sample]:
    watched, now = standing.watched, watcher.clock()
    labels = (standing.model, watched.name)
    free = watcher.free(standing, now)
    yield "budget_tokens", labels, free
    yield "budget_held_tokens", labels, standing.bucket.held
    yield "budget_burst_tokens", labels, watched.allowance.burst
    yield "budget_rate_tokens", labels, watched.allowance.rate
    yield "backoff_seconds", labels, max(0.0, standing.resume - now)
    prompt, new = watcher.state.tokens(watched.name)
    yield "tokens_total", (*labels, "prompt"), prompt
    yield "tokens_total", (*labels, "completion"), new
    for probe, (process, alarmed) in watcher.state.evidence(watched.name).items():
        yield "evidence_log_ratio", (*labels, probe), process.log_e
        yield "evidence_asked_total", (*labels, probe), process.n
        yield "evidence_lost_total", (*labels, probe), process.hits
        yield "evidence_alarm", (*labels, probe), alarmed is not None


def _slot(watcher: Watcher, standing: Standing, module: Module) -> Iterator[Sample]:
    labels = (standing.model, standing.watched.name, module.name)
    slot = standing.slots[module.name]
    last = watcher.state.last(standing.watched.name, module.name)
    for verdict in VERDICTS:
        yield "verdict", (*labels, verdict), last is not None and last.verdict == verdict
    for kind in Kind:
        yield "findings", (*labels, kind), 0 if last is None else last.findings.get(kind, 0)
    if last is not None:
        yield "last_run_timestamp_seconds", labels, last.ended or 0.0
        yield "last_run_duration_seconds", labels, last.seconds
    yield "idle_since_timestamp_seconds", labels, slot.idle_since
    if module.every_s is not None:
        yield "period_seconds", labels, module.every_s
    yield "inconclusive_runs", labels, slot.inconclusive
    flight, waiting = standing.flight, standing.waiting.get(module.name)
    yield "running_runs", labels, flight is not None and flight.module.name == module.name
    for why in WAITS:
        yield "waiting_runs", (*labels, why), waiting is not None and waiting.why == why


def probe_text(watched: Watched, module: Module, model: str, seen: Record | Wait | None, seconds: float) -> bytes:
    """What `/probe` answers. None: there was no end in time, or nothing could be kept."""
    return render(PROBE_METRICS, "pagefence_probe_", _probe((model, watched.name, module.name), seen, seconds))


def _probe(labels: tuple[str, ...], seen: Record | Wait | None, seconds: float) -> Iterator[Sample]:
    record = seen if isinstance(seen, Record) else None
    finished = record is not None and record.phase is Phase.FINISHED
    verdict = Kind.INCONCLUSIVE if record is None else record.verdict
    yield "probe_success", (), finished and verdict == "CLEAN"
    yield "probe_duration_seconds", (), seconds
    yield "finished", labels, finished
    for name in VERDICTS:
        yield "verdict", (*labels, name), name == verdict
    if isinstance(seen, Wait):
        yield "wait_seconds", (*labels, seen.why), seen.seconds
    if record is None:
        return
    for kind in Kind:
        yield "findings", (*labels, kind), record.findings.get(kind, 0)
    yield "run_duration_seconds", labels, record.seconds
    yield "tokens", (*labels, "prompt"), record.prompt_tokens
    yield "tokens", (*labels, "completion"), record.new_tokens
