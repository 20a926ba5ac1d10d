"""Engines that misbehave, each over real HTTP: the right verdict for each, and never CLEAN."""

from __future__ import annotations

import pytest

from pagefence.probes import Config, Evidence, Kind
from pagefence.verdict import Verdict
from tests.probes.test_against_toys import look_at
from tests.probes.toy import Toy

BORDERS = Config(("boundary",), seed=1)


def said(evidence: list[Evidence], words: str) -> list[Evidence]:
    return [e for e in evidence if words in e.what]


@pytest.mark.parametrize("bug", ["truncates", "drops-old"])
def test_a_prompt_that_is_cut_without_a_word_is_corrupt_and_the_report_says_so(bug: str) -> None:
    verdict, evidence = look_at(Toy(bug))
    assert (verdict.name, verdict.exit_code) == ("CORRUPT", 1)
    cut = said(evidence, "truncated silently")
    assert {(e.kind, e.details["form"], e.details["prompt_tokens_reported"]) for e in cut} == {
        (Kind.CORRUPT, "truncated silently", 100)
    }
    assert {int(str(e.details["prompt_tokens_sent"])) > 506 for e in cut} == {True, False}  # on both sides of the limit


@pytest.mark.parametrize("bug", ["truncates", "drops-old"])
def test_it_is_seen_where_nobody_counts_tokens_and_no_figure_is_told(bug: str) -> None:
    verdict, evidence = look_at(Toy(bug, bare=True, count_tokens=False), BORDERS)
    assert verdict.name == "CORRUPT"
    assert said(evidence, "truncated silently: sent about")


@pytest.mark.parametrize(
    ("bug", "says", "name"),
    [
        pytest.param("nonsense", "positive control 0/", "INCONCLUSIVE", id="nonsense"),
        # What such answers say about their own length is not true: that is a finding of its own.
        pytest.param("canned", "positive control 0/", "CORRUPT", id="canned answers"),
        pytest.param("empty", "positive control 0/", "CORRUPT", id="empty text with HTTP 200"),
        pytest.param("no-usage", "tells no prompt tokens", "INCONCLUSIVE", id="no usage"),
    ],
)
def test_what_could_have_shown_nothing_is_not_clean(bug: str, says: str, name: str) -> None:
    verdict, evidence = look_at(Toy(bug))
    assert verdict.name == name
    assert said(evidence, says)
    assert look_at(Toy(bug), Config(("canary",), seed=1))[0].name == "INCONCLUSIVE"


def test_empty_text_at_the_border_is_a_violation() -> None:
    verdict, evidence = look_at(Toy("empty"), BORDERS)
    assert (verdict.name, verdict.exit_code) == ("FAIL", 1)
    assert said(evidence, "without a single token")


def test_one_tenants_answer_given_to_another_from_a_cache_is_a_leak() -> None:
    """The cache does not know tenants, and takes every prompt of the same length for the same."""
    assert look_at(Toy("answer-cache"))[0].name == "LEAK"


@pytest.mark.parametrize("probe", ["boundary", "canary"])
def test_cached_tokens_of_prompts_that_begin_with_a_fresh_nonce_are_a_violation(probe: str) -> None:
    verdict, evidence = look_at(Toy("cached"), Config((probe,), seed=1))
    assert (verdict.name, verdict.exit_code) == ("FAIL", 1)
    assert {e.rule for e in said(evidence, "fresh nonce")} == {"I7"}


def test_an_engine_that_is_down_is_inconclusive() -> None:
    toy = Toy()
    toy.down = True
    verdict, evidence = look_at(toy, Config(seed=1))
    assert (verdict.name, verdict.exit_code) == ("INCONCLUSIVE", 3)
    assert said(evidence, "could not be reached")


@pytest.mark.parametrize(("after", "retry_after"), [(0, None), (12, "0.01")])
def test_an_engine_that_keeps_limiting_the_rate_is_inconclusive(
    retry_after: str | None, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagefence.probes.run._FIRST_PAUSE_S", 0.001)
    verdict, evidence = look_at(Toy("limited", retry_after=retry_after, after=after))
    assert (verdict.name, verdict.exit_code) == ("INCONCLUSIVE", 3)
    assert said(evidence, "429")


@pytest.mark.parametrize("bug", ["refuses", "too-long-always"])
def test_an_engine_that_refuses_everything_is_not_clean(bug: str) -> None:
    verdict, evidence = look_at(Toy(bug))
    assert verdict.name == "FAIL"
    assert {e.rule for e in evidence if e.kind is Kind.FAIL} <= {"I3", "I8"}


# --- over the limit


def hung(bug: str) -> tuple[Verdict, list[Evidence]]:
    return look_at(Toy(bug), BORDERS, timeout_s=0.4)


def test_a_hang_between_two_signs_of_life_is_a_refusal_that_never_came() -> None:
    verdict, evidence = hung("hangs")
    assert (verdict.name, verdict.exit_code) == ("FAIL", 1)
    found = said(evidence, "no bounded refusal")
    assert {(e.kind, e.rule, e.details["form"]) for e in found} == {(Kind.FAIL, "I3", "no answer until the deadline")}
    assert said(evidence, "not asked")  # it does not cost every deadline


def test_a_hang_from_which_the_fleet_does_not_come_back_is_inconclusive() -> None:
    verdict, evidence = hung("hangs-for-good")
    assert (verdict.name, verdict.exit_code) == ("INCONCLUSIVE", 3)
    assert said(evidence, "the fleet may be down")


def test_a_connection_that_is_closed_is_no_refusal() -> None:
    verdict, evidence = look_at(Toy("closes"), BORDERS)
    assert verdict.name == "FAIL"
    assert {e.details["form"] for e in evidence if e.kind is Kind.FAIL} == {"connection closed"}


def test_a_refusal_that_reports_generated_tokens_is_a_finding() -> None:
    verdict, evidence = look_at(Toy("works-first"), BORDERS)
    assert verdict.name == "FAIL"
    assert all("reports 2 generated tokens" in e.what and e.rule == "I3" for e in evidence)


def test_an_error_in_a_begun_stream_is_a_violation_for_the_border_and_a_refusal_for_the_canary() -> None:
    toy = Toy("late-error")
    verdict, evidence = look_at(toy)
    assert verdict.name == "FAIL"
    assert {(e.probe, e.rule) for e in evidence} == {("boundary", "I3")}
    assert look_at(Toy("late-error"), Config(("canary",), seed=1))[0].name == "CLEAN"
