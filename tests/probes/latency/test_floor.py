"""The physical floor is the formula of its docstring, and what is not known only lowers it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.fleet.facts import Figure, FleetFacts, NodeFacts, unknown
from pagefence.probes.latency.floor import Physics, of_fleet, physics

KNOWN = {
    "active_parameters": 32_000_000_000,
    "layers": 92,
    "attention_width": 12_288,
    "devices": 8,
    "peak_flop_per_s": 989_000_000_000_000,
}
LINK = {"kv_bytes_per_token": 376_832, "link_bytes_per_s": 5_000_000_000}


def made(said: dict[str, int]) -> Physics:
    found = physics(said)
    assert isinstance(found, Physics)
    return found


def test_the_floor_of_a_long_prompt_on_eight_devices() -> None:
    tokens, cached = 284_937, 1_000
    work = 2 * 32e9 * (tokens - cached) + 2 * 92 * 12_288 * (tokens**2 - cached**2)
    assert made(KNOWN).floor_s(tokens - cached, cached) == pytest.approx(work / (8 * 989e12))


def test_a_slow_link_is_the_floor_where_it_takes_longer() -> None:
    assert made(KNOWN | LINK).floor_s(100_000) == pytest.approx(100_000 * 376_832 / 5e9)
    assert made(LINK).floor_s(100_000) == made(KNOWN | LINK).floor_s(100_000)


def test_without_a_peak_there_is_no_floor_and_the_missing_figures_are_named() -> None:
    found = physics({"active_parameters": 5, "devices": 1})
    assert isinstance(found, str)
    assert "peak_flop_per_s" in found


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sets(st.sampled_from(["layers", "attention_width", *LINK])))
def test_a_figure_less_never_raises_the_floor(uncached: int, cached: int, left_out: set[str]) -> None:
    whole = KNOWN | LINK
    less = {name: value for name, value in whole.items() if name not in left_out}
    assert made(less).floor_s(uncached, cached) <= made(whole).floor_s(uncached, cached)


@given(st.integers(0, 10**6), st.integers(1, 1000), st.integers(0, 10**6))
def test_more_uncached_tokens_never_take_less(uncached: int, more: int, cached: int) -> None:
    assert made(KNOWN | LINK).floor_s(uncached + more, cached) > made(KNOWN | LINK).floor_s(uncached, cached)


def node(role: str, peak: int | None) -> NodeFacts:
    told = {name: Figure(value, "told") for name, value in KNOWN.items()}
    told["peak_flop_per_s"] = unknown("told", "is null") if peak is None else Figure(peak, "told")
    return NodeFacts(role, f"http://{role}", "toy", "1", speed=told)


def fleet(*nodes: NodeFacts) -> FleetFacts:
    return FleetFacts("http://r", "m", unknown("", ""), nodes)


def test_the_fastest_node_that_computes_prompts_makes_the_floor() -> None:
    found = of_fleet(fleet(node("prefill", 10**12), node("prefill", 10**15), node("decode", 10**18)))
    assert isinstance(found, Physics)
    assert found.peak == 8e15


def test_a_node_that_does_not_tell_leaves_the_fleet_without_a_floor() -> None:
    assert isinstance(of_fleet(fleet(node("prefill", 10**12), node("prefill", None))), str)
