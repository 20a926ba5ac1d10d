"""Prometheus text of workers and router, from the same live figures as /server_info. No tenant, prompt or salt (I7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric


class _Snapshot:
    """A collector over families made a moment ago: figures are read, never kept twice."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def render(families: Iterable[Metric]) -> bytes:
    """Families as Prometheus text."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(families))
    return generate_latest(registry)


def counter(name: str, text: str, labels: Mapping[str, str], values: Mapping[str, float], by: str) -> Metric:
    """One counter family, split by one label."""
    family = CounterMetricFamily(name, text, labels=[*labels, by])
    for key, value in sorted(values.items()):
        family.add_metric([*labels.values(), key], value)
    return family


def gauge(name: str, text: str, labels: Mapping[str, str], value: float) -> Metric:
    """One gauge."""
    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def worker_metrics(info: Mapping[str, object], dropped: Mapping[str, int]) -> bytes:
    """A worker's pages, tokens and dropped messages."""
    labels = {"model_name": str(info["model_name"]), "role": str(info["disaggregation_mode"])}
    about = InfoMetricFamily("pagefence_worker", "The incarnation that answers.")
    about.add_metric([], {**labels, "version": str(info["version"]), "epoch": str(info["epoch"])})
    pages = GaugeMetricFamily("pagefence_pages", "Pages by state (I6).", labels=[*labels, "state"])
    counts = info["pages"]
    assert isinstance(counts, Mapping)
    for state, count in counts.items():
        if state != "total":
            pages.add_metric([*labels.values(), str(state)], float(count))
    families: list[Metric] = [
        about,
        pages,
        gauge(
            "pagefence_pool_tokens", "Tokens that the pool holds (I8).", labels, _number(info, "max_total_num_tokens")
        ),
        counter("pagefence_dropped_messages", "Messages that were stale or late.", labels, dropped, "message"),
    ]
    for name, text in (
        ("prompts", "Prompts begun."),
        ("computed_tokens", "Prompt tokens computed."),
        ("cached_tokens", "Prompt tokens found in the prefix cache."),
        ("generated_tokens", "Tokens generated."),
        ("handoffs", "Hand-offs committed."),
        ("prompt_tokens", "Prompt tokens of committed hand-offs; prefill computed or found as many (I6)."),
    ):
        if name in info:
            family = CounterMetricFamily(f"pagefence_{name}", text, labels=list(labels))
            family.add_metric(list(labels.values()), _number(info, name))
            families.append(family)
    return render(families)


def _number(info: Mapping[str, object], name: str) -> float:
    value = info[name]
    assert isinstance(value, int | float)
    return float(value)
