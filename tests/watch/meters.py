"""Prometheus text, read back."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families


def values(text: bytes, name: str, label: str | None = None) -> Mapping[str, float]:
    """Samples of a metric by one label, "" without one."""
    return {
        (sample.labels[label] if label else ""): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == name
    }


def names(text: bytes) -> set[str]:
    """Every name that has a sample."""
    return {s.name for family in text_string_to_metric_families(text.decode()) for s in family.samples}


def samples(text: bytes, name: str) -> list[Mapping[str, str]]:
    """Labels of every sample of a metric."""
    return [
        sample.labels
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == name
    ]
