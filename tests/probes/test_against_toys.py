"""Each probe sees what it is for, against a real HTTP server with exactly that bug, and nothing against a sound one."""

from __future__ import annotations

import asyncio

import pytest

from pagefence.fleet import Fleet, Keys, Target
from pagefence.probes import Config, Evidence, Examination, Kind, examine
from pagefence.probes.shot import Purpose
from pagefence.verdict import Verdict, decide
from tests.probes.toy import KEYS, Toy, running


def examined(toy: Toy, config: Config | None = None, timeout_s: float = 10.0) -> Examination:
    async def ask() -> Examination:
        examination = Examination(config or Config(seed=7))
        async with Fleet(Target(toy.url), Keys(*KEYS), timeout_s) as fleet:
            await examine(fleet, examination, lambda what, done, total: None, lambda line: None)
        return examination

    with running(toy):
        return asyncio.run(ask())


def look_at(toy: Toy, config: Config | None = None, timeout_s: float = 10.0) -> tuple[Verdict, list[Evidence]]:
    results = examined(toy, config, timeout_s).results()
    return decide(results), [e for r in results for e in r.evidence]


def test_a_sound_fleet_is_clean_with_its_bound_and_all_controls() -> None:
    verdict, evidence = look_at(Toy())
    assert (verdict.name, verdict.exit_code, evidence) == ("CLEAN", 0, [])
    assert verdict.probes >= 15
    assert verdict.controls[0] == verdict.controls[1] >= 15
    assert "95 % upper bound" in verdict.sentence


@pytest.mark.parametrize("seed", range(5))
def test_stale_pages_behind_a_stub_transfer_are_a_leak_and_corrupt(seed: int) -> None:
    toy = Toy("stub", context=512, prefill_pool=256, decode_pool=1024)
    verdict, evidence = look_at(toy, Config(seed=seed))
    assert verdict.name == "LEAK"
    assert verdict.headline == "LEAK and CORRUPT"
    assert verdict.exit_code == 1
    leak = next(e for e in evidence if e.kind is Kind.LEAK)
    assert leak.details["planted_by"] == "tenant a"
    assert leak.details["read_by"] == "tenant b"
    assert leak.details["status"] == 200
    words = leak.details["planted_words"]
    assert isinstance(words, list)
    assert all(f"«{word}»" in str(leak.details["marked"]) for word in words)


def test_the_canary_alone_plants_for_itself() -> None:
    toy = Toy("stub", context=512, prefill_pool=256, decode_pool=1024)
    assert look_at(toy, Config(("canary",), seed=3))[0].name == "LEAK"


def test_truncated_prompts_are_corrupt() -> None:
    verdict, evidence = look_at(Toy("truncates"))
    assert verdict.name == "CORRUPT"
    assert any("made from 100" in e.what for e in evidence)


def test_lost_own_recall_is_corrupt_while_the_controls_hold() -> None:
    verdict, evidence = look_at(Toy("forgets-long"))
    assert verdict.name == "CORRUPT"
    assert any(e.check == "own-recall" and "own recall lost" in e.what for e in evidence)


def test_without_a_positive_control_nothing_is_clean() -> None:
    verdict, evidence = look_at(Toy("forgets"), Config(("canary",), seed=1))
    assert (verdict.name, verdict.exit_code) == ("INCONCLUSIVE", 3)
    assert any("positive control 0/8" in e.what for e in evidence)


def test_a_guard_that_contained_a_fault_is_fail_with_its_rule_and_name() -> None:
    verdict, evidence = look_at(Toy("guarded", context=512, prefill_pool=256, decode_pool=1024))
    assert (verdict.name, verdict.exit_code) == ("FAIL", 1)
    assert {(e.rule, e.guard) for e in evidence if e.guard} == {("I4", "handoff-check")}
    assert not any(e.kind in (Kind.LEAK, Kind.CORRUPT) for e in evidence)


def test_an_over_length_prompt_that_is_answered_is_corrupt_even_if_the_words_are_right() -> None:
    verdict, evidence = look_at(Toy("accepts", 512, 256, 1024), Config(("boundary",), seed=1))
    assert verdict.name == "CORRUPT"
    assert any("answered with HTTP 200" in e.what for e in evidence)


def test_an_error_inside_a_stream_that_had_begun_is_a_violation() -> None:
    verdict, evidence = look_at(Toy("late-error"), Config(("boundary",), seed=1))
    assert verdict.name == "FAIL"
    assert all(e.details["stream"] for e in evidence)


def test_another_error_than_the_original_one_is_a_violation() -> None:
    assert look_at(Toy("bad-error"), Config(("boundary",), seed=1))[0].name == "FAIL"


def test_streams_that_break_off_are_inconclusive() -> None:
    verdict, evidence = look_at(Toy("dies"))
    assert verdict.name == "INCONCLUSIVE"
    assert any("broke off" in e.what for e in evidence)


def test_a_fleet_that_does_not_count_tokens_leaves_the_borders_open() -> None:
    verdict, evidence = look_at(Toy(count_tokens=False))
    assert verdict.name == "INCONCLUSIVE"
    assert {e.kind for e in evidence} == {Kind.INCONCLUSIVE}


def test_the_gate_sends_no_prompt_and_fails_a_pool_below_the_context() -> None:
    toy = Toy(context=512, prefill_pool=256, decode_pool=1024, ready=False)
    verdict, evidence = look_at(toy, Config(("gate",)))
    assert (verdict.name, verdict.exit_code) == ("FAIL", 1)
    assert toy.calls == []
    failed = [e for e in evidence if e.kind is Kind.FAIL and e.check == "pool"]
    assert len(failed) == 1
    assert "prefill" in failed[0].where
    assert any("not ready" in e.what for e in evidence)


def test_a_fleet_that_is_not_ready_is_asked_once_and_then_left_alone() -> None:
    toy = Toy(ready=False)
    verdict, _ = look_at(toy)
    assert verdict.name == "INCONCLUSIVE"
    assert len(toy.calls) == 1


def slipping(readers: int, spare: bool = False, sampled: bool = False) -> tuple[Verdict, list[Evidence]]:
    """The verdict on a sound fleet whose model slips over the words of this many legal readers, greedy or sampled."""
    config = Config(("canary",), seed=1)
    plan = examined(Toy(), config).log.plan
    assert plan is not None
    legal = [shot for shot in plan.shots if shot.purpose is Purpose.READ]
    shots = [shot for shot in legal if (shot.temperature > 0) == sampled][-readers:]
    words = {word for shot in shots for word in shot.sentinel.words}
    if spare:
        words |= {word for shot in shots if shot.spare for word in shot.spare.words}
    return look_at(Toy(slips=frozenset(words)), config)


def test_a_model_that_slips_over_some_words_and_holds_others_is_not_a_fault_of_the_fleet() -> None:
    verdict, evidence = slipping(1)
    assert (verdict.name, evidence) == ("CLEAN", [])


def test_slips_that_come_often_are_a_doubt() -> None:
    verdict, evidence = slipping(3)
    assert (verdict.name, verdict.exit_code) == ("INCONCLUSIVE", 3)
    assert "3 of 11 legal, greedy readers" in evidence[0].what


def test_slips_of_sampled_answers_are_none_because_an_honest_model_leaves_its_words_so() -> None:
    verdict, evidence = slipping(3, sampled=True)
    assert (verdict.name, evidence) == ("CLEAN", [])


def test_a_reader_that_loses_any_words_is_corrupt() -> None:
    verdict, evidence = slipping(1, spare=True)
    assert (verdict.name, verdict.exit_code) == ("CORRUPT", 1)
    assert "lorem ipsum" in str(evidence[0].details["answer"])
