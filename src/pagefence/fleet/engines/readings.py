"""Readings that several engines share: the owner of a model list, a gauge, blocks times their size, info gauges."""

from __future__ import annotations

from pagefence.fleet.answer import mapping
from pagefence.fleet.engines.adapter import Asked, number
from pagefence.fleet.facts import Figure, brief, text, unknown
from pagefence.fleet.http import Reply


def owner(reply: Reply) -> str | None:
    """The `owned_by` that all cards of a model list have in common, if there is one."""
    cards = reply.body.get("data")
    names = {text(mapping(card), "owned_by") for card in cards} if isinstance(cards, list) else set()
    return names.pop() if len(names) == 1 else None


def least(asked: Asked, path: str, name: str) -> Figure:
    """The smallest sample of a gauge. Unknown when there is none, or one of them is no positive whole number."""
    samples, problem = asked.metrics(path, name)
    source = f"{path} {name}"
    if problem is not None:
        return unknown(source, problem)
    figures = [number(value, source) for _, value in samples]
    return next((f for f in figures if f.value is None), min(figures, key=lambda f: f.value or 0))


def product(blocks: Figure, tokens_per_block: Figure) -> Figure:
    """A pool in tokens that is told as blocks and their size. One of them unknown leaves it unknown."""
    for part in (blocks, tokens_per_block):
        if part.value is None:
            return unknown(part.source, part.problem or "is unknown")
    total = (blocks.value or 0) * (tokens_per_block.value or 0)
    return number(total, f"{blocks.source} x {tokens_per_block.source.split(' ')[-1]}")


def info_labels(asked: Asked, path: str, names: tuple[str, ...]) -> dict[str, str]:
    """The labels of info gauges, for `--lock`. The process id is none of the configuration."""
    found: dict[str, str] = {}
    for name in names:
        for labels, _ in asked.metrics(path, name)[0]:
            found |= {label: brief(value) for label, value in labels.items() if label != "pid"}
    return found
