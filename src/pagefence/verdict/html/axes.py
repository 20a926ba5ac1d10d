"""Axes of a small plot. Coordinates are in a picture of 360 units, a phone's width, so that its words stay readable
there; a wider page enlarges it. Colours are classes, so that they follow the page's light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pagefence.verdict.html.markup import Html, el, together

WIDTH, HEIGHT = 360, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 352, 12, 206


@dataclass(frozen=True, slots=True)
class Scale:
    """One direction: values from `low` to `high`, on the places from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = True

    def place(self, value: float) -> float:
        value = min(self.high, max(self.low, value))
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def across(low: float, high: float) -> Scale:
    """The horizontal direction, in decades."""
    return Scale(*_wide(low, high), _LEFT, _RIGHT)


def upwards(low: float, high: float, log: bool = True) -> Scale:
    """The vertical direction."""
    return Scale(*(_wide(low, high) if log else (low, high)), _BOTTOM, _TOP, log)


def _wide(low: float, high: float) -> tuple[float, float]:
    """At least a factor of four, or the axis has no mark."""
    middle = math.sqrt(low * high)
    return (low, high) if high >= 4 * low else (middle / 2, middle * 2)


def marks(scale: Scale) -> list[float]:
    """Values to write at an axis: powers of ten, or 1, 2 and 5 of each where there are few decades."""
    if not scale.log:
        return [scale.low + i * (scale.high - scale.low) / 4 for i in range(5)]
    few = math.log10(scale.high / scale.low)
    steps = (1,) if few > 3 else (1, 3) if few > 1.5 else (1, 2, 5)
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    every = max(1, (last - first) // 6)
    found = [step * 10.0**n for n in range(first, last + 1, every) for step in steps]
    return [value for value in found if scale.low * 0.999 <= value <= scale.high * 1.001]


def frame(x: Scale, y: Scale, named: tuple[str, str], written: tuple[Sequence[str], Sequence[str]]) -> Html:
    """Grid, marks and the names of both axes. `written`: the words at the marks of each."""
    parts: list[Html] = []
    for value, words in zip(marks(x), written[0], strict=True):
        at = x.place(value)
        parts.append(line(at, _TOP, at, _BOTTOM, "grid"))
        parts.append(el("text", words, x=at, y=_BOTTOM + 15, class_="tick", text_anchor="middle"))
    for value, words in zip(marks(y), written[1], strict=True):
        at = y.place(value)
        parts.append(line(_LEFT, at, _RIGHT, at, "grid"))
        parts.append(el("text", words, x=_LEFT - 6, y=at + 4, class_="tick", text_anchor="end"))
    parts.append(el("text", named[0], x=(_LEFT + _RIGHT) / 2, y=HEIGHT - 8, class_="axis", text_anchor="middle"))
    middle = (_TOP + _BOTTOM) / 2
    turned = f"rotate(-90 11 {middle:.0f})"
    parts.append(el("text", named[1], x=11, y=middle, class_="axis", text_anchor="middle", transform=turned))
    return together(*parts)


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Html:
    return el("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=style)


def curve(points: Sequence[tuple[float, float]], style: str) -> Html:
    return el("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=style)


def dot(x: float, y: float, style: str, said: str) -> Html:
    return el("circle", el("title", said), cx=float(x), cy=float(y), r=4.0, class_=style)


def drawing(name: str, title: str, told: str, *parts: Html, height: float = HEIGHT) -> Html:
    """A picture with its name and, for who cannot see it, what it shows. `name` is unique on the page."""
    return el(
        "svg",
        el("title", title, id=f"{name}-title"),
        el("desc", told, id=f"{name}-desc"),
        *parts,
        viewBox=f"0 0 {WIDTH} {height:.0f}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def edges() -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the field between the axes."""
    return _LEFT, _TOP, _RIGHT, _BOTTOM
