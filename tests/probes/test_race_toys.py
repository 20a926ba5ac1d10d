"""A race finds what only a crowd shows, over real HTTP, and finds nothing in a sound fleet."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import cache

import pytest

from pagefence.fleet import Fleet, Keys, Target
from pagefence.probes import Config, Evidence, Examination, Kind, ProbeResult, examine
from pagefence.probes.race import drive
from pagefence.probes.race.plan import Profile
from pagefence.verdict import decide
from tests.probes.racing import Racing, nonce_of, racing_application
from tests.probes.toy import KEYS, served

PROFILE = Profile(probes=96, tokens=60_000, seconds=60, at_once=12)


def raced(world: Racing, profile: Profile = PROFILE, timeout_s: float = 10.0, seed: int = 5) -> Examination:
    async def ask(url: str) -> Examination:
        examination = Examination(Config(("race",), seed=seed, race=profile))
        async with Fleet(Target(url), Keys(*KEYS), timeout_s) as fleet:
            await examine(fleet, examination, lambda what, done, total: None, lambda line: None)
        return examination

    with served(racing_application(world)) as url:
        world.toy.url = url
        return asyncio.run(ask(url))


def judged(bug: str, profile: Profile = PROFILE, timeout_s: float = 10.0) -> tuple[ProbeResult, list[Evidence]]:
    (result,) = raced(Racing(bug), profile, timeout_s).results()
    return result, list(result.evidence)


@cache
def sound() -> tuple[Examination, Racing]:
    world = Racing(busy=11)
    return raced(world), world


def test_a_sound_fleet_is_clean_also_when_it_tells_clients_to_wait() -> None:
    examination, world = sound()
    (result,) = examination.results()
    verdict = decide([result])
    assert (verdict.name, result.evidence) == ("CLEAN", ())
    assert result.shown > 30
    assert result.controls == (16, 16)
    assert world.most >= 3, "requests ran beside each other"
    assert examination.race is not None
    assert sum(e.waits for e in examination.race.crowd) > 5


def test_answers_that_were_left_are_no_answers_that_could_have_shown() -> None:
    examination, _ = sound()
    assert examination.race is not None
    crowd = [e.outcome for e in examination.race.crowd]
    left = [o for o in crowd if o.answer.hung_up]
    (result,) = examination.results()
    assert len(crowd) == 96
    assert {bool(o.answer.begun) for o in left} == {True, False}
    assert result.shown == sum(o.answer.answered and o.shot.max_tokens >= 12 for o in crowd)
    assert result.shown + len(left) < len(crowd)
    assert not any(o.answer.answered for o in left)


def test_every_prompt_begins_with_a_nonce_of_its_own_but_what_is_asked_again() -> None:
    examination, world = sound()
    assert examination.race is not None
    again = {o.shot.nonce for o in examination.race.outcomes if o.shot.id.endswith("-again")}
    times = Counter(o.shot.nonce for o in examination.race.outcomes)
    assert again
    assert all(n == 1 or (n == 2 and nonce in again) for nonce, n in times.items())
    reached = Counter(nonce_of(body) for body in world.asked if body["prompt"] != "Hello")
    assert len(set(reached) & set(times)) > 80, "most left after the fleet had heard of them"


def test_a_cancelled_stream_that_goes_to_the_next_one_is_a_leak_between_streams() -> None:
    _, evidence = judged("swaps")
    leaks = [e for e in evidence if e.kind is Kind.LEAK]
    assert leaks
    assert "I10" in {e.rule for e in leaks}
    assert all("«" in str(e.details["marked"]) for e in leaks)


def test_an_answer_made_of_another_requests_prompt_is_a_leak() -> None:
    _, evidence = judged("crosses")
    assert {(e.kind, e.rule) for e in evidence if e.kind is Kind.LEAK} == {(Kind.LEAK, "I1")}


def test_a_hang_up_that_ends_another_request_is_a_violation() -> None:
    _, evidence = judged("kills")
    killed = [e for e in evidence if e.check == "killed"]
    assert [e for e in killed if e.kind is Kind.FAIL and e.rule in ("I5", "I9")]
    assert not any(e.kind is Kind.LEAK for e in evidence)


def test_pages_that_hang_ups_lose_are_missed_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "_REST_S", 0.1)
    monkeypatch.setattr(drive, "_WAITS", 2)
    _, evidence = judged("loses-pages")
    assert [e.rule for e in evidence if e.check == "rest"] == ["I6"]


def test_doubled_tokens_are_out_of_order() -> None:
    _, evidence = judged("doubles")
    assert {(e.kind, e.check, e.rule) for e in evidence} == {(Kind.CORRUPT, "stream-order", "I10")}


def test_first_tokens_of_others_are_no_accident() -> None:
    _, evidence = judged("first-token")
    assert [(e.kind, e.rule) for e in evidence if e.check == "crossed"] == [(Kind.CORRUPT, "I10")]


def test_a_model_that_slips_alone_as_well_is_no_finding_and_one_that_cannot_copy_is_inconclusive() -> None:
    result, evidence = judged("forgets")
    assert {e.kind for e in evidence} == {Kind.INCONCLUSIVE}
    assert result.shown == 0


def test_a_cap_on_time_ends_the_crowd_and_says_so() -> None:
    result, evidence = judged("", Profile(probes=4000, tokens=10**6, seconds=0.3, at_once=8))
    assert not evidence
    assert "stopped: 0.3 s were over" in next(c.text for c in result.checks if c.id == "crowd")


@pytest.mark.parametrize("tokens", [5_000, 20_000])
def test_a_cap_on_tokens_is_kept_by_the_plan(tokens: int) -> None:
    examination = raced(Racing(), Profile(probes=10_000, tokens=tokens, seconds=60, at_once=8))
    assert examination.race is not None
    assert sum(examination.race.plan.tokens) <= tokens
    assert examination.log.prompt_tokens + examination.log.new_tokens <= tokens


def test_an_interrupted_race_reports_what_it_has() -> None:
    async def ask(url: str) -> Examination:
        examination = Examination(Config(("race",), seed=5, race=PROFILE))
        enough = asyncio.Event()

        def progress(what: str, done: int, total: int) -> None:
            if total == PROFILE.probes and done >= 30:
                enough.set()

        async with Fleet(Target(url), Keys(*KEYS), 10.0) as fleet:
            task = asyncio.create_task(examine(fleet, examination, progress, lambda line: None))
            await enough.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return examination

    world = Racing()
    with served(racing_application(world)) as url:
        world.toy.url = url
        examination = asyncio.run(ask(url))
    (result,) = examination.results()
    assert result.shown > 5
    assert not result.finished
    assert decide([result], interrupted=True).exit_code == 130
