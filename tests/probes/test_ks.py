"""The one-sided Kolmogorov-Smirnov test, held against counting every order, and its power against simulation."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.probes.salt.ks import ALPHA, chance, lead, samples_needed, shorter

sizes = st.integers(1, 4)
times = st.lists(st.floats(0.001, 10.0), min_size=1, max_size=12)


@settings(max_examples=20)
@given(sizes, sizes)
def test_the_chance_is_the_share_of_all_orders_that_lead_as_far(n: int, m: int) -> None:
    orders = [set(chosen) for chosen in itertools.combinations(range(n + m), n)]
    leads = [lead(sorted(o), sorted(set(range(n + m)) - o)) for o in orders]
    for reached in range(n * m + 2):
        share = sum(found >= reached for found in leads) / len(orders)
        assert chance(n, m, reached) == pytest.approx(share)


@given(st.integers(1, 40), st.data())
def test_for_equal_sizes_it_is_the_reflection_principle(n: int, data: st.DataObject) -> None:
    steps = data.draw(st.integers(1, n))
    assert chance(n, n, steps * n) == pytest.approx(math.comb(2 * n, n - steps) / math.comb(2 * n, n))


@given(times, times, st.floats(1.1, 9.0))
def test_only_the_order_counts_and_equal_values_are_no_lead(fast: list[float], slow: list[float], by: float) -> None:
    assert lead(fast, slow) == lead([x * by for x in fast], [x * by for x in slow])
    assert lead(fast, fast) == 0
    assert shorter(fast, fast) == 1.0


@given(times, times)
def test_it_is_one_sided(fast: list[float], slow: list[float]) -> None:
    shifted = [x + 100 for x in slow]
    assert lead(fast, shifted) == len(fast) * len(slow)
    assert lead(shifted, fast) == 0


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="says nothing"):
        lead([], [1.0])


def test_a_hundred_of_each_show_two_fifths_at_one_in_ten_thousand() -> None:
    assert samples_needed(0.42, 1e-4, 0.95) == 100


@pytest.mark.parametrize("distance", [0, -0.5, 1.5])
def test_a_distance_outside_its_range_is_refused(distance: float) -> None:
    with pytest.raises(ValueError, match="distance"):
        samples_needed(distance)


def test_the_stated_power_holds_and_false_alarms_stay_rare() -> None:
    """Of the replicas, 42 % answer at once and the others as if nothing were cached."""
    dice = random.Random(4)
    needed = next(k for k in range(1, 101) if chance(100, 100, k * 100) <= ALPHA) * 100
    seen = alarms = 0
    for _ in range(400):
        slow = [dice.gauss(1.0, 0.1) for _ in range(100)]
        mixed = [dice.gauss(0.2, 0.05) if dice.random() < 0.42 else dice.gauss(1.0, 0.1) for _ in range(100)]
        seen += lead(mixed, slow) >= needed
        alarms += lead([dice.gauss(1.0, 0.1) for _ in range(100)], slow) >= needed
    assert seen >= 0.92 * 400
    assert alarms <= 1
