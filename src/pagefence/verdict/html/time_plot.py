"""Time to the first token against the tokens that had to be computed for it, with the floors where they are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pagefence.probes.run import Outcome
from pagefence.verdict.html.axes import Scale, across, curve, dot, drawing, edges, frame, line, marks, upwards
from pagefence.verdict.html.markup import Html, el
from pagefence.verdict.report import Run

_MOST = 1500
_KINDS = {
    "told": "as it was logged",
    "seen": "streamed: time to its first token",
    "whole": "not streamed: time to its end, which is later",
    "over": "over the limit, and answered all the same",
}
Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Times:
    """What a plot draws: (uncached tokens, seconds, kind of `_KINDS`, name), the two floors, lengths that divide it."""

    points: Sequence[tuple[int, float, str, str]]
    physical: Curve = ()
    practical: Curve = ()
    limits: Sequence[int] = ()


def times_of(run: Run) -> Times:
    """What a probe of times has drawn up; else every answer that tells how many prompt tokens it was made from."""
    plot = next((result.plot for result in run.results if result.plot is not None), None)
    if plot is not None and plot.points:
        kinds = {outcome.shot.id: _kind(outcome, outcome.answer.stream) for outcome in run.examination.log.outcomes}
        drawn = [(p.uncached_tokens, p.ttft_s, kinds.get(p.name, "told"), p.name or p.probe) for p in plot.points]
        drawn = [point for point in drawn if point[0] > 0 and point[1] > 0]
        return Times(drawn[:_MOST], plot.physical, plot.practical, plot.limits)
    points = [point for outcome in run.examination.log.outcomes for point in _points(outcome)]
    limits = run.examination.limits
    return Times(points[:_MOST], limits=() if limits is None else (limits.longest,))


def _points(outcome: Outcome) -> Iterator[tuple[int, float, str, str]]:
    for answer in outcome.answers:
        if not answer.answered or not answer.ttft_s or answer.prompt_tokens is None:
            continue
        uncached = answer.prompt_tokens - (answer.cached_tokens or 0)
        if uncached > 0:
            yield uncached, answer.ttft_s, _kind(outcome, answer.stream), outcome.shot.id


def _kind(outcome: Outcome, stream: bool) -> str:
    return "over" if not outcome.shot.within else "seen" if stream else "whole"


def time_plot(times: Times) -> Html:
    """The picture. There has to be a point."""
    x, y = _scales(times)
    written = [_tokens(value) for value in marks(x)], [_seconds(value) for value in marks(y)]
    parts = [frame(x, y, ("prompt tokens that no cache had", "time to first token"), written)]
    _, top, _, bottom = edges()
    limits = [x.place(limit) for limit in times.limits if x.low <= limit <= x.high]
    parts += [line(place, top, place, bottom, "level") for place in limits]
    for floor, style in ((times.physical, "line b"), (times.practical, "line a")):
        inside = [(x.place(n), y.place(s)) for n, s in floor if n > 0 and s > 0]
        parts += [curve(inside, style)] if len(inside) > 1 else []
    for tokens, seconds, kind, name in times.points:
        said = f"{name}: {tokens:,} tokens, {_seconds(seconds)}"
        parts.append(dot(x.place(tokens), y.place(seconds), f"point {kind}", said))
    return el(
        "figure", drawing("times", "Time to first token", _told(times), *parts), el("figcaption", *_legend(times))
    )


def _scales(times: Times) -> tuple[Scale, Scale]:
    lengths, seconds = [p[0] for p in times.points], [p[1] for p in times.points]
    seconds += [s for floor in (times.physical, times.practical) for n, s in floor
                if s > 0 and min(lengths) <= n <= max(lengths)]  # fmt: skip
    lengths += [limit for limit in times.limits if limit <= 2 * max(lengths)]
    return across(min(lengths) * 0.8, max(lengths) * 1.25), upwards(min(seconds) * 0.7, max(seconds) * 1.4)


def _told(times: Times) -> str:
    lengths, seconds = [p[0] for p in times.points], [p[1] for p in times.points]
    said = f"{len(times.points):,} answers of {min(lengths):,} to {max(lengths):,} uncached tokens"
    said += f", which took {_seconds(min(seconds))} to {_seconds(max(seconds))}"
    floors = [name for name, floor in (("physical", times.physical), ("practical", times.practical)) if floor]
    return f"{said}; floors drawn: {' and '.join(floors) or 'none'}"


def _legend(times: Times) -> list[Html]:
    kinds = {p[2] for p in times.points}
    keys = [(f"key {kind}", words) for kind, words in _KINDS.items() if kind in kinds]
    keys += [("key b", "physical floor: no machine is faster")] if times.physical else []
    keys += [("key a", "practical floor: half of what this fleet needed")] if times.practical else []
    limits = ", ".join(f"{limit:,}" for limit in times.limits)
    keys += [("key dash", f"limits of this fleet: {limits}")] if limits else []
    return [el("span", el("i", class_=style), words, class_="legend") for style, words in keys]


def _tokens(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
