"""The closed forms, held against their definitions and against the published table of probes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.verdict.statistics import chance_found, probes_needed, upper_bound

rates = st.floats(1e-4, 0.999)
counts = st.integers(1, 10_000)


@given(counts)
def test_the_bound_is_the_rate_that_leaves_five_percent_for_a_clean_run(n: int) -> None:
    assert (1 - upper_bound(n)) ** n == pytest.approx(0.05, rel=1e-6)
    assert upper_bound(n) == pytest.approx(1 - 0.05 ** (1 / n), rel=1e-6)


@given(counts)
def test_more_probes_lower_the_bound(n: int) -> None:
    assert 0 < upper_bound(n + 1) < upper_bound(n) < 1


def test_no_probe_bounds_nothing() -> None:
    assert upper_bound(0) == 1.0


@given(rates)
def test_as_many_probes_as_needed_are_enough_and_one_less_is_not(rate: float) -> None:
    n = probes_needed(rate)
    assert chance_found(rate, n) >= 0.95 - 1e-6
    assert n == 1 or chance_found(rate, n - 1) < 0.95 + 1e-6


@given(rates, counts)
def test_bound_and_need_are_inverse(rate: float, n: int) -> None:
    assert (upper_bound(n) <= rate) == (n >= probes_needed(rate)) or upper_bound(n) == pytest.approx(rate)


@pytest.mark.parametrize(("rate", "n"), [(0.94, 2), (0.44, 6), (0.108, 27), (0.01, 299), (0.0004, 7488)])
def test_the_table_of_probes_needed(rate: float, n: int) -> None:
    assert probes_needed(rate) == n


@pytest.mark.parametrize("rate", [0, -1, 1.5])
def test_a_rate_outside_its_range_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        probes_needed(rate)


def test_certain_leaks_need_one_probe() -> None:
    assert probes_needed(1) == 1
    assert (chance_found(1, 0), chance_found(1, 1)) == (0.0, 1.0)
