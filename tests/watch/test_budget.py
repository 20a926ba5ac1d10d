"""No stretch of time costs a fleet more than rate x time + burst, whatever runs, ends or crashes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.watch.budget import Allowance, Bucket, filled, full, reserved, settled, wait_s

ALLOWED = st.builds(Allowance, st.integers(1, 5000), st.floats(1, 5000), st.integers(1, 3000))
# Wait so long, then try to run something of this most, which takes so long and really costs a part of it, or crashes.
STEPS = st.lists(
    st.tuples(st.floats(0, 500), st.integers(0, 3000), st.floats(0, 300), st.floats(0, 1), st.booleans()), max_size=30
)


@given(ALLOWED, STEPS)
def test_no_stretch_of_time_costs_more_than_its_rate_and_one_burst(
    allowed: Allowance, steps: list[tuple[float, int, float, float, bool]]
) -> None:
    now, bucket = 0.0, full(allowed, 0.0)
    spent: list[tuple[float, float]] = []  # when, and how many tokens at the most
    for pause, most, seconds, part, crashes in steps:
        now += pause
        taken = reserved(bucket, allowed, most, now)
        if taken is None:
            assert wait_s(bucket, allowed, most, now) > 0
            continue
        bucket, cost = taken, int(most * part)
        spent += [(now, cost / 2), (now + seconds, cost - cost / 2)]
        now += seconds
        if crashes:
            bucket = Bucket(bucket.level, bucket.at, 0.0)  # as the file is read after a crash
        else:
            bucket = settled(bucket, allowed, most, cost, now)
        assert bucket.level + bucket.held <= allowed.burst + 1e-6
    for i, (begin, _) in enumerate(spent):
        for j in range(i, len(spent)):
            in_all = sum(tokens for _, tokens in spent[i : j + 1])
            assert in_all <= allowed.rate * (spent[j][0] - begin) + allowed.burst + 1e-6


def test_what_a_run_holds_is_not_filled_in_over_it() -> None:
    """Or a long run would end in two bursts at once: what came back meanwhile, and what it gives back."""
    allowed = Allowance(100, 1, 1000)
    held = reserved(full(allowed, 0), allowed, 1000, 0)
    assert held is not None
    assert filled(held, allowed, 3600).level == 0
    assert settled(held, allowed, 1000, 400, 3600).level == 600


def test_a_clock_that_was_set_back_fills_nothing_in_and_holds_nothing_up() -> None:
    allowed = Allowance(3600, 3600, 1000)
    empty = Bucket(0.0, 5000.0)
    back = filled(empty, allowed, 1000.0)
    assert back.level == 0
    assert filled(back, allowed, 1010.0).level == pytest.approx(10)


def test_waiting_as_long_as_told_is_enough() -> None:
    allowed = Allowance(10, 60, 1000)
    bucket = Bucket(3.0, 0.0)
    wait = wait_s(bucket, allowed, 700, 0.0)
    assert reserved(bucket, allowed, 700, wait - 0.1) is None
    assert reserved(bucket, allowed, 700, wait + 0.1) is not None


@pytest.mark.parametrize("values", [(0, 1.0, 1), (1, 0.0, 1), (1, float("inf"), 1), (1, 1.0, 0)])
def test_a_budget_that_allows_nothing_is_refused(values: tuple[int, float, int]) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Allowance(*values)
