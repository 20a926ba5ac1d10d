"""The real limits of a fleet that does not tell them: found by asking, for few tokens, and then tested like any."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.fleet import ErrorBody
from pagefence.fleet.answer import decode_json, read_error
from pagefence.probes import Config, Kind
from pagefence.probes.boundary.search import Search, closing, distinguished
from pagefence.probes.boundary.told import told_length, told_limit
from tests.probes.test_against_toys import examined, look_at
from tests.probes.toy import Toy

BORDERS = Config(("boundary",), seed=1)


def searched(limit: int, hint: int | None, budget: int, told: int | None = None) -> Search:
    """The search on a fleet that accepts up to `limit`."""
    search = Search(hint, budget)
    while (tokens := search.next()) is not None:
        search = search.after(tokens, tokens <= limit, None if tokens <= limit else told)
    return search


@settings(max_examples=40, deadline=None)
@given(st.integers(64, 1 << 20), st.integers(0, 12))
def test_a_limit_a_little_under_the_advertised_one_costs_one_accepted_prompt(advertised: int, less: int) -> None:
    search = searched(advertised - less, advertised, 2 * advertised)
    assert (search.exact, search.accepted) == (True, advertised - less)
    assert search.spent <= advertised


@settings(max_examples=40, deadline=None)
@given(st.integers(64, 1 << 20), st.integers(0, 12), st.integers(1, 64))
def test_an_error_that_names_the_limit_leads_to_it(told: int, less: int, times: int) -> None:
    search = searched(told - less, told * times, 4 * told * times, told)
    assert (search.exact, search.accepted) == (True, told - less)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 100_000), st.integers(64, 100_000), st.integers(0, 400_000))
def test_it_never_spends_more_than_its_budget_and_never_holds_a_wrong_border(
    limit: int, hint: int, budget: int
) -> None:
    search = searched(limit, hint, budget)
    assert search.spent <= budget or search.accepted == hint + 1  # a length over the advertised one should be refused
    assert search.accepted <= limit
    assert search.refused is None or search.refused > limit


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4000))
def test_with_nothing_advertised_it_is_found_all_the_same(limit: int) -> None:
    assert searched(limit, None, 100_000).exact


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 500), st.integers(1, 300), st.integers(1, 12))
def test_the_gap_is_closed_within_its_acceptances(accepted: int, gap: int, acceptances: int) -> None:
    for limit in range(accepted, accepted + gap, max(1, gap // 7)):
        low, high, left = accepted, accepted + gap, acceptances
        while (tokens := closing(low, high, left)) is not None:
            assert low < tokens < high
            low, high, left = (tokens, high, left - 1) if tokens <= limit else (low, tokens, left)
        assert low <= limit < high
        if gap <= 80:
            assert high - low == 1 or left == 0


def test_one_acceptance_goes_down_one_by_one_and_many_halve() -> None:
    assert closing(0, 64, 1) == 63
    assert closing(0, 64, 10) in range(30, 34)
    assert [distinguished(5, n) for n in (0, 1, 5)] == [0, 5, 31]


@pytest.mark.parametrize(
    ("body", "limit", "length"),
    [
        pytest.param(
            '{"error":{"message":"This model\'s maximum context length is 2048 tokens. However, your prompt contains '
            '2100 input tokens, which exceeds this limit even without any output tokens.","code":400}}',
            2048,
            2100,
            id="vllm",
        ),
        pytest.param(
            '{"error":{"message":"This model\'s maximum context length is 2048 tokens. However, your prompt contains '
            'at least 2049 input tokens","code":400}}',
            2048,
            None,
            id="vllm, a length that is no count",
        ),
        pytest.param(
            '{"object":"error","message":"Input length (1018 tokens) exceeds the maximum allowed length (1018 tokens). '
            'Use a shorter input","code":400}',
            1018,
            1018,
            id="sglang",
        ),
        pytest.param(
            '{"error":{"code":400,"message":"request (1500 tokens) exceeds the available context size (1024 tokens), '
            'try increasing it","type":"exceed_context_size_error","n_prompt_tokens":1500,"n_ctx":1024}}',
            1024,
            1500,
            id="llama-server",
        ),
        pytest.param(
            '{"error":"Input validation error: `inputs` must have less than 1024 tokens. Given: 1500",'
            '"error_type":"validation"}',
            1024,
            1500,
            id="tgi",
        ),
        pytest.param('{"error":{"message":"the input is too long"}}', None, None, id="nothing"),
    ],
)
def test_limit_and_length_are_read_from_an_error(body: str, limit: int | None, length: int | None) -> None:
    error = read_error(decode_json(body.encode()))
    assert (told_limit(error), told_length(error)) == (limit, length)


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_any_message_is_read_without_an_accident(message: str) -> None:
    for told in (told_limit, told_length):
        value = told(ErrorBody(message))
        assert value is None or value > 0


@pytest.mark.parametrize("bug", ["", "mute"])
@pytest.mark.parametrize("promises", [0, 1024, None])
def test_a_server_without_figures_is_asked_for_its_limit(bug: str, promises: int | None) -> None:
    toy = Toy(bug, bare=True, promises=promises)
    examination = examined(toy, BORDERS)
    assert examination.limits is not None
    assert (examination.limits.longest, examination.limits.asked) == (toy.longest, True)
    (result,) = examination.results()
    assert result.evidence == ()
    row = next(check for check in result.checks if check.id == "limits")
    assert f"longest accepted {toy.longest}" in row.text
    assert "found by asking" in row.text


def test_what_was_found_by_asking_is_no_figure_for_the_gate() -> None:
    verdict, evidence = look_at(Toy(bare=True), Config(seed=1))
    assert verdict.name == "INCONCLUSIVE"
    assert {(e.probe, e.kind) for e in evidence} == {("gate", Kind.INCONCLUSIVE)}


def test_a_limit_that_the_budget_does_not_reach_stays_unknown() -> None:
    verdict, evidence = look_at(Toy(bare=True), Config(("boundary",), seed=1, budget=100))
    assert verdict.name == "INCONCLUSIVE"
    assert "--budget allows more" in evidence[0].what


def test_without_a_tokenizer_the_border_is_not_called_exact() -> None:
    verdict, evidence = look_at(Toy(bare=True, count_tokens=False), BORDERS)
    assert verdict.name == "INCONCLUSIVE"
    assert {e.kind for e in evidence} == {Kind.INCONCLUSIVE}


def test_a_text_that_the_fleet_was_too_busy_to_count_is_asked_for_again() -> None:
    assert look_at(Toy(busy=True), BORDERS)[0].name == "CLEAN"


@pytest.mark.parametrize("characters", [100, 1000, 2500, 4000])
def test_a_fleet_that_does_not_count_long_texts_has_broken_no_rule(characters: int) -> None:
    verdict, evidence = look_at(Toy(counted=characters), BORDERS)
    assert verdict.name == "INCONCLUSIVE"
    assert {e.kind for e in evidence} == {Kind.INCONCLUSIVE}


def test_one_key_is_enough_for_the_borders() -> None:
    assert look_at(Toy(), BORDERS)[0].name == "CLEAN"
