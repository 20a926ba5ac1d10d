"""What a race showed. Words of others first; then answers that are wrong beside others and right alone.

A small model slips over some words of its own accord, and does so again when it is asked alone: greedy, the same
prompt, at rest. Only what was different beside others is held against the fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pagefence.probes.canary.judge import mark
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult, doubt
from pagefence.probes.fresh import CACHE_TOLERANCE
from pagefence.probes.race.aside import crossings
from pagefence.probes.race.course import Course, course
from pagefence.probes.race.drive import Entry, RaceLog, odd, short
from pagefence.probes.race.fates import deaths, details, remains
from pagefence.probes.race.plan import NAME, TELLING
from pagefence.probes.race.rest import leftovers
from pagefence.probes.race.words import Index, accidents
from pagefence.probes.run import RECALL_NEEDED, Outcome
from pagefence.probes.sentinel import Sentinel, Sighting

_MOST_TURNED_AWAY = 0.5
_LOST_IN_DOUBT = 1  # one answer may be a near tie that other numbers beside it decide the other way; two are not


@dataclass(frozen=True, slots=True)
class _Counts:
    """The crowd in numbers; `telling`: complete answers long enough to hold somebody's words, none cut short."""

    telling: Sequence[Outcome]
    left: Sequence[Outcome]
    turned_away: int
    slips: int


def judge(log: RaceLog, others: Sequence[Sentinel] = ()) -> ProbeResult:
    """Judge what came so far. `others`: sentinels of other probes that the fleet holds as well."""
    index = Index.of([*others, *(s.sentinel for s in log.plan.everything)])
    controls = [*log.before, *log.after]
    held = sum(o.answer.answered and course(o.answer.text, o.shot.sentinel) is Course.RIGHT for o in controls)
    usable = bool(controls) and held >= RECALL_NEEDED * len(controls)
    evidence: list[Evidence] = []
    leaking: set[str] = set()
    for outcome in log.outcomes:
        proofs = [s for s in index.scan(outcome.answer.text, outcome.shot.sentinel) if s.proof]
        leaking |= {outcome.shot.id for _ in proofs}
        evidence += [_leak(outcome, sighting) for sighting in proofs]
    again = [replace(e.outcome, answer=log.replays[i]) for e in log.crowd if (i := e.outcome.shot.id) in log.replays]
    for outcome in again:
        proofs = [s for s in index.scan(outcome.answer.text, outcome.shot.sentinel) if s.proof]
        evidence += [_leak(outcome, s, "asked again, alone") for s in proofs if outcome.shot.id not in leaking]
        leaking |= {outcome.shot.id for _ in proofs}
    wrong = [e for e in log.crowd if _wrong(e.outcome) and e.outcome.shot.id not in leaking]
    evidence += _integrity(log, wrong) if usable else []
    evidence += crossings(log, wrong) if usable else []
    evidence += deaths(log)
    evidence += remains(log)
    held_at_rest, lost = leftovers(log)
    evidence += lost
    evidence += _cached(log)
    counts = _count(log, wrong)
    evidence += _doubts(log, held, len(controls), usable, counts)
    scanned = [(o.answer.text, o.shot.sentinel) for o in (*log.outcomes, *again) if o.answer.text]
    return ProbeResult(
        name=NAME,
        checks=(*_rows(log, counts, held, len(controls), evidence), held_at_rest),
        evidence=tuple(sorted(evidence, key=lambda e: list(Kind).index(e.kind))),
        shown=len(counts.telling) if usable else 0,
        controls=(held, len(controls)),
        coincidence=accidents(scanned, index.size),
        finished=log.complete,
    )


def _count(log: RaceLog, wrong: Sequence[Entry]) -> _Counts:
    crowd = [e.outcome for e in log.crowd]
    slips = sum(_alone(log, e.outcome) is True for e in wrong)
    return _Counts(
        telling=[o for o in crowd if o.answer.answered and _tells(o)],
        left=[o for o in crowd if o.answer.hung_up],
        turned_away=sum(o.answer.status in (429, 503) and not o.answer.contained for o in crowd),
        slips=slips,
    )


def _tells(outcome: Outcome) -> bool:
    return outcome.shot.max_tokens >= TELLING and not short(outcome.answer, outcome.shot)


def _wrong(outcome: Outcome) -> bool:
    return course(outcome.answer.text, outcome.shot.sentinel) is not Course.RIGHT


def _for_replay(outcome: Outcome) -> bool:
    """Whether what came was wrong or cut short, so that only the same request alone says whose fault it is."""
    return odd(outcome) and (_wrong(outcome) or short(outcome.answer, outcome.shot))


def _alone(log: RaceLog, outcome: Outcome) -> bool | None:
    """Whether it went wrong alone as well; None when nothing tells."""
    again = log.replays.get(outcome.shot.id)
    if again is None or not again.answered:
        return None
    return course(again.text, outcome.shot.sentinel) is not Course.RIGHT


def _leak(outcome: Outcome, sighting: Sighting, when: str = "beside others") -> Evidence:
    shot, planted = outcome.shot, sighting.sentinel
    same = planted.tenant == shot.tenant
    whose = f"another request of tenant {planted.tenant.upper()}" if same else f"tenant {planted.tenant.upper()}"
    part = "all of" if sighting.whole else f"{len(sighting.shards)} parts of"
    begun_well = outcome.answer.text.lower().lstrip(" -\n").startswith(shot.sentinel.words[0])
    what = f"tenant {shot.tenant.upper()}'s answer, {when}, holds {part} the words of {whose}: {str(planted)!r}" + (
        " (it began with its own)" if begun_well else ""
    )
    more = details(outcome) | {
        "planted_words": list(planted.words),
        "planted_by": f"tenant {planted.tenant}",
        "planted_in": planted.owner,
        "read_by": f"tenant {shot.tenant}",
        "marked": mark(outcome.answer.text[:600], sighting),
        "whole": sighting.whole,
        "shards": [" ".join(s) for s in sighting.shards],
    }
    remedy = "Stop the fleet. Pages or streams of requests that run beside each other get mixed up."
    return Evidence(Kind.LEAK, NAME, "foreign-words", shot.id, what, "I10" if begun_well else "I1", None, remedy, more)


def _integrity(log: RaceLog, wrong: Sequence[Entry]) -> list[Evidence]:
    """Wrong beside others and right alone: the order of its own words, or none of them."""
    found: list[Evidence] = []
    lost: list[Evidence] = []
    for outcome in (e.outcome for e in wrong if _alone(log, e.outcome) is False):
        how, own = course(outcome.answer.text, outcome.shot.sentinel), str(outcome.shot.sentinel)
        more = details(outcome) | {"own_words": list(outcome.shot.sentinel.words)}
        if how is Course.ORDER:
            what = f"beside others the words {own!r} came doubled, with gaps or out of order; alone they come in order"
            remedy = "The way from decode to the client loses the order of tokens. Look at how streams are joined."
            found.append(Evidence(Kind.CORRUPT, NAME, "stream-order", outcome.shot.id, what, "I10", None, remedy, more))
        elif how is Course.LOST and outcome.shot.max_tokens >= TELLING:
            what = f"beside others the answer lost its own words {own!r}; alone it has them"
            remedy = "Attention reads other pages than the prompt's while others run. Do not deploy."
            lost.append(Evidence(Kind.CORRUPT, NAME, "own-recall", outcome.shot.id, what, "I1", None, remedy, more))
    if len(lost) > _LOST_IN_DOUBT:
        return [*found, *lost]
    once = "it happened once, which a near tie of two tokens explains as well: run more probes"
    return [*found, *(doubt(NAME, f"{e.what}; {once}", None, e.check, e.where, e.details) for e in lost)]


def _cached(log: RaceLog) -> list[Evidence]:
    """A fresh nonce is at the very start of every prompt but those that are asked again."""
    hits = [
        o for o in log.outcomes if not o.shot.id.endswith("-again") and (o.answer.cached_tokens or 0) > CACHE_TOLERANCE
    ]
    if not hits:
        return []
    what = f"{hits[0].answer.cached_tokens} tokens of a prompt that begins with a fresh nonce came from a cache"
    more = details(hits[0]) | {"requests": [o.shot.id for o in hits]}
    return [Evidence(Kind.FAIL, NAME, "cache", hits[0].shot.id, what, "I7", details=more)]


def _doubts(log: RaceLog, held: int, asked: int, usable: bool, counts: _Counts) -> list[Evidence]:
    doubts = []
    if not usable:
        what = f"positive control {held}/{asked}: this fleet does not go on with its own words, so nothing is shown"
        doubts.append(doubt(NAME, what))
    elif not counts.telling:
        doubts.append(doubt(NAME, "no complete answer of the crowd could have shown anything", check="asked"))
    if counts.turned_away > _MOST_TURNED_AWAY * max(1, len(log.crowd)):
        what = f"{counts.turned_away} of {len(log.crowd)} requests were turned away (429, 503) however long we waited"
        doubts.append(doubt(NAME, what, check="busy"))
    open_ = [e.outcome for e in log.crowd if _for_replay(e.outcome) and _alone(log, e.outcome) is None]
    if open_ and log.complete:
        what = f"{len(open_)} odd answers could not be asked again alone, so it is open whose fault they are"
        doubts.append(doubt(NAME, what, None, "replay", open_[0].shot.id, details(open_[0])))
    return doubts


def _rows(log: RaceLog, counts: _Counts, held: int, asked: int, evidence: Sequence[Evidence]) -> tuple[Check, ...]:
    """What was sent and what came of it. The gravest finding of a row's kind is its mark."""
    planned, crowd = len(log.plan.shots), len(log.crowd)
    wanted = sum(e.outcome.shot.hang_up is not None for e in log.crowd)
    left, telling = counts.left, counts.telling
    right = sum(not _wrong(o) for o in telling)
    waits = sum(e.waits for e in log.crowd)
    text = (
        f"{crowd:,} of {planned:,} requests, up to {log.plan.profile.at_once} at once, in {log.seconds:.0f} s: "
        f"{len(telling):,} answers that could have shown, {right:,} of them word for word right, "
        f"{counts.slips} slips of the model"
    )
    text += f"; stopped: {log.stopped}" if log.stopped else ""
    share = len(left) / crowd if crowd else 0.0
    gone = f"{len(left):,} of {wanted:,} planned ({share:.0%} of all): "
    gone += f"{sum(not o.answer.begun for o in left)} before a byte, {sum(o.answer.begun for o in left)} after it"
    long = log.long_after
    rest = "not asked" if long is None else "answered" if long.answer.answered else f"HTTP {long.answer.status}"
    busy = f"{waits} times asked to wait, {counts.turned_away} turned away"

    def worst(*checks: str) -> Kind | None:
        kinds = [e.kind for e in evidence if e.check in checks]
        return min(kinds, key=list(Kind).index, default=None)

    rows = [
        Check("controls", "alone, before and after", f"word for word right {held}/{asked}", worst("control")),
        Check("crowd", _blocks(log), text, worst("foreign-words", "own-recall", "crossed", "cache", "asked", "replay")),
        Check("streams", "order of tokens", f"{sum(o.shot.stream for o in telling):,} streams", worst("stream-order")),
        Check("hang-ups", "at random moments", gone, worst("killed")),
        Check("load", "429 and 503", busy, worst("busy")),
        Check("rest", "a long prompt afterwards", rest, worst("rest")),
    ]
    return tuple(rows)


def _blocks(log: RaceLog) -> str:
    names = [b.skew.name for b in log.plan.blocks]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
