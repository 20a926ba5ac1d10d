"""What is made of a race, from fabricated answers: also what comes when an odd one is asked again alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pagefence.cli import app
from pagefence.fleet import Answer, Limits
from pagefence.probes import Kind, ProbeResult
from pagefence.probes.prompt import Prompt
from pagefence.probes.race.course import expected
from pagefence.probes.race.drive import Entry, RaceLog
from pagefence.probes.race.judge import judge
from pagefence.probes.race.plan import TELLING, Profile, plan
from pagefence.probes.run import Outcome
from pagefence.probes.shot import Shot
from pagefence.run import run
from tests.probes.racing import Racing, racing_application
from tests.probes.toy import KEYS, served

LIMITS = Limits(longest=500, pool=640, context=512, cover=640, advertised=512, pools=(640,), page=16)


def right(shot: Shot) -> Answer:
    return Answer(200, expected(shot.sentinel, 200), "length", shot.tokens, shot.max_tokens)


def outcome(shot: Shot, answer: Answer | None = None) -> Outcome:
    return Outcome(shot, Prompt(shot.id, shot.tokens, False), answer or right(shot), {})


def race(answers: dict[int, Answer], replays: dict[int, Answer]) -> ProbeResult:
    """A race in which all is right but some answers of the crowd, by their number among those that can show."""
    made = plan(LIMITS, 7, Profile(probes=60, tokens=40_000))
    log = RaceLog(made, complete=True)
    log.before = [outcome(shot) for shot in made.controls]
    log.after = [outcome(shot) for shot in made.after]
    log.long, log.long_after = outcome(made.long), outcome(made.long_after)
    shots = crowd()
    for i, shot in enumerate(shots):
        log.crowd.append(Entry(outcome(shot, answers.get(i)), float(i), i + 1.0))
    log.replays = {shots[i].id: answer for i, answer in replays.items()}
    return judge(log)


def crowd() -> list[Shot]:
    made = plan(LIMITS, 7, Profile(probes=60, tokens=40_000))
    return [s for s in made.shots if s.max_tokens >= TELLING and s.hang_up is None and not s.id.endswith("-again")]


def cut(shot: Shot) -> Answer:
    return replace(right(shot), text=shot.sentinel.words[0], completion_tokens=1, finish_reason="stop")


def test_all_is_well_where_all_is_right() -> None:
    result = race({}, {})
    assert result.evidence == ()
    assert result.shown == len(crowd())


def test_words_of_another_in_what_is_asked_again_alone_are_a_leak() -> None:
    first, other = crowd()[0], crowd()[1]
    foreign = replace(right(first), text=f"lorem {other.sentinel} {other.sentinel}")
    lost = replace(right(first), text="lorem ipsum dolor sit")
    assert Kind.LEAK in {e.kind for e in race({0: lost}, {0: foreign}).evidence}


def test_an_answer_that_was_cut_short_and_not_asked_again_is_a_doubt_and_no_answer_that_could_have_shown() -> None:
    shots = crowd()
    result = race({0: cut(shots[0])}, {})
    assert {(e.kind, e.check) for e in result.evidence} == {(Kind.INCONCLUSIVE, "replay")}
    assert result.shown == len(shots) - 1
    assert [e.check for e in race({0: cut(shots[0])}, {0: right(shots[0])}).evidence] == ["killed"]


def test_a_leak_of_a_race_is_reported_with_its_planted_words_and_can_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEFENCE_KEY_A", KEYS[0])
    monkeypatch.setenv("PAGEFENCE_KEY_B", KEYS[1])
    world, file = Racing("crosses"), tmp_path / "r.json"
    with served(racing_application(world)) as url:
        world.toy.url = url
        flags = ["--yes", "--seed", "5", "--probes", "60", "--at-once", "12", "--json", str(file)]
        assert run(app, ["race", url, *flags]) == 1
    document = json.loads(file.read_text())
    leak = next(e for e in document["evidence"] if e["kind"] == "LEAK")
    assert all(f"«{word}»" in leak["details"]["marked"] for word in leak["details"]["planted_words"])
    assert leak["repeat"]["read"].startswith("curl ")
    assert (tmp_path / "r.json.evidence" / "findings.json").exists()
