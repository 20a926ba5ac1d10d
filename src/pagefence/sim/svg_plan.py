"""Where everything of a sequence diagram goes, before anything is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pagefence.sim.svg_arrows import arrows
from pagefence.sim.svg_marks import CELL, GREY, colour_of, wrapped
from pagefence.sim.trace import Trace, TraceStep
from pagefence.sim.wording import in_words, letters, lifelines, named

MARGIN, TALE, GAP, PER_LINE, LEADING, SLOT = 20, 250, 150, 8, 15, 17


@dataclass(frozen=True, slots=True)
class Plan:
    """Where everything goes: an x for every lifeline and pool, a y for every step."""

    trace: Trace
    names: dict[int, str]
    colours: dict[str, str]
    lines: dict[str, float]
    pools: dict[str, float]
    tales: tuple[tuple[list[str], list[str]], ...]
    tops: tuple[float, ...]
    title: list[str]
    head: tuple[tuple[str, list[str]], ...]
    verdict: list[str]
    width: float

    def level(self, row: int) -> float:
        """The height at which the arrows of a step arrive."""
        return self.tops[row] + 22

    @property
    def broken(self) -> bool:
        return self.trace.rule is not None or self.trace.violation is not None

    def letter(self, ticket: int | None) -> str | None:
        return None if ticket is None else self.names[ticket]

    def colour(self, ticket: int | None) -> str:
        return GREY if ticket is None else self.colours[self.names[ticket]]


def planned(trace: Trace) -> Plan:
    """Lay a trace out: its tale at the left, the lifelines in the middle, the pools at the right."""
    names = letters(trace)
    people = lifelines(trace)
    first: float = MARGIN + TALE + 60
    lines = {name: first + i * GAP for i, name in enumerate(people)}
    x = first + max(len(people) - 1, 0) * GAP + (GAP / 2 + 25 if people else 0)
    pools: dict[str, float] = {}
    for name in people:
        most = max(
            (len(pages) for step in trace.steps for worker, pages in step.pages if named(worker) == name), default=0
        )
        if most:
            pools[name] = x
            x += max(min(most, PER_LINE) * CELL, 60) + 24
    width = max(x + MARGIN - 24, 720)
    fields = (("fault", trace.fault or "none"), ("guards", trace.guards), ("replay", trace.replay))
    head = tuple((word, wrapped(value, width - 2 * MARGIN - 70, 7.4)) for word, value in fields)
    tales = tuple(_tale(step, names) for step in trace.steps)
    title = wrapped(trace.world, width - 2 * MARGIN, 9.5)
    top: float = 74 + 22 * len(title) + LEADING * sum(len(lines_) + 0.3 for _, lines_ in head)
    tops = [top]
    drawn = arrows(trace)
    for row, (step, (told, caused)) in enumerate(zip(trace.steps, tales, strict=True)):
        pages = max((math.ceil(len(views) / PER_LINE) for _, views in step.pages), default=0)
        said = max((its.slot for its in drawn if its.arrived == row), default=0)
        top += max(46, 20 + LEADING * (len(told) + len(caused)), 20 + CELL * pages, 32 + SLOT * said)
        tops.append(top)
    return Plan(
        trace=trace,
        names=names,
        colours={letter: colour_of(rank) for rank, letter in enumerate(names.values())},
        lines=lines,
        pools=pools,
        tales=tales,
        tops=tuple(tops),
        title=title,
        head=head,
        verdict=wrapped(trace.violation or "No rule was broken.", width - 2 * MARGIN - 62, 8.2),
        width=width,
    )


def _tale(step: TraceStep, names: dict[int, str]) -> tuple[list[str], list[str]]:
    """What happened, and what it did, in lines that fit the left column."""
    told = wrapped(in_words(step, names), TALE - 30, 6.9)
    return told, [part for done in step.did for part in wrapped(done, TALE - 30, 6.2)]
