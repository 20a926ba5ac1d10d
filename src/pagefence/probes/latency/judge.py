"""Answers of a live fleet held against the floor.

In `verify` the answers that other probes got are held against it, and nothing more: they ran side by side, so times of
different lengths cannot be compared. Waiting only makes an answer later, so the floor stays true. Asked for itself, the
probe has its own answers, one at a time, and compares those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pagefence.probes.boundary.classify import unanswered
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.fresh import CACHE_TOLERANCE
from pagefence.probes.latency import findings
from pagefence.probes.latency.calibration import Calibration, calibrate
from pagefence.probes.latency.floor import of_fleet
from pagefence.probes.latency.points import Point
from pagefence.probes.latency.shots import NAME
from pagefence.probes.latency.tally import Floors, Tally
from pagefence.probes.run import Outcome
from pagefence.probes.seen import Seen
from pagefence.probes.shot import Purpose

_REPEATED = 2


def judge(seen: Seen) -> ProbeResult:
    """What the times of all answers show."""
    timing, limits = seen.timing, seen.limits
    borders = (limits.longest, *limits.pools, limits.context)
    tally = Tally(Floors(of_fleet(seen.facts), timing.calibration, borders, limits.longest))
    nonces = Counter(shot.nonce for shot in seen.plan.shots)
    own: list[Point] = []
    for outcome in seen.outcomes:
        point = timed(outcome, seen.plan.fresh and nonces[outcome.shot.nonce] == 1)
        if point is None:
            continue
        mine = outcome.shot.probe == NAME
        tally.add(point, outcome.shot.stream and (mine or not timing.asked))
        own += [point] if mine else []
    result = findings.judged(tally, timing.asked, timing.calibrating)
    if not timing.asked:
        return result
    rows, evidence = _asked(seen, own)
    return ProbeResult(
        NAME,
        (*rows, *result.checks),
        (*_own_floor(own, limits.longest, tally, result.evidence), *evidence, *result.evidence),
        refused=sum(o.answer.refused_as_too_long and not o.shot.within for o in seen.of(NAME)),
        finished=seen.complete(NAME),
        plot=result.plot,
        claim=result.claim,
    )


def certified(seen: Seen) -> Calibration | str:
    """A calibration from the probe's own answers within the limit, or why there is none. The caller knows that the run
    ended CLEAN."""
    limits = seen.limits
    legal = [o for o in seen.of(NAME) if o.shot.purpose is Purpose.TIME and o.answer.answered]
    points = [point for o in legal if (point := timed(o, seen.plan.fresh)) is not None]
    return calibrate(seen.facts, points, (limits.longest, *limits.pools, limits.context))


def timed(outcome: Outcome, fresh: bool) -> Point | None:
    """The time of one answer, of its first try; None when there is none.

    `fresh`: the prompt begins with a nonce that no earlier one had, so where the fleet tells no cached tokens there
    were none.
    """
    answer = outcome.answers[0]
    prompt = outcome.first_prompt or outcome.prompt
    if answer.status != 200 or answer.error is not None or not answer.ttft_s or not answer.begun:
        return None
    tokens = prompt.tokens if prompt.counted else answer.prompt_tokens
    if tokens is None:
        return None
    cached = answer.cached_tokens if answer.cached_tokens is not None else (0 if fresh else None)
    left = max(0, tokens - (cached or 0))
    return Point(left, answer.ttft_s, outcome.shot.probe, answer.at, cached, outcome.shot.id)


def _asked(seen: Seen, own: Sequence[Point]) -> tuple[list[Check], list[Evidence]]:
    """What became of the probe's own prompts."""
    mine = seen.of(NAME)
    legal = [o for o in mine if o.shot.purpose is Purpose.TIME]
    beyond = [o for o in mine if o.shot.purpose is Purpose.OVER]
    evidence = []
    silent = [o for o in legal if not o.answer.answered]
    if silent or not legal:
        found = (unanswered(silent[0]) if silent else None) or (Kind.INCONCLUSIVE, "no usable answer", None, None)
        kind, what, rule, guard = found
        said = f"{len(silent)} of {len(legal)} legal prompts had no answer to time: {what}"
        evidence.append(Evidence(kind, NAME, "answers", "", said, rule, guard, "See the fleet's own log."))
    lost = [o for o in beyond if not o.answer.answered and not o.answer.refused_as_too_long]
    if lost:
        kind, what, rule, guard = unanswered(lost[0]) or (Kind.INCONCLUSIVE, "neither answered nor refused", None, None)
        said = f"{len(lost)} of {len(beyond)} prompts over the limit: {what}"
        evidence.append(Evidence(kind, NAME, "answers", "over the limit", said, rule, guard, "Run `verify`."))
    hits = [p for p in own if (p.cached_tokens or 0) > CACHE_TOLERANCE] if seen.plan.fresh else []
    if hits:
        what = f"{hits[0].cached_tokens} tokens of a prompt that begins with a fresh nonce came from a cache"
        evidence.append(Evidence(Kind.FAIL, NAME, "cache", hits[0].name, what, "I7"))
    refused = sum(o.answer.refused_as_too_long for o in beyond)
    answered = sum(o.answer.answered for o in beyond)
    rows = [Check("asked", "within the limit", f"{len(legal)} prompts, {len(legal) - len(silent)} answered")]
    if beyond:
        rows.append(Check("asked", "over the limit", f"{len(beyond)} prompts, {refused} refused, {answered} answered"))
    return rows, evidence


def _own_floor(own: Sequence[Point], longest: int, tally: Tally, found: Sequence[Evidence]) -> list[Evidence]:
    """Prompts over the limit that came in less than half of the time of the fastest legal one that was no longer.

    The yardstick is this run's own, so it is not certified, but nothing that is legal explains such an answer: no node
    can hold it, whatever its route. Said where no other floor has said it.
    """
    if any(e.kind is Kind.CORRUPT for e in found) or not findings.control(tally).holds:
        return []
    legal = [p for p in own if p.tokens <= longest]
    levels: dict[int, float] = {}
    for point in legal:
        levels[point.tokens] = min(point.ttft_s, levels.get(point.tokens, point.ttft_s))
    yardstick = max(levels.values(), default=0.0) / 2
    under = [
        p for p in own if p.tokens > longest and p.ttft_s < yardstick and (p.cached_tokens or 0) <= CACHE_TOLERANCE
    ]
    if len(under) < _REPEATED:
        return []
    worst = min(under, key=lambda p: p.ttft_s)
    what = (
        f"{len(under)} prompts over the limit of {longest:,} tokens were answered in less than half of the time of the "
        f"slowest legal length: {worst.tokens:,} tokens in {worst.ttft_s:.3g} s, the floor is {yardstick:.3g} s"
    )
    return [findings.corrupt("own-floor", worst, yardstick, what, len(under))]
