"""A sign of life that does not come is a doubt or a violation of its own, whatever came over the limits."""

from __future__ import annotations

from pagefence.fleet import Answer, FleetFacts, Limits
from pagefence.fleet.answer import ErrorBody
from pagefence.fleet.facts import Figure
from pagefence.probes import Kind
from pagefence.probes.boundary.judge import judge
from pagefence.probes.boundary.shots import NAME
from pagefence.probes.prompt import Prompt
from pagefence.probes.run import Outcome
from pagefence.probes.seen import Seen
from pagefence.probes.shot import Maker, Plan, Purpose, Wave

LIMITS = Limits(longest=500, pool=640, context=512, cover=640, advertised=512, pools=(640,), page=16)
TOO_LONG = Answer(400, error=ErrorBody("maximum context length is 512", code="context_length_exceeded"))


def kinds(alive: Answer) -> set[tuple[Kind, str | None]]:
    """A border that is refused in order, one within that is answered, and such a sign of life."""
    maker, answers = Maker(1), {Purpose.ALIVE: alive, Purpose.OVER: TOO_LONG}
    shots = [maker.shot(NAME, Purpose.ALIVE, "b", 48, 2), maker.shot(NAME, Purpose.OVER, "b", 501, 2)]
    shots.append(maker.shot(NAME, Purpose.WITHIN, "a", 500, 2))
    answers[Purpose.WITHIN] = Answer(200, "some words", "length", 500, 2)
    ran = [Outcome(shot, Prompt(shot.id, shot.tokens, True), answers[shot.purpose], {}) for shot in shots]
    facts = FleetFacts("http://n", "m", Figure(512, "told"), ())
    result = judge(Seen(Plan((Wave("all", tuple(shots), 0),), fresh=False), ran, LIMITS, facts))
    return {(e.kind, e.rule) for e in result.evidence}


def test_an_answered_one_is_no_row() -> None:
    assert kinds(Answer(200, "yes", "length", 48, 2)) == set()


def test_a_silent_one_is_a_doubt_and_another_error_a_violation() -> None:
    assert kinds(Answer(None, problem="connection reset")) == {(Kind.INCONCLUSIVE, "I3")}
    assert kinds(Answer(500, error=ErrorBody("internal"))) == {(Kind.FAIL, "I8")}
