"""The pictures of the HTML report: they draw what was seen, say what is inferred, and lose nothing at any size."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.probes import ProbeResult
from pagefence.verdict.html.axes import across, marks, upwards
from pagefence.verdict.html.page_map import Owner, Read, cells, page_map
from pagefence.verdict.html.page_picture import page_picture
from pagefence.verdict.html.power_plot import power_plot
from pagefence.verdict.html.time_plot import Times, time_plot
from pagefence.verdict.power import claims

tokens = st.integers(1, 2_000_000)
reads = st.builds(Read, tokens, st.integers(0, 1000), st.integers(1, 1024), st.booleans(), tokens, st.none() | tokens)
INCIDENT = Read(sent=700_000, new=640, page=64, page_told=True, limit=681_280, planted=681_280)


@given(reads)
def test_every_page_of_prompt_and_answer_has_one_owner(read: Read) -> None:
    stretches = page_map(read)
    assert stretches[0].first == 0
    assert all(after.first == before.last + 1 for before, after in pairwise(stretches))
    assert stretches[-1].last == max(-(-(read.sent + read.new) // read.page), -(-read.sent // read.page)) - 1


@given(reads, st.integers(16, 200))
def test_a_picture_has_a_bounded_number_of_squares_and_one_at_least_for_each_owner(read: Read, most: int) -> None:
    stretches = page_map(read)
    drawn = cells(stretches, most)
    assert len(drawn) <= most
    assert {stretch for _, _, stretch in drawn} == set(stretches)
    assert sum(last - first + 1 for first, last, _ in drawn) == stretches[-1].last + 1


def test_of_an_incident_only_the_first_page_is_the_readers_and_that_is_inferred() -> None:
    own, stale, beyond, answer = page_map(INCIDENT)
    assert (own.first, own.last, own.owner, own.known) == (0, 0, Owner.READER, False)
    assert (stale.owner, stale.last, stale.known) == (Owner.PLANTER, 681_280 // 64 - 1, False)
    assert (beyond.owner, answer.owner) == (Owner.NOBODY, Owner.ANSWER)


def test_within_the_limits_nothing_is_claimed_about_single_pages() -> None:
    first, *_ = page_map(Read(500, 32, 64, True, 1024, 1000))
    assert (first.owner, first.known) == (Owner.MIXED, False)


def test_the_page_picture_says_in_words_what_it_draws() -> None:
    picture = page_picture(INCIDENT, "p", "tenant b", "tenant a").markup
    assert "tenant a&#x27;s planted prompt" in picture
    assert "inferred" in picture
    assert "up to" in picture and "pages of 64 tokens" in picture
    assert 'role="img"' in picture and "<desc" in picture


@given(st.floats(1e-6, 1e6), st.floats(1, 1e6))
def test_an_axis_has_marks_inside_it_and_places_grow_with_values(low: float, factor: float) -> None:
    scale = across(low, low * factor)
    found = marks(scale)
    assert 1 <= len(found) <= 24
    assert all(scale.low * 0.99 <= value <= scale.high * 1.01 for value in found)
    places = [scale.place(value) for value in sorted(found)]
    assert places == sorted(places)
    up = upwards(low, low * factor)
    assert up.place(low) >= up.place(low * factor)


@given(st.lists(st.tuples(tokens, st.floats(1e-6, 1e4)), min_size=1, max_size=30))
def test_times_stay_inside_the_picture_and_their_floor_with_them(seen: list[tuple[int, float]]) -> None:
    floor = [(n, s / 2) for n, s in sorted(seen)]
    markup = time_plot(Times([(n, s, "seen", "x") for n, s in seen], floor, floor, [seen[0][0]])).markup
    assert all(0 <= float(x) <= 360 for x in re.findall(r'cx="([^"]+)"', markup))
    assert all(0 <= float(y) <= 250 for y in re.findall(r'cy="([^"]+)"', markup))
    assert markup.count("<circle") == len(seen)
    assert "floors drawn: physical and practical" in markup


def test_without_a_floor_none_is_claimed() -> None:
    assert "floors drawn: none" in time_plot(Times([(100, 0.1, "seen", "x")])).markup


@pytest.mark.parametrize("n", [1, 17, 7488, 10**6])
def test_power_is_drawn_for_the_n_of_the_run_and_never_rounded_up(n: int) -> None:
    result = ProbeResult("canary", shown=n, controls=(n, n))
    markup = power_plot(claims((result,))).markup
    assert f"n = {n:,}" in markup
    assert "100.0 %" not in markup
    assert "2,995" in markup  # what 95 % needs at a rate of 0.001
