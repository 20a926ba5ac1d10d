"""The parts of a sequence diagram that belong to a step: its arrows, its mark on a lifeline, its pages; the legend."""

from __future__ import annotations

import math

from pagefence.sim import svg_marks as draw
from pagefence.sim.moves import Kind
from pagefence.sim.svg_arrows import Arrow
from pagefence.sim.svg_marks import CELL, GREY, INK, RED, Point
from pagefence.sim.svg_plan import MARGIN, PER_LINE, SLOT, Plan
from pagefence.sim.trace import TraceStep
from pagefence.sim.wording import message_in_words, named

# A steeper arrow carries its name level, at its head: few can read text that stands on end.
_STEEP = 35.0
_MARKED: dict[Kind, str] = {
    "compute": "compute",
    "compute-fails": "compute fails",
    "write-fails": "a write fails",
    "verify": "verify",
    "generate": "generate",
    "flip": "broken frame",
    "timer": "timer",
    "early": "timer, early",
    "reap": "reaped",
}


def arrow(plan: Plan, its: Arrow) -> str:
    """A message from the lifeline and row of its sending to those of its arrival."""
    message, colour = its.message, plan.colour(its.message.ticket)
    here, there = plan.lines.get(named(message.sender)), plan.lines.get(named(message.receiver))
    if here is None or there is None or here == there:
        return ""
    start = Point(here, plan.level(its.sent) + SLOT * (its.slot if its.sent == its.arrived else 0))
    end = Point(there, plan.level(its.arrived) + SLOT * its.slot)
    name = message_in_words(message, plan.names)
    label = f"{name} ({its.note})" if its.note else name
    if its.shape == "under way":
        end = Point(here + math.copysign(34, there - here), start.y + 7)
        open_end = draw.dot(end, 3, draw.PAPER, GREY)
        side = "start" if there > here else "end"
        beside = Point(end.x + math.copysign(7, there - here), end.y + 4)
        return draw.line(start, end, GREY, 1.2, "2 3") + open_end + draw.text(beside, label, "small", side, GREY)
    if its.shape == "lost":
        end = Point((start.x + end.x) / 2, (start.y + end.y) / 2 if its.sent != its.arrived else end.y)
        shaft = draw.line(start, end, colour, 1.8) + draw.cross(end, 6, RED, 2.4)
        forward = math.copysign(1, there - here)
        beyond = Point(end.x + 11 * forward, end.y + 4)
        return shaft + draw.text(beyond, f"{label} lost", "small", "start" if forward > 0 else "end")
    shaft = draw.line(start, end, colour, 1.8, "6 4" if its.shape == "write" else "")
    origin = draw.dot(start, 3, colour) if its.sent != its.arrived else ""
    return shaft + origin + draw.head(start, end, colour) + _along(start, end, label)


def _along(start: Point, end: Point, label: str) -> str:
    """The name of an arrow: on its middle, turned with it, or level beside its head where it is steep."""
    forward = math.copysign(1, end.x - start.x)
    slope = math.degrees(math.atan2((end.y - start.y) * forward, abs(end.x - start.x)))
    if abs(slope) > _STEEP:
        return draw.text(Point(end.x - 12 * forward, end.y - 7), label, "small", "end" if forward > 0 else "start")
    middle = Point((start.x + end.x) / 2, (start.y + end.y) / 2)
    off = math.radians(slope)
    return draw.text(
        Point(middle.x + 5 * math.sin(off), middle.y - 5 * math.cos(off)), label, "small", "middle", turn=slope
    )


def mark(plan: Plan, row: int, step: TraceStep) -> str:
    """What a worker did on its own, on its lifeline."""
    move, x = step.move, plan.lines.get(named(step.move.who))
    if x is None or move.kind not in _MARKED:
        return ""
    at, colour = Point(x, plan.level(row)), plan.colour(move.ticket)
    timer = move.kind in ("timer", "early")
    name = f"{move.what} {_MARKED[move.kind]}" if timer else _MARKED[move.kind]
    fill = RED if move.kind == "reap" else INK
    words = draw.text(
        Point(at.x + 13, at.y + 4), f"{name} {plan.letter(move.ticket) or ''}".strip(), "small", fill=fill
    )
    if timer:
        return draw.clock(at, colour) + words
    if move.kind == "reap":
        return words
    shape = draw.cross(at, 4.5, RED) if move.kind in ("compute-fails", "write-fails", "flip") else ""
    return draw.dot(at, 5.5, colour) + shape + words


def pages(plan: Plan, row: int, step: TraceStep) -> str:
    """The pools after a step; pale where the step changed nothing, so that the eye finds what it did."""
    before = {named(worker): views for worker, views in plan.trace.steps[row - 1].pages} if row else {}
    last = row == len(plan.trace.steps) - 1
    parts = []
    for worker, views in step.pages:
        x, y = plan.pools.get(named(worker), 0), plan.level(row) - 10
        cells = []
        for i, view in enumerate(views):
            at = Point(x + CELL * (i % PER_LINE), y + CELL * (i // PER_LINE))
            owner, holder = plan.letter(view.owner), plan.letter(view.holds)
            cells.append(draw.page(at, owner, holder, plan.colours, view.quarantined))
        pale = before.get(named(worker)) == views and not last
        parts.append(f'<g opacity="{0.4 if pale else 1}">{"".join(cells)}</g>')
    return "".join(parts)


def legend(plan: Plan, top: float) -> tuple[str, float]:
    """What colours and marks mean, and the height that it takes."""
    items = [(_page(plan, letter, letter), f"request {letter} (#{ticket})") for ticket, letter in plan.names.items()]
    if not items:
        return "", 0
    some = next(iter(plan.names.values()))
    items += [
        ("", ""),
        (draw.page(Point(0, 0), None, None, plan.colours, False), "free"),
        (draw.page(Point(0, 0), None, some, plan.colours, False), "free, old bytes"),
        (_page(plan, some, None), "let, unwritten"),
        (_page(plan, some, some), "its own bytes"),
        (_page(plan, some, some, quarantined=True), "quarantined"),
        (_page(plan, some, some, foreign=True), "another request's bytes"),
        (draw.line(Point(-2, 10), Point(22, 10), INK, 1.8, "6 4"), "one-sided write"),
        (draw.clock(Point(10, 10), INK), "timer"),
        (draw.cross(Point(10, 10), 6, RED, 3), "crash, loss"),
        (
            draw.line(Point(-2, 7), Point(16, 10), GREY, 1.2, "2 3") + draw.dot(Point(18, 10), 3, draw.PAPER, GREY),
            "under way at the end",
        ),
    ]
    parts: list[str] = []
    x, y = float(MARGIN), top
    for glyph, words in items:
        width = 44 + 6.2 * len(words)
        if x > MARGIN and (not words or x + width > plan.width - MARGIN):
            x, y = MARGIN, y + 27
        if words:
            parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{glyph}</g>')
            parts.append(draw.text(Point(x + 27, y + 14), words, "small", fill=GREY))
            x += width
    return "".join(parts), y + 27 - top


def _page(plan: Plan, owner: str, holder: str | None, quarantined: bool = False, foreign: bool = False) -> str:
    if foreign:
        # The other request needs no colour of its own here, and there may be none.
        return draw.page(Point(0, 0), owner, "?", plan.colours, quarantined)
    return draw.page(Point(0, 0), owner, holder, plan.colours, quarantined)
