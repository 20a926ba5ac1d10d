"""What the canary makes of answers that came once and not the second time, and of a model that cannot copy."""

from __future__ import annotations

from dataclasses import replace

from pagefence.fleet import Answer, FleetFacts, Limits
from pagefence.fleet.answer import ErrorBody
from pagefence.fleet.facts import Figure
from pagefence.probes import Kind, ProbeResult
from pagefence.probes.canary.judge import judge
from pagefence.probes.canary.shots import NAME
from pagefence.probes.prompt import Prompt
from pagefence.probes.run import Outcome
from pagefence.probes.seen import Seen
from pagefence.probes.shot import Maker, Plan, Purpose, Shot, Wave

LIMITS = Limits(longest=500, pool=640, context=512, cover=640, advertised=512, pools=(640,), page=16)
TOO_LONG = Answer(400, error=ErrorBody("maximum context length is 512", code="context_length_exceeded"))
SILENT = Answer(None, problem="connection reset")


def own(shot: Shot, text: str | None = None) -> Answer:
    return Answer(200, f"{shot.sentinel} {shot.sentinel}" if text is None else text, "length", shot.tokens, 24)


def result(reader: Purpose, second: Answer, first: Answer | None = None, copies: bool = True) -> ProbeResult:
    """Two controls, a plant, and one reader with its first and its second answer."""
    maker = Maker(3)
    shots = [maker.shot(NAME, Purpose.CONTROL, tenant, 96, 24) for tenant in "ab"]
    shots.append(maker.shot(NAME, Purpose.PLANT, "a", 500, 24))
    ran = [Outcome(s, Prompt(s.id, s.tokens, True), own(s, None if copies else "lorem ipsum"), {}) for s in shots]
    shots.append(maker.shot(NAME, reader, "b", 200 if reader is Purpose.READ else 501, 24))
    ran.append(Outcome(shots[-1], Prompt("read", shots[-1].tokens, True), second, {}, first=first))
    facts = FleetFacts("http://n", "m", Figure(512, "told"), ())
    return judge(Seen(Plan((Wave("all", tuple(shots), 0),), fresh=False), ran, LIMITS, facts))


LOST = Answer(200, "lorem ipsum dolor", "length", None, 24)


def kinds(found: ProbeResult) -> set[tuple[Kind, str]]:
    return {(e.kind, e.check) for e in found.evidence}


def test_words_lost_over_the_limit_are_lost_also_when_the_second_try_is_refused_or_silent() -> None:
    assert kinds(result(Purpose.READ_OVER, TOO_LONG, LOST)) == {(Kind.CORRUPT, "own-recall")}
    assert (Kind.CORRUPT, "own-recall") in kinds(result(Purpose.READ_OVER, SILENT, LOST))


def test_words_lost_within_the_limit_are_a_doubt_when_the_second_try_has_no_answer() -> None:
    found = result(Purpose.READ, SILENT, LOST)
    assert {kind for kind, _ in kinds(found)} == {Kind.INCONCLUSIVE}
    assert {c.kind for c in found.checks} == {None, Kind.INCONCLUSIVE}


def test_a_first_answer_made_from_another_prompt_is_told_whatever_came_second() -> None:
    other = replace(LOST, prompt_tokens=1)
    assert (Kind.CORRUPT, "own-recall") in kinds(result(Purpose.READ, SILENT, other))


def test_no_row_says_corrupt_of_a_model_that_cannot_copy() -> None:
    found = result(Purpose.READ, LOST, copies=False)
    assert {kind for kind, _ in kinds(found)} == {Kind.INCONCLUSIVE}
    assert Kind.CORRUPT not in {c.kind for c in found.checks}
