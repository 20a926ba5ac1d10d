"""The sketch keeps its relative error, merges as if it had counted everything, and stays small."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.probes.latency.buckets import buckets
from pagefence.probes.latency.sketch import ERROR, Sketch, chance_greater

TIMES = st.lists(st.floats(1e-5, 1e5), min_size=1, max_size=60)


def sketch(values: list[float]) -> Sketch:
    made = Sketch()
    for value in values:
        made.add(value)
    return made


@given(TIMES, st.floats(0, 1))
def test_a_quantile_is_within_the_relative_error(values: list[float], q: float) -> None:
    exact = sorted(values)[math.floor(q * (len(values) - 1))]
    assert sketch(values).quantile(q) == pytest.approx(exact, rel=ERROR * 1.0001)


@given(TIMES, TIMES)
def test_merged_is_what_had_counted_both(left: list[float], right: list[float]) -> None:
    merged, both = sketch(left), sketch(left + right)
    merged.merge(sketch(right))
    assert (merged.bins, merged.n, merged.least, merged.most) == (both.bins, both.n, both.least, both.most)


def test_its_size_does_not_grow_with_the_spread_of_what_it_counts() -> None:
    assert len(sketch([10.0 ** (i / 50) for i in range(-600, 600)]).bins) < 1400


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_positive_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="no positive time"):
        Sketch().add(value)


def test_mann_whitney_tells_apart_from_alike() -> None:
    low, high = sketch([1.0, 1.1, 1.2, 1.3, 1.4, 1.5]), sketch([2.0, 2.1, 2.2, 2.3, 2.4, 2.5])
    assert chance_greater(high, low) < 0.01
    assert chance_greater(low, high) > 0.99
    assert chance_greater(low, low) > 0.4
    assert chance_greater(sketch([1.0]), sketch([1.0])) == chance_greater(Sketch(), low) == 1.0


@given(st.integers(0, 2**36), st.sets(st.integers(1, 2**30), max_size=4))
def test_every_length_has_one_bucket_and_no_limit_lies_inside_of_one(tokens: int, limits: set[int]) -> None:
    spread = buckets(limits)
    bucket = spread.of(tokens)
    assert spread.edges[bucket] <= tokens
    assert bucket + 1 == len(spread.edges) or tokens < spread.edges[bucket + 1]
    assert all(spread.of(limit) != spread.of(limit + 1) for limit in limits)
