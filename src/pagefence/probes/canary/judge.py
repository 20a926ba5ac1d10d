"""The canary: tenant A plants sentinels, tenant B reads. Two questions of every answer, reported apart.

Confidentiality: does it hold words that only another request had? Integrity (own recall): does it hold the words of its
own prompt? Own recall needs no victim and no luck, and it is the positive control: a model that does not give back its
own words could not have shown anybody else's, so a clean result without it means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pagefence.fleet import Limits
from pagefence.probes.boundary.classify import unanswered
from pagefence.probes.canary.shots import NAME
from pagefence.probes.details import details
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult, doubt
from pagefence.probes.fresh import cache_hits
from pagefence.probes.prompt import Manner
from pagefence.probes.run import RECALL_NEEDED, Outcome, settled
from pagefence.probes.seen import Seen
from pagefence.probes.sentinel import Sighting, coincidence, scan
from pagefence.probes.shot import Plan, Purpose

SLIPS_IN_DOUBT = 3


def judge(seen: Seen) -> ProbeResult:
    """Everything that was seen, tested for foreign words first, own words second."""
    plan, ran, limits = seen.plan, seen.outcomes, seen.limits
    mine = seen.of(NAME)
    controls = [o for o in mine if o.shot.purpose is Purpose.CONTROL and o.answer.answered]
    readers = [o for o in mine if o.shot.reads]
    planted = [o for o in ran if o.shot.plants and took(o)]
    left_out = settled(controls)
    used = [o for o in controls if o.shot.manner not in left_out]
    held = sum(o.recalled for o in used)
    usable = bool(used) and held >= RECALL_NEEDED * len(used)

    evidence = [e for o in ran for e in _leaks(plan, o, limits, ran)]
    leaking = {str(e.details["request"]) for e in evidence}
    for outcome in (o for o in mine if o.shot.reads or o.shot.plants):
        evidence += _integrity(outcome, limits, usable)
    evidence += _slips(plan, readers)
    evidence += _grouped([o for o in mine if not o.answer.answered], limits)
    evidence += cache_hits(NAME, mine, limits) if plan.fresh else []
    if not usable:
        what = f"positive control {held}/{len(used)}: this fleet does not give back its own words, so nothing is shown"
        evidence.append(doubt(NAME, what, "Use a model and a wording that repeat their prompt."))
    if not planted:
        evidence.append(
            doubt(NAME, "nothing was planted, so no reader could have shown it", "See why planting failed.")
        )
    legal = [o for o in readers if o.shot.purpose is Purpose.READ and o.answer.answered]
    shown = [a for o in readers for a in o.answers if a.answered] if planted and usable else []
    scanned = [(a.text, o.shot.sentinel) for o in ran for a in o.answers if a.text]
    return ProbeResult(
        name=NAME,
        checks=_rows(readers, leaking, controls, planted, usable),
        evidence=tuple(evidence),
        shown=len(shown),
        refused=sum(_refused(o) for o in readers),
        controls=(held + sum(o.recalled for o in legal), len(used) + len(legal)),
        coincidence=coincidence(scanned, len(plan.sentinels), plan.words),
        finished=seen.complete(NAME),
    )


def took(plant: Outcome) -> bool:
    """A planting prompt was computed as a whole: as many prompt tokens as were sent, and an answer to it."""
    answer, sent = plant.answer, plant.prompt
    whole = answer.prompt_tokens is not None and (answer.prompt_tokens == sent.tokens or not sent.counted)
    return answer.answered and whole and bool(answer.completion_tokens)


def _leaks(plan: Plan, outcome: Outcome, limits: Limits, ran: Sequence[Outcome]) -> list[Evidence]:
    found = []
    best: dict[str, tuple[Sighting, str]] = {}
    for answer in outcome.answers:
        for sighting in scan(answer.text, plan.sentinels, outcome.shot.sentinel):
            if sighting.proof:
                best[sighting.sentinel.owner] = (sighting, answer.text)
    by_id = {o.shot.id: o for o in ran}
    for owner, (sighting, text) in best.items():
        planter = by_id.get(owner)
        planted, words = sighting.sentinel, str(sighting.sentinel)
        same = planted.tenant == outcome.shot.tenant
        whose = f"another request of tenant {planted.tenant.upper()}" if same else f"tenant {planted.tenant.upper()}"
        part = "all of" if sighting.whole else f"{len(sighting.shards)} parts of"
        what = (
            f"tenant {outcome.shot.tenant.upper()}'s HTTP {outcome.answer.status} answer to "
            f"{outcome.prompt.tokens:,} tokens holds {part} the words of {whose}: {words!r}"
        )
        found.append(
            Evidence(
                Kind.LEAK,
                NAME,
                "foreign-words",
                outcome.shot.id,
                what,
                "I10" if same else "I1",
                remedy="Stop the fleet. Attention reads pages that were not written for this request.",
                details=details(outcome, limits)
                | {
                    "planted_words": list(planted.words),
                    "planted_by": f"tenant {planted.tenant}",
                    "planted_in": owner,
                    "planted_prompt_tokens": planter.prompt.tokens if planter else None,
                    "read_by": f"tenant {outcome.shot.tenant}",
                    "answer": text[:600],
                    "marked": mark(text[:600], sighting),
                    "whole": sighting.whole,
                    "shards": [" ".join(s) for s in sighting.shards],
                },
            )
        )
    return found


def mark(text: str, sighting: Sighting) -> str:
    """The text with the planted words in brackets."""
    words = sighting.sentinel.words if sighting.whole else {w for s in sighting.shards for w in s}
    pattern = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    return re.sub(rf"\b({pattern})\b", r"«\1»", text, flags=re.IGNORECASE)


def _integrity(outcome: Outcome, limits: Limits, usable: bool) -> list[Evidence]:
    shot, tries = outcome.shot, [(outcome.answer, outcome.prompt)]
    if outcome.first is not None:
        tries.append((outcome.first, outcome.first_prompt or outcome.prompt))
    tries = [(a, p) for a, p in tries if a.answered]
    if not tries:
        return []
    where, what, answer = shot.id, None, tries[0][0]
    # A second try that was refused takes nothing back over a limit; a legal one without an answer is a doubt already.
    counts = outcome.answer.answered or not shot.within
    other = [(a, p) for a, p in tries if p.counted and a.prompt_tokens not in (None, p.tokens)]
    if other:
        answer, prompt = other[0]
        what = f"sent {prompt.tokens:,} prompt tokens, the answer was made from {answer.prompt_tokens:,}"
    elif usable and counts and shot.reads and not outcome.recalled:
        limit = "within" if shot.within else "over"
        what = (
            f"own recall lost: the answer to {outcome.prompt.tokens:,} tokens ({limit} the limit), "
            f"all of them {str(shot.sentinel)!r}, does not hold these words"
        )
    if what is None:
        return []
    more: dict[str, object] = {"own_words": list(shot.sentinel.words), "answer": answer.text[:600]}
    more |= {"token_banned": list(outcome.ban)} | details(outcome, limits)
    remedy = "The answer was not made from its prompt. Compare the tokens of prefill and decode for this length."
    return [Evidence(Kind.CORRUPT, NAME, "own-recall", where, what, "I1", None, remedy, more)]


def _slips(plan: Plan, readers: Sequence[Outcome]) -> list[Evidence]:
    """Legal readers that lost their words and held others: now and then it is the model's slip, often it is a doubt.

    Of those that asked greedily: a sampled answer may leave its words on any honest fleet.
    """
    greedy = {shot.id for shot in plan.shots if shot.temperature == 0}
    legal = [o for o in readers if o.shot.purpose is Purpose.READ and o.answer.answered and o.shot.id in greedy]
    slips = [o for o in legal if o.first is not None and o.recalled]
    if len(slips) < SLIPS_IN_DOUBT:
        return []
    what = (
        f"{len(slips)} of {len(legal)} legal, greedy readers lost their words at first and held others the second time"
    )
    return [doubt(NAME, what, "A fault that comes and goes looks like this. Run more probes, or use a larger model.")]


def _grouped(outcomes: Sequence[Outcome], limits: Limits) -> list[Evidence]:
    """What was no answer, merged by reason; a rightful refusal is none of it."""
    groups: dict[tuple[Kind, str], tuple[Evidence, list[str]]] = {}
    for outcome in outcomes:
        if _refused(outcome) and not outcome.shot.within:
            continue
        kind, what, rule, guard = unanswered(outcome) or _odd(outcome)
        key = (kind, f"{rule} {guard} {outcome.answer.status} {re.sub(r'[0-9]+', '#', what)[:60]}")
        remedy = "The guard held; remove the fault behind it. Do not deploy." if guard else "See the fleet's own log."
        first = Evidence(kind, NAME, "answer", outcome.shot.id, what, rule, guard, remedy, details(outcome, limits))
        groups.setdefault(key, (first, []))[1].append(outcome.shot.id)
    return [
        Evidence(e.kind, e.probe, e.check, e.where, e.what, e.rule, e.guard, e.remedy, {**e.details, "requests": ids})
        for e, ids in groups.values()
    ]


def _refused(outcome: Outcome) -> bool:
    """In either form: an error inside a begun stream is the boundary's finding, and no answer that could have shown
    anything."""
    return outcome.answer.refused_as_too_long or outcome.answer.refused_in_stream


def _odd(outcome: Outcome) -> tuple[Kind, str, str | None, str | None]:
    answer = outcome.answer
    said = answer.error.message[:160] if answer.error else "no message"
    if answer.refused_as_too_long and not outcome.prompt.counted:
        return Kind.INCONCLUSIVE, f"refused at a length that was estimated: {said}", None, None
    if answer.refused_as_too_long:
        return Kind.FAIL, f"within the reported limit but HTTP {answer.status}: {said}", "I8", None
    if answer.begun:
        return Kind.INCONCLUSIVE, f"the answer broke off: {said}", "I5", None
    return Kind.INCONCLUSIVE, f"no answer: HTTP {answer.status}, {said}", None, None


def _rows(
    readers: Sequence[Outcome],
    leaking: set[str],
    controls: Sequence[Outcome],
    planted: Sequence[Outcome],
    usable: bool,
) -> tuple[Check, ...]:
    over = [o for o in readers if o.shot.purpose is Purpose.READ_OVER]
    legal = [o for o in readers if o.shot.purpose is Purpose.READ]
    rows = [
        Check("planted", "tenant A", f"{len(planted)} prompts, {sum(o.prompt.tokens for o in planted):,} tokens"),
        *_calibration(controls),
    ]
    for name, group in (("over the limits", over), ("within the limits", legal)):
        answered = [o for o in group if any(a.answered for a in o.answers)]
        refused = [o for o in group if o.answer.refused_as_too_long]
        in_stream = sum(o.answer.refused_in_stream for o in group)
        contained = [o for o in group if o.answer.contained]
        foreign = sum(o.shot.id in leaking for o in group)
        again = sum(o.first is not None for o in answered)
        text = f"{len(group)} readers, {len(refused)} refused, {len(answered)} answered"
        text += f", {in_stream} refused inside a stream" if in_stream else ""
        text += f", {len(contained)} stopped by a guard" if contained else ""
        if answered:
            text += f": own recall {sum(o.recalled for o in answered)}/{len(answered)}, foreign words in {foreign}"
        text += f", {again} asked twice" if again else ""
        rows.append(Check("readers", name, text, _grade(group, answered, foreign, usable)))
    return tuple(rows)


def _calibration(controls: Sequence[Outcome]) -> list[Check]:
    """Own recall before planting, and which manners were left out because this model does not copy in them."""
    left_out = settled(controls)
    by_manner: dict[Manner, list[Outcome]] = {}
    for outcome in controls:
        by_manner.setdefault(outcome.shot.manner, []).append(outcome)
    said = []
    for manner, mine in by_manner.items():
        name = f"{manner.layout} {manner.wording} {sum(o.recalled for o in mine)}/{len(mine)}"
        said.append(f"{name} (not used)" if manner in left_out else name)
    held = sum(o.recalled for o in controls)
    return [Check("controls", "before planting", f"own recall {held}/{len(controls)}: {', '.join(said)}")]


def _grade(group: Sequence[Outcome], answered: Sequence[Outcome], foreign: int, usable: bool) -> Kind | None:
    """The gravest thing that happened to a group of readers; None when each was answered well or rightly refused."""
    if foreign:
        return Kind.LEAK
    if any(not o.recalled and (o.answer.answered or not o.shot.within) for o in answered):
        return Kind.CORRUPT if usable else Kind.INCONCLUSIVE
    if any(o.answer.contained for o in group):
        return Kind.FAIL
    well = all(o.answer.answered or (_refused(o) and not o.shot.within) for o in group)
    return None if well else Kind.INCONCLUSIVE
