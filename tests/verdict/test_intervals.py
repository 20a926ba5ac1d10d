"""Exact intervals, held against exact arithmetic and published values."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.verdict.intervals import incomplete_beta, interval, lower, upper


def tail(held: int, asked: int, rate: Fraction) -> Fraction:
    """The chance of `held` or more."""
    return sum((math.comb(asked, k) * rate**k * (1 - rate) ** (asked - k) for k in range(held, asked + 1)), Fraction(0))


counts = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@settings(deadline=None, max_examples=60)
@given(counts, st.integers(1, 999))
def test_the_incomplete_beta_is_the_binomial_tail(count: tuple[int, int], thousandths: int) -> None:
    held, asked = count
    if held == 0:
        return
    exact = float(tail(held, asked, Fraction(thousandths, 1000)))
    assert incomplete_beta(thousandths / 1000, held, asked - held + 1) == pytest.approx(exact, rel=1e-9, abs=1e-13)


@given(st.floats(0.001, 0.999), st.floats(0.5, 500), st.floats(0.5, 500))
def test_it_is_symmetric(x: float, a: float, b: float) -> None:
    assert incomplete_beta(x, a, b) == pytest.approx(1 - incomplete_beta(1 - x, b, a), abs=1e-11)


@settings(deadline=None, max_examples=60)
@given(counts)
def test_at_an_end_of_the_interval_what_was_seen_has_the_chance_that_was_left(count: tuple[int, int]) -> None:
    held, asked = count
    low, high = interval(held, asked)
    assert 0 <= low <= held / asked <= high <= 1
    if held > 0:
        assert float(tail(held, asked, Fraction(low))) == pytest.approx(0.025, rel=1e-6)
    if held < asked:
        assert 1 - float(tail(held + 1, asked, Fraction(high))) == pytest.approx(0.025, rel=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(0, 100))
def test_the_interval_holds_the_true_rate_as_often_as_it_says(asked: int, percent: int) -> None:
    rate = Fraction(percent, 100)
    covered = sum(
        math.comb(asked, k) * rate**k * (1 - rate) ** (asked - k)
        for k in range(asked + 1)
        if interval(k, asked)[0] <= rate <= interval(k, asked)[1]
    )
    assert covered >= Fraction(95, 100)


@pytest.mark.parametrize(
    ("held", "asked", "low", "high"),
    [  # as tables and R's binom.test have them
        (15, 16, 0.6977, 0.9984),
        (11, 16, 0.4134, 0.8898),
        (0, 16, 0.0, 0.2059),
        (16, 16, 0.7941, 1.0),
        (5, 10, 0.1871, 0.8129),
        (1, 20, 0.0013, 0.2487),
        (3, 4, 0.1941, 0.9937),
    ],
)
def test_published_values(held: int, asked: int, low: float, high: float) -> None:
    assert interval(held, asked) == pytest.approx((low, high), abs=6e-5)


def test_thousands_of_probes_are_computed_as_exactly() -> None:
    low = lower(49_990, 50_000, 0.95)
    misses = [math.log(math.comb(50_000, k)) + k * math.log1p(-low) + (50_000 - k) * math.log(low) for k in range(11)]
    assert math.fsum(map(math.exp, misses)) == pytest.approx(0.05, rel=1e-6)


def test_one_side_is_closed_where_everything_or_nothing_held() -> None:
    assert lower(7, 7, 0.95) == pytest.approx(0.05 ** (1 / 7))
    assert upper(0, 7, 0.95) == pytest.approx(1 - 0.05 ** (1 / 7))
    assert interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("held", "asked"), [(3, 2), (-1, 2)])
def test_more_than_was_asked_cannot_have_held(held: int, asked: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        interval(held, asked)
