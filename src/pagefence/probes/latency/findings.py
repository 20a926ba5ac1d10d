"""What a tally of times shows, from whatever source it came. Pure.

    under the physical floor, next to nothing cached    CORRUPT (I4): one is enough, arithmetic has no outliers
    ... with a part of it cached, or nobody knows       INCONCLUSIVE: a cache may have held more than was told
    ... more than half of all legal answers             INCONCLUSIVE: then the figures or the units are wrong
    under the practical floor only                      CORRUPT when repeated or twice too fast, else INCONCLUSIVE
    a change point in length                            INCONCLUSIVE: a short circuit, or another route
    isotonic, trend of p5                               a row; nothing is concluded

The practical floor is half of a minimum of a few answers. One answer just under it may be a faster clock or an empty
machine; two, or one that took a quarter of the certified minimum, are neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.latency.points import Plot, Point
from pagefence.probes.latency.shots import NAME
from pagefence.probes.latency.signs import Growth, change_point, growth, isotonic, trend
from pagefence.probes.latency.tally import Floors, Tally

REPEATED = 2
FAR = 2.0
_REMEDY = "Stop trusting these answers: compare the tokens of prefill and decode for these requests, then run `verify`."
_NO_FLOOR = (
    "Declare --declare active_parameters=N, devices=N and peak_flop_per_s=N (of one device), or measure a certified "
    "fleet once with `pagefence latency --calibrate FILE` and pass --calibration FILE."
)


def judged(tally: Tally, asked: bool, calibrating: bool = False) -> ProbeResult:
    """The result over everything counted. What cannot be decided is INCONCLUSIVE only when `asked`."""
    checks: list[Check] = []
    evidence = [*_physical(tally), *_practical(tally)]
    doubts = _doubts(tally)
    wrong = any(e.check == "figures" for e in evidence)
    checks.append(_floor_row(tally, evidence))
    if tally.counts["unexplained"]:
        doubts.append(_unexplained(tally))
    checks += [Check(d.check, d.where, f"not decidable: {d.what}", undecided=True) for d in doubts]
    if asked:
        evidence += [] if calibrating else doubts
        rows, found = _comparisons(tally)
        checks += rows
        # Where the floor has said it, a sign has nothing to add.
        evidence += [] if any(e.kind is Kind.CORRUPT for e in evidence) else found
    sound = tally.telling and not doubts and not evidence and not wrong
    return ProbeResult(NAME, tuple(checks), tuple(evidence), plot=plot(tally), claim=_claim(tally) if sound else None)


def control(tally: Tally) -> Growth:
    """Whether time grows with length, within the limit."""
    floors = tally.floors
    return growth(tally.by_bucket, tally.spread.of(floors.longest) if floors.longest else None)


def corrupt(check: str, worst: Point, floor: float, what: str, count: int) -> Evidence:
    return Evidence(Kind.CORRUPT, NAME, check, worst.name, what, "I4", None, _REMEDY, details(worst, floor, count))


def details(point: Point, floor: float, count: int) -> dict[str, object]:
    """The facts of one answer that was too fast."""
    return {
        "request": point.name,
        "uncached_tokens": point.uncached_tokens,
        "cached_tokens": point.cached_tokens,
        "ttft_s": point.ttft_s,
        "floor_s": floor,
        "times_too_fast": round(floor / point.ttft_s, 1),
        "events": count,
        "probe": point.probe,
        "at": point.at,
    }


def _physical(tally: Tally) -> list[Evidence]:
    floors = tally.floors
    if tally.legal >= 2 and tally.legal_under > tally.legal / 2:
        what = (
            f"{tally.legal_under:,} of {tally.legal:,} answers to legal prompts came sooner than the physical floor: "
            "not the fleet but a figure or a unit must be wrong"
        )
        return [
            Evidence(Kind.INCONCLUSIVE, NAME, "figures", "", what, remedy="Check the declared figures and the unit.")
        ]
    found = []
    if tally.under_physical:
        worst = max(
            tally.under_physical, key=lambda p: floors.physical(p.uncached_tokens, p.cached_tokens or 0) / p.ttft_s
        )
        floor, count = floors.physical(worst.uncached_tokens, worst.cached_tokens or 0), tally.counts["physical"]
        found.append(
            corrupt(
                "floor", worst, floor, _too_fast(worst, floor, count, "the hardware cannot do it in less than"), count
            )
        )
    if tally.under_cached:
        worst = min(tally.under_cached, key=lambda p: p.ttft_s)
        floor, count = floors.physical(worst.uncached_tokens, worst.cached_tokens or 0), tally.counts["cached"]
        what = _too_fast(worst, floor, count, "what was not cached takes at least")
        remedy = "See whether a cache outside of the engine held more of the prompt than `cached_tokens` says."
        found.append(
            Evidence(Kind.INCONCLUSIVE, NAME, "floor", "cached", what, "I4", None, remedy, details(worst, floor, count))
        )
    return found


def _practical(tally: Tally) -> list[Evidence]:
    count, floors = tally.counts["practical"], tally.floors
    if not count:
        return []
    worst = max(tally.under_practical, key=lambda p: floors.practical(p.uncached_tokens) / p.ttft_s)
    floor = floors.practical(worst.uncached_tokens)
    what = _too_fast(worst, floor, count, "half of the fastest certified answer to as many is")
    if count >= REPEATED or worst.ttft_s * FAR <= floor:
        return [corrupt("practical-floor", worst, floor, what, count)]
    remedy = "Ask again. If the fleet became faster, certify and calibrate it anew."
    return [
        Evidence(
            Kind.INCONCLUSIVE,
            NAME,
            "practical-floor",
            worst.name,
            what,
            "I4",
            None,
            remedy,
            details(worst, floor, count),
        )
    ]


def _too_fast(point: Point, floor: float, count: int, why: str) -> str:
    more = f" (and {count - 1:,} more)" if count > 1 else ""
    cached = f", {point.cached_tokens:,} more from a cache" if point.cached_tokens else ""
    tokens = f"{point.uncached_tokens:,} uncached tokens{cached}"
    return f"{tokens}: first token after {point.ttft_s:.3g} s, {why} {floor:.3g} s{more}"


def _unexplained(tally: Tally) -> Evidence:
    worst = min(tally.unexplained, key=lambda p: p.ttft_s)
    what = (
        f"{tally.counts['unexplained']:,} answers came sooner than the floor, {worst.uncached_tokens:,} tokens in "
        f"{worst.ttft_s:.3g} s, and nobody told how many tokens came from a cache"
    )
    remedy = "Have the engine tell cached tokens (vLLM --enable-prompt-tokens-details, SGLang --enable-cache-report)."
    return Evidence(Kind.INCONCLUSIVE, NAME, "cached-tokens", "", what, "I4", None, remedy)


def _doubts(tally: Tally) -> list[Evidence]:
    """Why no floor could have shown a short circuit, if none could."""
    floors = tally.floors
    if not tally.seen:
        return [
            Evidence(Kind.INCONCLUSIVE, NAME, "floor", "power", "no answer had a time", remedy="See what was asked.")
        ]
    if isinstance(floors.physics, str) and floors.calibration is None:
        return [Evidence(Kind.INCONCLUSIVE, NAME, "floor", "power", floors.physics, remedy=_NO_FLOOR)]
    if not tally.telling:
        what = f"the floor of every prompt lies below the fastest answer ({tally.fastest_s:.3g} s), so it shows nothing"
        remedy = "Ask longer prompts, or calibrate: a certified fleet's own times lie above the physical floor."
        return [Evidence(Kind.INCONCLUSIVE, NAME, "floor", "power", what, remedy=remedy)]
    return []


def _floor_row(tally: Tally, evidence: Sequence[Evidence]) -> Check:
    floors, under = tally.floors, tally.counts
    kinds = [e.kind for e in evidence]
    names = [] if isinstance(floors.physics, str) else ["physical"]
    names += ["practical"] if floors.calibration is not None else []
    total = under["physical"] + under["practical"] + under["cached"] + under["unexplained"]
    text = f"{tally.seen:,} answers, {total:,} under a floor ({' and '.join(names) or 'none known'})"
    if tally.telling:
        text += (
            f"; for {tally.telling:,} of them the floor lies above the fastest answer, so a short circuit would show"
        )
    kind = min(kinds, key=list(Kind).index) if kinds else None
    return Check("floor", "all answers", text, kind, undecided=kind is None and not tally.telling)


def _comparisons(tally: Tally) -> tuple[list[Check], list[Evidence]]:
    """The control and the signs. The signs mean nothing without the control."""
    grown = control(tally)
    if not grown.holds:
        what = (
            f"time to first token does not grow with length ({grown.ratio:.2g} x from shortest to longest, chance "
            f"{grown.chance:.2g})"
            if grown.buckets > 1
            else f"only {grown.buckets} range of lengths has enough answers to compare"
        )
        remedy = "Ask when the fleet is not busy, at more lengths and more often (--rounds)."
        return (
            [Check("control", "growth", f"not decidable: {what}", undecided=True)],
            [
                Evidence(
                    Kind.INCONCLUSIVE, NAME, "control", "growth", f"{what}: timing shows nothing here", remedy=remedy
                )
            ],
        )
    rows = [Check("control", "growth", f"TTFT grows {grown.ratio:.1f} x over {grown.buckets} ranges of length")]
    evidence = []
    change = change_point(tally.some)
    if change is not None:
        what = (
            f"past {tally.spread.edges[change.bucket] - 1:,} tokens the median falls from {change.before_s:.3g} s to "
            f"{change.after_s:.3g} s (permutation test, chance {change.chance:.2g})"
        )
        remedy = "Find out what answers long prompts: another route, or nothing that computes them."
        rows.append(Check("change-point", "", what, Kind.INCONCLUSIVE))
        evidence.append(Evidence(Kind.INCONCLUSIVE, NAME, "change-point", "", what, "I4", None, remedy))
    else:
        rows.append(Check("change-point", "", "no length past which answers come faster"))
    for name, signs in (
        ("isotonic", isotonic(tally.by_bucket, tally.spread)),
        ("trend", trend(tally.by_window, tally.spread)),
    ):
        rows += [Check(name, "", f"a sign, no proof: {sign}", undecided=True) for sign in signs[:5]]
    return rows, evidence


def _claim(tally: Tally) -> str:
    bound = 1 - 0.05 ** (1 / tally.telling)
    return (
        f"none of {tally.telling:,} answers that could have shown it came sooner than the floor; 95 % upper bound on "
        f"the share of short circuits p <= {bound:.2g}"
    )


def plot(tally: Tally) -> Plot:
    """A sample of the points, all that were kept as findings, and the floors over their range."""
    kept = {*tally.under_physical, *tally.under_cached, *tally.under_practical, *tally.unexplained}
    points = sorted({*tally.sample, *kept}, key=lambda p: (p.uncached_tokens, p.ttft_s, p.name))
    top = max((p.uncached_tokens for p in points), default=0)
    steps = sorted({round(top ** (i / 48)) for i in range(49)}) if top > 1 else []
    return Plot(
        tuple(points), _curve(tally.floors, steps, True), _curve(tally.floors, steps, False), tally.floors.limits
    )


def _curve(floors: Floors, steps: Sequence[int], physical: bool) -> tuple[tuple[int, float], ...]:
    drawn = ((n, floors.physical(n) if physical else floors.practical(n)) for n in steps)
    return tuple((n, floor) for n, floor in drawn if floor > 0)
