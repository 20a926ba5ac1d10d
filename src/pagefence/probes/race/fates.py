"""What became of requests that nobody left, and of the fleet: killed beside others, and pages that never come back."""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.probes.details import of_answer
from pagefence.probes.evidence import Evidence, Kind, doubt
from pagefence.probes.race.course import Course, course
from pagefence.probes.race.drive import Entry, RaceLog, short
from pagefence.probes.race.plan import NAME
from pagefence.probes.run import Outcome

_OVERTAKEN = 8  # later requests that were answered meanwhile: the fleet was not slow, this one was forgotten
_ABORTED = ("abort", "aborted", "cancelled", "canceled", "error")


def details(outcome: Outcome) -> dict[str, object]:
    """The facts of one answer, and how it ended."""
    answer = outcome.answer
    ended = {"hung_up": answer.hung_up, "finish_reason": answer.finish_reason, "answer": answer.text[:600]}
    return of_answer(outcome) | ended


def deaths(log: RaceLog) -> list[Evidence]:
    """One finding for each way in which requests ended that nobody had left, with all of them."""
    groups: dict[tuple[Kind, str, str | None, str | None], list[tuple[Outcome, str]]] = {}
    for entry in log.crowd:
        fate = _fate(log, entry)
        if fate is not None:
            kind, way, rule, guard, what = fate
            groups.setdefault((kind, way, rule, guard), []).append((entry.outcome, what))
    return [_told(*key, group) for key, group in groups.items()]


_Fate = tuple[Kind, str, str | None, str | None, str]


def _fate(log: RaceLog, entry: Entry) -> _Fate | None:
    """(kind, way, rule, guard, what); None for what ended as it should, was left by us, or had to wait."""
    outcome, answer = entry.outcome, entry.outcome.answer
    again = log.replays.get(outcome.shot.id)
    well = again is not None and again.answered and not short(again, outcome.shot)
    if answer.contained and answer.error is not None:
        said = f"contained: guard {answer.error.guard} refused (HTTP {answer.status}): {answer.error.message[:160]}"
        return Kind.FAIL, "guard", answer.error.rule, answer.error.guard, said
    if answer.hung_up or answer.status in (429, 503):
        return None
    if answer.answered:
        right = course(answer.text, outcome.shot.sentinel) is Course.RIGHT
        if not (right and short(answer, outcome.shot) and well):
            return None
        said = f"ended after {answer.completion_tokens} of {outcome.shot.max_tokens} tokens ({answer.finish_reason})"
        rule = "I9" if answer.finish_reason in _ABORTED else "I5"
        return Kind.FAIL, "cut short", rule, None, f"{said}; alone the same request goes on to its end"
    if answer.status is None or (answer.problem or "").startswith("no complete answer"):
        later = _overtaken(log, entry)
        kind = Kind.FAIL if later >= _OVERTAKEN and well else Kind.INCONCLUSIVE
        said = f"no outcome: {answer.problem}, while {later} later requests were answered"
        return kind, "silence", "I5", None, said + ("; alone it is answered" if well else "")
    if answer.begun:
        said = answer.error.message[:160] if answer.error else (answer.problem or "no message")
        kind = Kind.FAIL if well else Kind.INCONCLUSIVE
        return kind, "broken off", "I5", None, f"an answer that nobody left broke off: {said}"
    said = answer.error.message[:160] if answer.error else (answer.problem or "no message")
    return Kind.INCONCLUSIVE, f"HTTP {answer.status}", None, None, f"HTTP {answer.status}: {said}"


def _overtaken(log: RaceLog, entry: Entry) -> int:
    """How many that began later were answered before this one was given up."""
    return sum(e.outcome.answer.answered and entry.started < e.started and e.ended < entry.ended for e in log.crowd)


def _told(kind: Kind, way: str, rule: str | None, guard: str | None, group: Sequence[tuple[Outcome, str]]) -> Evidence:
    first, what = group[0]
    many = f" ({len(group)} requests)" if len(group) > 1 else ""
    remedy = (
        "The guard held; remove the fault behind it. Do not deploy."
        if guard
        else "One request's hang-up must not end another's. Look for aborts that match more than one request."
        if kind is Kind.FAIL
        else "See the fleet's own log."
    )
    more = details(first) | {"requests": [outcome.shot.id for outcome, _ in group], "way": way}
    return Evidence(kind, NAME, "killed", first.shot.id, what + many, rule, guard, remedy, more)


def remains(log: RaceLog) -> list[Evidence]:
    """Whether the fleet is at rest what it was before: the controls and the long prompt are answered again."""
    if log.long is None or not log.long.answer.answered:
        what = "the long prompt was not answered before the race either, so it tells nothing afterwards"
        return [doubt(NAME, what, None, "rest", details=details(log.long))] if log.long is not None else []
    silent = [o for o in log.after if not o.answer.answered]
    long = log.long_after
    if long is not None and not long.answer.answered:
        silent.append(long)
    if not silent:
        return []
    worst = silent[-1]
    left = sum(e.outcome.answer.hung_up for e in log.crowd)
    said = worst.answer.problem or (worst.answer.error.message[:160] if worst.answer.error else "no message")
    what = (
        f"after {left} hang-ups and at rest, a prompt of {worst.prompt.tokens:,} tokens got no answer (HTTP "
        f"{worst.answer.status}, {said}); before the race one as long was answered: pages that do not come back look so"
    )
    if worst.answer.status == 429:
        return [doubt(NAME, what, None, "rest", worst.shot.id, details(worst))]
    remedy = "Compare free pages before and after hang-ups; an abort path keeps or forgets some."
    return [Evidence(Kind.FAIL, NAME, "rest", worst.shot.id, what, "I6", None, remedy, details(worst))]
