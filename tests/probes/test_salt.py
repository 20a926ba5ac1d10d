"""Prefixes are shared inside one key and only there: each way to break it is seen, and what cannot be seen is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pagefence.fleet import Answer, FleetFacts, Limits, NodeFacts
from pagefence.fleet.counters import Window
from pagefence.fleet.engines.adapter import Counters
from pagefence.fleet.facts import Figure
from pagefence.probes import Config, Examination, Kind, ProbeResult
from pagefence.probes.plan import make_plan
from pagefence.probes.prompt import Prompt
from pagefence.probes.run import Outcome
from pagefence.probes.salt.judge import judge
from pagefence.probes.salt.sharing import Sharing, field_for
from pagefence.probes.salt.shots import NAME, Arm, length
from pagefence.probes.salt.told import Counted, counted
from pagefence.probes.seen import Seen
from pagefence.probes.shot import Plan, Shot
from pagefence.verdict import decide
from tests.probes.test_against_toys import examined
from tests.probes.toy import Toy

ALONE = Config((NAME,), seed=5)
LIMITS = Limits(longest=2000, pool=8192, context=2048, cover=8192, advertised=2048, pools=(8192,), page=64)


def result_of(examination: Examination) -> ProbeResult:
    return next(r for r in examination.results() if r.name == NAME)


def salt(toy: Toy, config: Config = ALONE) -> ProbeResult:
    return result_of(examined(toy, config))


def kinds(result: ProbeResult) -> set[tuple[Kind, str, str | None]]:
    return {(e.kind, e.check, e.rule) for e in result.evidence}


def text_of(result: ProbeResult, check: str, where: str) -> str:
    return next(c.text for c in result.checks if (c.id, c.where) == (check, where))


# --- against a fleet over HTTP ------------------------------------------------------------------------------------


def test_a_sound_fleet_is_clean_with_every_control_held_in_both_places() -> None:
    result = salt(Toy())
    verdict = decide([result])
    assert (verdict.name, verdict.exit_code) == ("CLEAN", 0)
    assert result.controls[0] == result.controls[1] > 0
    assert text_of(result, "again", "usage").startswith("2 of 2")
    assert text_of(result, "other-key", "counters").startswith("0 tokens of 2 prompts")


def test_a_cache_without_the_key_is_a_violation_that_can_be_repeated() -> None:
    result = salt(Toy("unsalted"))
    assert kinds(result) == {(Kind.FAIL, "other-key", "I7")}
    finding = result.evidence[0]
    assert finding.details["place"] == "usage"
    assert str(finding.details["planted_in"]).startswith("salt-")
    assert "only another tenant had sent before" in finding.what


def test_it_is_seen_by_counters_alone_where_usage_tells_nothing() -> None:
    sound, broken = salt(Toy(tells_cached=False)), salt(Toy("unsalted", tells_cached=False))
    assert (sound.evidence, sound.controls) == ((), (2, 2))
    assert kinds(broken) == {(Kind.FAIL, "other-key", "I7")}
    assert broken.evidence[0].details["place"] == "counters"


def test_it_is_seen_by_usage_alone_where_no_node_counts() -> None:
    assert salt(Toy(counts=False)).evidence == ()
    assert kinds(salt(Toy("unsalted", counts=False))) == {(Kind.FAIL, "other-key", "I7")}


def test_what_is_not_visible_is_not_proven() -> None:
    result = salt(Toy("unsalted", tells_cached=False, counts=False))
    assert kinds(result) == {(Kind.INCONCLUSIVE, "control", None)}
    assert "what is not visible is not proven" in result.evidence[0].what


def test_counters_that_others_move_prove_nothing() -> None:
    result = salt(Toy(tells_cached=False, neighbours=1))
    assert kinds(result) == {(Kind.INCONCLUSIVE, "control", None)}
    assert any("not ours alone" in c.text for c in result.checks)


def test_where_nothing_is_cached_nothing_is_shared_but_the_probe_alone_has_shown_nothing() -> None:
    assert kinds(salt(Toy(caches=False))) == {(Kind.INCONCLUSIVE, "control", None)}
    both = Config(("boundary", NAME), seed=5)
    beside = salt(Toy(caches=False), both)
    assert (beside.evidence, beside.controls) == ((), (0, 2))
    assert kinds(salt(Toy(caches=False, counts=False), both)) == {(Kind.INCONCLUSIVE, "control", None)}


def test_a_page_that_is_found_after_another_beginning_is_a_violation() -> None:
    """Keys that do not form a chain: the same words after another nonce are believed."""
    assert (Kind.FAIL, "twin", "I1") in kinds(salt(Toy("unchained")))


def test_a_cached_page_that_holds_something_else_is_corrupt() -> None:
    assert kinds(salt(Toy("bad-cache"))) == {(Kind.CORRUPT, "own-recall", "I1")}


def test_a_field_tells_tenants_apart_where_keys_do_not() -> None:
    """The toy that ignores keys for its cache honours `cache_salt`: without it prefixes are shared, with it not."""
    with_field = replace(ALONE, sharing=Sharing("cache_salt"))
    assert salt(Toy("keyless")).evidence
    assert salt(Toy("keyless"), with_field).evidence == ()


def test_a_context_of_less_than_two_pages_is_said_and_not_passed_over() -> None:
    result = salt(Toy(context=70, prefill_pool=96, decode_pool=96))
    assert kinds(result) == {(Kind.INCONCLUSIVE, "control", None)}
    assert "several cache pages" in result.evidence[0].what


# --- counters -----------------------------------------------------------------------------------------------------


def counts(decode: tuple[Counters, Counters], arm: Arm = Arm.AGAIN) -> Counted:
    """One wave of a pair whose prefill found nothing in its cache."""
    plan = planned()
    shots = tuple(shot for shot in plan.shots if shot.arm == arm)
    sent = sum(shot.tokens for shot in shots)
    before = {"p": Counters(0, 0, 0), "d": decode[0]}
    after = {"p": Counters(len(shots), sent, 0), "d": decode[1]}
    window = Window("wave", tuple(shot.id for shot in shots), before, after, ("p",), ("d",))
    answers = [Answer(200, "x", "length", shot.tokens, 1) for shot in shots]
    told = [Outcome(s, Prompt(s.id, s.tokens, True), a, {}) for s, a in zip(shots, answers, strict=True)]
    return counted(Seen(plan, told, LIMITS, facts_of("openai"), windows=(window,)), arm)


def test_a_decode_node_that_tells_no_cached_tokens_is_not_one_that_found_none() -> None:
    many = len([shot for shot in planned().shots if shot.arm == Arm.AGAIN])
    silent = counts((Counters(0), Counters(many)))
    assert (silent.tokens, silent.hit) == (None, False)
    assert silent.doubt is not None
    assert counts((Counters(0, cached=0), Counters(many, cached=0))).tokens == 0
    assert counts((Counters(0, cached=0), Counters(many, cached=256 * many))).hit


def test_counters_tell_no_more_hits_than_their_tokens_can_come_from() -> None:
    many = len([shot for shot in planned().shots if shot.arm == Arm.AGAIN])
    for hits in range(many + 1):
        assert counts((Counters(0, cached=0), Counters(many, cached=256 * hits))).hits == hits


# --- the plan -----------------------------------------------------------------------------------------------------


def planned(**changes: Any) -> Plan:
    return make_plan(LIMITS, 3, (NAME,), sharing=Sharing(**changes))


def test_the_arms_of_a_group_ask_the_same_prompt_and_a_twin_differs_in_its_nonce_alone() -> None:
    plan = planned()
    for first in (s for s in plan.shots if s.arm == Arm.FIRST):
        group = {s.arm: s for s in plan.shots if s.sentinel.owner == first.sentinel.owner}
        assert set(group) == {Arm.FIRST, Arm.AGAIN, Arm.OTHER, Arm.TWIN}
        asked = {(s.nonce, s.sentinel.words, s.tokens, s.manner) for a, s in group.items() if a is not Arm.TWIN}
        assert len(asked) == 1
        assert group[Arm.TWIN].nonce != first.nonce
        assert [group[a].tenant == first.tenant for a in (Arm.AGAIN, Arm.OTHER, Arm.TWIN)] == [True, False, True]
        assert group[Arm.AGAIN].stream != first.stream
    assert {s.tenant for s in plan.shots if s.arm == Arm.FIRST} == {"a", "b"}


def test_prompts_are_several_pages_long_whatever_the_page() -> None:
    for page in (1, 16, 64, 128):
        tokens = length(replace(LIMITS, page=page))
        assert tokens is not None
        assert tokens >= 4 * page
    assert length(replace(LIMITS, page=1024)) is None


def test_the_field_has_one_value_for_each_tenant() -> None:
    salts = {(s.tenant, s.extra) for s in planned(field="cache_salt").shots}
    assert len(salts) == 2
    assert len({extra for _, extra in salts}) == 2


def test_timed_prompts_fit_the_pool_and_each_arm_has_its_hundred() -> None:
    plan = planned(timing=True)
    for arm in (Arm.HIT, Arm.CROSS, Arm.FRESH):
        assert sum(s.arm == arm for s in plan.shots) == 100
    for wave in plan.waves:
        assert wave.counted or sum(s.tokens for s in wave.shots) <= LIMITS.pool


@pytest.mark.parametrize(
    ("engine", "asked", "field"),
    [
        ("vllm", None, "cache_salt"),
        ("sglang", None, "cache_salt"),
        ("pagefence", None, None),
        ("vllm", "none", None),
        ("pagefence", "extra_key", "extra_key"),
    ],
)
def test_the_field_is_chosen_by_the_engine_that_is_asked(engine: str, asked: str | None, field: str | None) -> None:
    assert field_for(facts_of(engine), asked) == field


def facts_of(engine: str) -> FleetFacts:
    node = NodeFacts("single", "http://n", engine, "1")
    return FleetFacts("http://n", "m", Figure(2048, ""), (node,))


# --- the judgement of words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "kind"), [(0, None), (1, Kind.INCONCLUSIVE), (2, Kind.CORRUPT)])
def test_words_that_only_a_cache_loses_are_a_violation_when_it_happens_twice(lost: int, kind: Kind | None) -> None:
    plan = planned()
    again = [shot.id for shot in plan.shots if shot.arm == Arm.AGAIN][:lost]

    def outcome(shot: Shot) -> Outcome:
        text = "lorem ipsum dolor" if shot.id in again else str(shot.sentinel)
        cached = 64 if shot.arm == Arm.AGAIN else 0
        answer = Answer(200, text, "length", shot.tokens, 24, cached)
        return Outcome(shot, Prompt(shot.sentinel.owner, shot.tokens, True), answer, {})

    result = judge(Seen(plan, [outcome(shot) for shot in plan.shots], LIMITS, facts_of("openai")))
    assert {e.kind for e in result.evidence if e.check == "own-recall"} == ({kind} if kind else set())


# --- the judgement of time ----------------------------------------------------------------------------------------


def timed(hit_s: float, other_s: float, share: float = 1.0, each: int = 100) -> ProbeResult:
    """Times as a fleet would show them that needs 0.2 s for a new prompt. `share`: of the replicas with the prompt.
    `each`: answers of each arm that had a time."""
    plan = planned(timing=True)

    def outcome(shot: Shot, i: int) -> Outcome:
        base = {Arm.HIT: hit_s, Arm.CROSS: other_s if i % 10 < share * 10 else 0.2}.get(Arm(shot.arm), 0.2)
        ttft = base * (1 + 0.1 * ((i * 7919) % 101) / 101)
        answer = Answer(200, "x", "length", shot.tokens, 1, None, ttft_s=ttft)
        return Outcome(shot, Prompt(shot.id, shot.tokens, True), answer, {})

    outcomes = [outcome(shot, i) for i, shot in enumerate(plan.shots)]
    for arm in (Arm.HIT, Arm.CROSS, Arm.FRESH):
        late = [i for i, o in enumerate(outcomes) if o.shot.arm == arm][each:]
        for i in late:
            outcomes[i] = replace(outcomes[i], answer=replace(outcomes[i].answer, ttft_s=None))
    return judge(Seen(plan, outcomes, LIMITS, facts_of("openai")))


def test_time_tells_what_nothing_else_does() -> None:
    assert kinds(timed(0.05, 0.05)) == {(Kind.FAIL, "other-key", "I7")}
    assert timed(0.05, 0.2).evidence == ()


def test_fewer_times_show_only_a_larger_distance_and_say_so() -> None:
    assert "100 times of each show a distance of 0.42" in text_of(timed(0.05, 0.2), "time", "first token")
    assert "30 times of each show a distance of 0.77" in text_of(timed(0.05, 0.2, each=30), "time", "first token")


def test_time_tells_it_too_when_only_half_of_the_replicas_hold_the_cache() -> None:
    assert kinds(timed(0.05, 0.05, share=0.5)) == {(Kind.FAIL, "other-key", "I7")}


def test_without_a_visible_hit_time_says_nothing() -> None:
    result = timed(0.2, 0.2)
    assert {k for k, _, _ in kinds(result)} == {Kind.INCONCLUSIVE}
    assert any("time shows nothing here" in e.what for e in result.evidence)


# --- a seed that was used before ----------------------------------------------------------------------------------


def test_hits_after_a_repeated_seed_are_a_doubt_and_no_violation() -> None:
    result = salt(Toy("unsalted"), replace(ALONE, fresh=False))
    assert {e.kind for e in result.evidence} == {Kind.INCONCLUSIVE}
