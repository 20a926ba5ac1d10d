"""Are prefixes shared inside one key, and only there? (I7)

The control comes first: the same key must find its own prompt again. Where it does not, a miss of the other key says
nothing: the cache may be off, or not visible from outside. A hit of the other key gives away, by time alone, what
somebody else has asked; that is a FAIL. Foreign words in an answer are a LEAK.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.probes.boundary.classify import unanswered
from pagefence.probes.details import details
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult, doubt
from pagefence.probes.run import RECALL_NEEDED, Outcome
from pagefence.probes.salt.ks import ALPHA, shown_distance
from pagefence.probes.salt.shots import NAME, POWER, Arm
from pagefence.probes.salt.told import Counted, Timed, counted, is_hit, of, timed, usage
from pagefence.probes.seen import Seen
from pagefence.probes.sentinel import scan

_MUST_MISS = (Arm.FIRST, Arm.OTHER, Arm.TWIN)
_CLAIM = {
    Arm.FIRST: "begins with a fresh nonce and was never sent before",
    Arm.OTHER: "only another tenant had sent before",
    Arm.TWIN: "differs from an earlier one at its beginning",
}
_SHARED = "Keep prefixes apart by tenant in every tier: a salt in the first block's key, derived on the server side."
_TURN_ON = (
    "Have the engine tell cached tokens (SGLang --enable-cache-report, vLLM --enable-prompt-tokens-details), let its "
    "/metrics be read, or measure the time: pagefence salt --timing."
)


def judge(seen: Seen) -> ProbeResult:
    """Rows by place and arm, findings for hits that must not be, and a doubt where the control shows nothing."""
    mine = seen.of(NAME)
    alone = all(shot.probe == NAME for shot in seen.plan.shots)
    if not any(shot.probe == NAME for shot in seen.plan.shots):
        what = "no prompt of several cache pages fits, so nothing could be asked"
        return ProbeResult(NAME, evidence=(doubt(NAME, what, "Ask a fleet with a longer context or smaller pages."),))
    times = timed(mine)
    counts = {arm: counted(seen, arm) for arm in (*_MUST_MISS, Arm.AGAIN)}
    again = usage(mine, Arm.AGAIN)
    asked = again.answered
    timely = times is not None and times.shows
    held = asked if timely else min(asked, max(len(again.hits), counts[Arm.AGAIN].hits))
    checks = [*_by_usage(mine, seen.plan.fresh), *_by_counters(counts, seen.plan.fresh)]
    evidence = _hits(mine, seen) + _counted_hits(mine, counts, seen) + _words(mine, seen) + _lost(mine, seen)
    if times is not None:
        checks.append(_time_row(times))
        evidence += _time_findings(times)
    evidence += _control(held, asked, counts[Arm.AGAIN], times, alone)
    evidence += _blind(mine, counts, times)
    evidence += _unanswered(mine, seen)
    checks.append(_arms(seen))
    tried = sum(len(of(mine, arm)) for arm in (Arm.OTHER, Arm.TWIN))
    claim = f"none of {tried} prompts was found in the cache of another; positive control {held}/{asked}"
    # A tier that drops the key drops it for every prompt: this is no rate, so no answer counts for one.
    return ProbeResult(
        NAME, tuple(checks), tuple(evidence), controls=(held, asked), finished=seen.complete(NAME), claim=claim
    )


def _by_usage(mine: Sequence[Outcome], fresh: bool) -> list[Check]:
    rows = []
    for arm in (Arm.AGAIN, *_MUST_MISS):
        said = usage(mine, arm)
        if not said.told:
            text = f"{said.answered} answers, none tells cached tokens"
            rows.append(Check(arm, "usage", text, undecided=True))
            continue
        wrong = bool(said.hits) and arm is not Arm.AGAIN and (fresh or arm is Arm.TWIN)
        text = f"{len(said.hits)} of {said.told} from a cache, as usage tells"
        rows.append(Check(arm, "usage", text, Kind.FAIL if wrong else None))
    return rows


def _by_counters(counts: dict[Arm, Counted], fresh: bool) -> list[Check]:
    doubts = {c.doubt for c in counts.values() if c.doubt is not None}
    if len(doubts) == 1 and all(c.doubt for c in counts.values()):
        return [Check("counters", "every node", f"not used: {doubts.pop()}", undecided=True)]
    rows = []
    for arm, count in counts.items():
        if count.doubt is not None:
            rows.append(Check(arm, "counters", f"not used: {count.doubt}", undecided=True))
            continue
        wrong = count.hit and arm is not Arm.AGAIN and (fresh or arm is Arm.TWIN)
        text = f"{count.tokens:,} tokens of {count.answers} prompts from a cache, as the nodes count"
        rows.append(Check(arm, "counters", text, Kind.FAIL if wrong else None))
    return rows


def _arms(seen: Seen) -> Check:
    shot = next(shot for shot in seen.plan.shots if shot.probe == NAME)
    by = f"{shot.extra[0][0]}, which we set for each tenant" if shot.extra else "their API keys"
    return Check("tenants", "told apart by", f"{by}; prompts of {shot.tokens} tokens, pages of {seen.limits.page}")


def _hits(mine: Sequence[Outcome], seen: Seen) -> list[Evidence]:
    """Hits that usage tells and that must not be."""
    found = []
    for outcome in (o for arm in _MUST_MISS for o in usage(mine, arm).hits):
        arm, answer = Arm(outcome.shot.arm), outcome.answer
        what = f"tenant {outcome.shot.tenant.upper()} was answered with {answer.cached_tokens} of "
        what += f"{outcome.prompt.tokens} prompt tokens from a cache, for a prompt that {_CLAIM[arm]}"
        if arm is not Arm.TWIN and not seen.plan.fresh:
            found.append(doubt(NAME, f"{what}, unless this seed has been used before", "Run it without --seed."))
            continue
        more = details(outcome, seen.limits) | {"cached_tokens": answer.cached_tokens, "place": "usage"}
        if arm is Arm.OTHER:
            more["planted_in"] = outcome.shot.sentinel.owner
        found.append(_finding(arm, outcome.shot.id, what, more))
    return found


def _counted_hits(mine: Sequence[Outcome], counts: dict[Arm, Counted], seen: Seen) -> list[Evidence]:
    """Hits that only the counters tell: usage, where it tells them too, has said which answers they were."""
    found = []
    for arm in _MUST_MISS:
        count = counts[arm]
        if not count.hit or usage(mine, arm).hits:
            continue
        what = f"the nodes counted {count.tokens:,} tokens from a cache for {count.answers} prompts that each "
        what += _CLAIM[arm]
        if arm is not Arm.TWIN and not seen.plan.fresh:
            found.append(doubt(NAME, f"{what}, unless this seed has been used before", "Run it without --seed."))
        else:
            found.append(_finding(arm, "counters", what, {"cached_tokens": count.tokens, "place": "counters"}))
    return found


def _finding(arm: Arm, where: str, what: str, more: dict[str, object]) -> Evidence:
    rule = "I1" if arm is Arm.TWIN else "I7"
    return Evidence(Kind.FAIL, NAME, arm, where, what, rule, remedy=_SHARED, details=more)


def _words(mine: Sequence[Outcome], seen: Seen) -> list[Evidence]:
    """Foreign words in an answer. Where the canary runs too, it scans these answers with all others."""
    if any(shot.probe == "canary" for shot in seen.plan.shots):
        return []
    found = []
    planted = seen.plan.sentinels
    for outcome in mine:
        for sighting in scan(outcome.answer.text, planted, outcome.shot.sentinel):
            if sighting.proof:
                what = f"tenant {outcome.shot.tenant.upper()}'s answer holds the words of another prompt: "
                what += repr(str(sighting.sentinel))
                more = details(outcome, seen.limits) | {"answer": outcome.answer.text[:600]}
                more["planted_in"] = sighting.sentinel.owner
                remedy = "Stop the fleet. Compare the content of a cached page, not its key alone."
                found.append(
                    Evidence(Kind.LEAK, NAME, "foreign-words", outcome.shot.id, what, "I1", None, remedy, more)
                )
                break
    return found


def _lost(mine: Sequence[Outcome], seen: Seen) -> list[Evidence]:
    """A prompt that was answered in its own words when it was computed, and is not when it comes from a cache."""
    first = {o.shot.sentinel.owner: o for o in of(mine, Arm.FIRST)}
    found = []
    for outcome in of(mine, Arm.AGAIN):
        before = first.get(outcome.shot.sentinel.owner)
        if before is None or before.prompt.text != outcome.prompt.text or not is_hit(outcome):
            continue
        if before.recalled and not outcome.recalled:
            what = (
                "own recall lost: the prompt was answered in its own words when it was computed, and not from a cache"
            )
            more = details(outcome, seen.limits) | {"answer": outcome.answer.text[:600]}
            remedy = "What the cache holds is not what was computed. Compare pages by digest when they are loaded."
            found.append(Evidence(Kind.CORRUPT, NAME, "own-recall", outcome.shot.id, what, "I1", None, remedy, more))
    if len(found) > 1:
        return found
    # What a cache holds rounds otherwise than what is computed beside it, and may decide a near tie the other way.
    return [doubt(NAME, f"{e.what}; it happened once: run it again", None, e.check, e.where, e.details) for e in found]


def _control(held: int, asked: int, count: Counted, times: Timed | None, alone: bool) -> list[Evidence]:
    """What keeps a miss from saying anything."""
    if times is not None and times.shows:
        return []
    if not asked:
        return [doubt(NAME, "no prompt that was sent twice was answered", "See why the fleet gave no answer.")]
    if held == 0:
        off = count.doubt is None and not count.hit
        if off and not alone:
            return []
        why = "by every node's own counters nothing was cached" if off else "what is not visible is not proven"
        what = f"positive control 0/{asked}: no prompt was found again under its own key; {why}"
        return [doubt(NAME, what, "Turn the prefix cache on to test it." if off else _TURN_ON)]
    if held < RECALL_NEEDED * asked:
        what = f"positive control {held}/{asked}: a miss of the other key may be a replica without the prompt"
        return [doubt(NAME, what, "Ask each replica by itself, or route a tenant's equal prompts to one of them.")]
    return []


def _blind(mine: Sequence[Outcome], counts: dict[Arm, Counted], times: Timed | None) -> list[Evidence]:
    """The place that showed the control has to be seen for the other key as well."""
    own, other = usage(mine, Arm.AGAIN), usage(mine, Arm.OTHER)
    places = [
        bool(own.hits) and other.told == other.answered > 0,
        counts[Arm.AGAIN].hit and counts[Arm.OTHER].doubt is None,
        times is not None and times.shows,
    ]
    shown = bool(own.hits) or counts[Arm.AGAIN].hit
    if any(places) or not shown:
        return []
    why = counts[Arm.OTHER].doubt or f"{other.told} of {other.answered} answers tell cached tokens"
    return [doubt(NAME, f"a hit of the other key could not have been seen: {why}", "Ask again when nobody else does.")]


def _unanswered(mine: Sequence[Outcome], seen: Seen) -> list[Evidence]:
    silent = [o for o in mine if not o.answer.answered]
    if not silent:
        return []
    answer = silent[0].answer
    said = answer.error.message if answer.error else (answer.problem or "no message")
    kind, what, rule, guard = unanswered(silent[0]) or (Kind.INCONCLUSIVE, f"HTTP {answer.status}: {said}", None, None)
    more = details(silent[0], seen.limits)
    whole = f"{len(silent)} of {len(mine)} requests were not answered: {what[:300]}"
    remedy = "The guard held; remove the fault behind it." if guard else "See the fleet's own log."
    return [Evidence(kind, NAME, "answer", silent[0].shot.id, whole, rule, guard, remedy, more)]


def _time_row(times: Timed) -> Check:
    if times.doubt is not None:
        return Check("time", "first token", times.doubt, Kind.INCONCLUSIVE)
    kind = Kind.FAIL if times.shared else (None if times.shows else Kind.INCONCLUSIVE)
    text = f"chance of these times without sharing: own key {times.control:.1g}, other key {times.other:.1g}; "
    least = min(times.samples)
    distance = shown_distance(least, ALPHA, POWER)
    text += f"{least} times of each show a distance of {distance:.2f} with a power of {POWER}"
    return Check("time", "first token", text, kind)


def _time_findings(times: Timed) -> list[Evidence]:
    if times.shared:
        what = "prompts that only the other tenant had sent are answered sooner than new ones "
        what += f"(one-sided Kolmogorov-Smirnov, p = {times.other:.1g}, {times.samples[1]} times of each)"
        return [_finding(Arm.OTHER, "time to the first token", what, {"p": times.other, "place": "time"})]
    if not times.shows:
        why = times.doubt or f"hits of one's own key are no faster than new prompts (p = {times.control:.1g})"
        return [doubt(NAME, f"time shows nothing here: {why}", "Use longer prompts or a quieter hour.")]
    return []
