"""Tokens add up, or it is said which do not: in an answer, between its two forms, between prefill and decode."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagefence.fleet import Answer, FleetFacts, Limits
from pagefence.fleet.counters import Window
from pagefence.fleet.engines.adapter import Counters
from pagefence.fleet.facts import Figure
from pagefence.probes import Config, Kind, ProbeResult
from pagefence.probes.conservation.counts import slips
from pagefence.probes.conservation.judge import NAME, judge
from pagefence.probes.prompt import Prompt
from pagefence.probes.run import Outcome
from pagefence.probes.seen import Seen
from pagefence.probes.shot import Maker, Plan, Purpose, Wave
from pagefence.probes.traffic import traffic
from tests.probes.test_against_toys import examined
from tests.probes.toy import Toy

LIMITS = Limits(longest=500, pool=640, context=512, cover=640, advertised=512, pools=(640,), page=16)
SENT = Prompt("one two", 100, True)
RIGHT = Answer(200, "some words", "length", 100, 8, 0, 108)
INCIDENT = {"context": 512, "prefill_pool": 256, "decode_pool": 1024}


def judged(toy: Toy, probes: tuple[str, ...] = ("boundary", NAME)) -> ProbeResult:
    return next(r for r in examined(toy, Config(probes, seed=2)).results() if r.name == NAME)


def found(result: ProbeResult) -> set[tuple[Kind, str, str | None]]:
    return {(e.kind, e.check, e.rule) for e in result.evidence}


# --- one answer ---------------------------------------------------------------------------------------------------


def wrong(answer: Answer, prompt: Prompt = SENT, limits: Limits = LIMITS) -> set[str]:
    return {count for count, _, _ in slips(answer, prompt, 8, limits)}


def test_counts_that_add_up_are_no_slip() -> None:
    assert wrong(RIGHT) == set()
    assert wrong(replace(RIGHT, total_tokens=None, cached_tokens=None, completion_tokens=None)) == set()
    assert wrong(replace(RIGHT, finish_reason="stop", completion_tokens=3, total_tokens=103)) == set()


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({"prompt_tokens": 1, "total_tokens": 9}, "prompt"),
        ({"cached_tokens": 101}, "cached"),
        ({"total_tokens": 107}, "total"),
        ({"completion_tokens": 9, "total_tokens": 109}, "completion"),
        ({"completion_tokens": 3, "total_tokens": 103}, "completion"),
        ({"completion_tokens": 0, "total_tokens": 100, "finish_reason": "stop"}, "text"),
        ({"text": "word " * 40}, "text"),
    ],
)
def test_each_count_that_cannot_be_right_is_a_slip(change: dict[str, object], count: str) -> None:
    assert wrong(replace(RIGHT, **change)) == {count}  # type: ignore[arg-type]


def test_an_estimated_length_is_not_held_against_the_report() -> None:
    assert wrong(replace(RIGHT, prompt_tokens=90, total_tokens=98), replace(SENT, counted=False)) == set()


def test_an_answer_that_the_context_cuts_is_short_for_its_length() -> None:
    cut = replace(RIGHT, completion_tokens=2, total_tokens=102)
    assert wrong(cut) == {"completion"}
    assert wrong(cut, limits=replace(LIMITS, context=102)) == set()


# --- a run --------------------------------------------------------------------------------------------------------


def test_a_sound_fleet_conserves_and_says_how_much_was_compared() -> None:
    result = judged(Toy())
    assert result.evidence == ()
    row = next(c for c in result.checks if c.id == "hand-off")
    assert row.text.startswith("prefill's computed + cached = decode's prompt tokens: ")


def test_a_stub_transfer_shows_in_the_counters_of_the_two_legs() -> None:
    """The incident: prefill says 1, decode says all of it, and the answer's own report looks right."""
    result = judged(Toy("stub", **INCIDENT))  # type: ignore[arg-type]
    assert found(result) == {(Kind.CORRUPT, "hand-off", "I6")}
    told = result.evidence[0].details
    assert isinstance(told["prefill_tokens"], int)
    assert isinstance(told["decode_tokens"], int)
    assert told["prefill_tokens"] < told["decode_tokens"]


def test_counters_that_others_move_are_not_compared() -> None:
    result = judged(Toy("stub", neighbours=1, **INCIDENT))  # type: ignore[arg-type]
    assert found(result) == set()
    assert "not ours alone" in next(c for c in result.checks if c.id == "hand-off").text


def test_a_truncated_prompt_shows_in_its_report() -> None:
    result = judged(Toy("truncates"))
    assert any(c.id == "prompt" and c.kind is Kind.CORRUPT for c in result.checks)


def test_a_truncated_prompt_is_reported_where_no_other_probe_compares() -> None:
    assert (Kind.CORRUPT, "prompt", "I4") in found(judged(Toy("truncates"), ("salt", NAME)))


@pytest.mark.parametrize(
    ("usage", "check"),
    [
        ({"total_tokens": 7}, "total"),
        ({"completion_tokens": 99}, "completion"),
        ({"completion_tokens": 0}, "text"),
    ],
)
def test_a_fleet_that_reports_other_counts_is_corrupt(usage: dict[str, int], check: str) -> None:
    assert (Kind.CORRUPT, check, "I6") in found(judged(Toy(usage=usage)))


def test_the_same_prompt_in_both_forms_has_one_length() -> None:
    assert (Kind.CORRUPT, "forms", "I6") in found(judged(Toy("stream-counts"), ("salt", NAME)))


def test_answers_without_usage_are_a_doubt() -> None:
    assert found(judged(Toy("no-usage"))) == {(Kind.INCONCLUSIVE, "usage", "I6")}


def of(purpose: Purpose, probe: str, answer: Answer) -> ProbeResult:
    """One shot of another probe and what came back."""
    shot = Maker(1).shot(probe, purpose, "b", 100, 8)
    plan = Plan((Wave("one", (shot,), 0),))
    return judge(Seen(plan, [Outcome(shot, SENT, answer, {})], LIMITS, facts_of()))


def facts_of() -> FleetFacts:
    return FleetFacts("http://n", "m", Figure(512, "told"), ())


def test_what_no_other_probe_says_of_its_own_answer_is_said_here() -> None:
    other = replace(RIGHT, prompt_tokens=1, total_tokens=9)
    assert (Kind.CORRUPT, "prompt", "I4") in found(of(Purpose.ALIVE, "boundary", other))
    assert (Kind.CORRUPT, "prompt", "I4") not in found(of(Purpose.READ, "canary", other))


def test_a_count_that_nobody_tells_decides_nothing() -> None:
    result = of(Purpose.READ, "canary", replace(RIGHT, cached_tokens=None))
    undecided = {c.id for c in result.checks if c.undecided}
    assert {"cached", "hand-off", "forms"} <= undecided
    assert "prompt" not in undecided


# --- a window -----------------------------------------------------------------------------------------------------


def window(entry: tuple[Counters, Counters], exit_: tuple[Counters, Counters] | None = None) -> Window:
    before, after = {"p": entry[0]}, {"p": entry[1]}
    if exit_ is not None:
        before["d"], after["d"] = exit_
    return Window("wave", ("one",), before, after, ("p",), ("d",) if exit_ else ())


def one(answer: Answer = RIGHT) -> list[Outcome]:
    shot = replace(Maker(1).shot("canary", Purpose.READ, "a", 100, 8), id="one")
    return [Outcome(shot, SENT, answer, {})]


def test_a_window_is_conclusive_when_every_side_counted_exactly_ours() -> None:
    told = window((Counters(5, 10), Counters(6, 110)), (Counters(0, 0), Counters(1, 100)))
    assert traffic(told, one()).doubt is None
    assert traffic(window((Counters(5, 10), Counters(7, 110))), one()).doubt is not None
    assert traffic(window((Counters(5, 10), Counters(6, 110)), (Counters(0, 0), Counters(2, 100))), one()).doubt


def test_where_no_request_is_counted_the_tokens_have_to_be_ours() -> None:
    assert traffic(window((Counters(None, 10), Counters(None, 110))), one()).doubt is None
    assert traffic(window((Counters(None, 10), Counters(None, 111))), one()).doubt is not None


def test_nothing_follows_from_a_restart_a_silence_or_a_broken_answer() -> None:
    for after in (Counters(0, 100), Counters()):
        about = traffic(window((Counters(5, 10), after)), one())
        assert about.doubt is not None or about.window.moved(("p",), "prompt") is None
    broken = replace(RIGHT, problem="broke off")
    assert traffic(window((Counters(5, 10), Counters(6, 110))), one(broken)).doubt is not None
    assert traffic(window((Counters(5, 10), Counters(6, 110))), []).doubt is not None
