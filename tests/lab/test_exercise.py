"""The exercise: what an answer is, in made-up streams; and a real fleet, healthy and with two faults."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from pagefence.fleet.answer import ErrorBody
from pagefence.lab import faults
from pagefence.lab.exercise import AT_ONCE, NO_FAULT, TENANTS, exercise, plan, recipe
from pagefence.lab.exercised import Exercised, Kind, Rest, Seen, count, judge, whose
from pagefence.lab.fault import Fault
from pagefence.lab.known import Known, prompts
from pagefence.probes.sentinel import spoken

KNOWN = (
    Known("short", "salt wool salt", (1, 2, 1), " wool glass timber", (2, 3, 4)),
    Known("short", "river mill river", (5, 6, 5), " mill clerk boat", (6, 7, 8)),
)
WHOLE = Seen(0, "a", 200, " wool glass timber", (2, 3, 4), finished=True)
PART = Seen(0, "a", 200, " wool glass")
FRAMES = ErrorBody("stopped", "isolation_error", "frame_broken", rule="I1", guard="page-frames")
TOO_LONG = ErrorBody("too long", "invalid_request_error", "context_length_exceeded")


@pytest.mark.parametrize(
    ("seen", "kind", "about"),
    [
        (WHOLE, Kind.RIGHT, ""),
        (replace(WHOLE, token_ids=None), Kind.RIGHT, ""),
        (replace(PART, hung_up=True), Kind.HUNG_UP, ""),
        (replace(PART, text="", hung_up=True), Kind.HUNG_UP, ""),
        (replace(WHOLE, text=" wool boat"), Kind.WRONG, "foreign: words of prompt 1"),
        (replace(PART, text=" wool wool", hung_up=True), Kind.WRONG, "corrupt"),
        (replace(WHOLE, token_ids=(2, 3, 9)), Kind.WRONG, "corrupt"),
        (replace(PART, text=" clerk", error=FRAMES), Kind.WRONG, "foreign: words of prompt 1"),
        (replace(PART, error=FRAMES), Kind.CONTAINED, "page-frames (I1)"),
        (Seen(0, "a", 500, error=FRAMES), Kind.CONTAINED, "page-frames (I1)"),
        (Seen(0, "a", 503, error=ErrorBody("no", "server_error", "not_ready")), Kind.CONTAINED, "readiness (I8)"),
        (Seen(0, "a", 400, error=TOO_LONG), Kind.REFUSED, "context_length_exceeded"),
        (Seen(0, "a", 500, error=ErrorBody("lost", "server_error", "worker_lost")), Kind.BROKEN, "worker_lost"),
        (PART, Kind.BROKEN, "HTTP 200"),
        (Seen(0, "a"), Kind.BROKEN, ""),
        (replace(PART, timed_out=True), Kind.UNANSWERED, ""),
        (replace(PART, finished=True), Kind.SHORT, ""),
        (replace(WHOLE, cached=64, own=32), Kind.BORROWED, "64 tokens cached, 32 its own"),
        (replace(WHOLE, cached=32, own=32), Kind.RIGHT, ""),
    ],
)
def test_an_answer_is_held_against_the_reference(seen: Seen, kind: Kind, about: str) -> None:
    judged = judge(seen, KNOWN, range(len(KNOWN)))
    assert (judged.kind, judged.about) == (kind, about)


@pytest.mark.parametrize(
    ("text", "asked", "about"),
    [
        (" clerk", (0, 1), "foreign: words of prompt 1"),
        (" clerk boat and other things", (0, 1), "foreign: words of prompt 1"),
        (" clerk and other things", (0, 1), "corrupt"),
        (" clerk boat", (0,), "corrupt"),
    ],
)
def test_foreign_words_are_those_of_a_prompt_that_was_asked(text: str, asked: tuple[int, ...], about: str) -> None:
    assert whose(text, 0, KNOWN, asked) == about


def made(*answers: Seen, rest: Rest | None = None) -> Exercised:
    return count(answers, KNOWN, rest or Rest(True))


def test_the_verdict_is_the_worst_that_happened() -> None:
    wrong, stopped = replace(WHOLE, text=" clerk"), replace(PART, error=FRAMES)
    assert made(WHOLE, stopped, wrong).verdict == "wrong tokens"
    assert made(WHOLE, stopped, wrong).foreign == 0
    assert made(WHOLE, wrong, Seen(1, "b", 200, finished=True)).foreign == 1
    assert made(WHOLE, stopped).verdict == "contained by page-frames (I1)"
    assert made(WHOLE, rest=Rest(False, 0, "decode: 1 pages missing")).verdict == "not at rest"
    assert made(WHOLE, rest=Rest(True, 1)).verdict == "worker restarted"
    assert made(WHOLE, replace(PART, timed_out=True)).verdict == "no answer"
    assert made(WHOLE, replace(PART, hung_up=True)).verdict == "right"
    assert made(Seen(0, "a", 400, error=TOO_LONG)).verdict == "nothing exercised"
    assert made(replace(PART, hung_up=True)).verdict == "nothing exercised"


def test_a_refusal_is_no_fault_but_not_what_a_healthy_fleet_gives() -> None:
    refused = made(WHOLE, Seen(1, "b", 400, error=TOO_LONG))
    assert refused.verdict == "right"
    assert not refused.all_right
    assert refused.refused == {"context_length_exceeded": 1}
    assert made(WHOLE).all_right


def known_by_kind() -> tuple[Known, ...]:
    return tuple(Known(p.kind, p.text, (n,), "", ()) for n, p in enumerate(prompts()))


def test_the_plan_is_seeded_and_covers_what_faults_need() -> None:
    known = known_by_kind()
    asks = plan(known, 1, long=False)
    assert asks == plan(known, 1, long=False)
    assert asks != plan(known, 2, long=False)
    short = {n for n, entry in enumerate(known) if entry.kind == "short"}
    for tenant in TENANTS:
        assert {ask.number for ask in asks if ask.tenant == tenant} == short
    hang_ups = [ask for ask in asks if ask.after_paces is not None or ask.after_events is not None]
    assert 0.1 < len(hang_ups) / len(asks) < 0.4
    assert all(ask.stream for ask in hang_ups)
    assert any(one.seed == other.seed for one, other in pairwise(asks))
    assert sum(known[ask.number].kind == "long" for ask in plan(known, 1, long=True)) == 2


def test_prompts_come_in_pairs_and_lists_share_no_word() -> None:
    short = [set(spoken(p.text)) for p in prompts() if p.kind == "short"]
    for number, words in enumerate(short):
        for other, theirs in enumerate(short):
            assert bool(words & theirs) == (number // 2 == other // 2)


def test_a_fault_without_a_world_gets_a_small_one() -> None:
    own = recipe(faults.find("stub-transfer"), "off")
    small = recipe(faults.find("hash-collision"), "on")
    assert "--context" not in own.flags
    assert small.flags[small.flags.index("--context") + 1] == "384"
    assert (small.fault, small.guards) == ("hash-collision", "on")
    assert recipe(Fault(NO_FAULT, "", "", "", ()), "on").fault is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_healthy_fleet_is_all_right_and_two_faults_are_not(tmp_path: Path) -> None:
    kept = tmp_path / "reference.json"

    def exercised(fault: Fault, guards: str) -> Exercised:
        return exercise(fault, guards, lambda _: None, kept=kept)

    healthy = exercised(Fault(NO_FAULT, "", "", "", ()), "on")
    assert healthy.all_right, (healthy.told, healthy.examples)
    assert healthy[Kind.RIGHT] > 5 * AT_ONCE

    short = faults.find("short-source")
    assert exercised(short, "off")[Kind.WRONG]
    held = exercised(short, "on")
    assert held.verdict.startswith("contained by handoff-check"), (held.told, held.examples)

    assert exercised(faults.find("page-leak"), "off").verdict == "not at rest"
