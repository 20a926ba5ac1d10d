"""The continuous test: fair under the null whatever came before, silent for years, and awake when a fault begins."""

from __future__ import annotations

import math
import random
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.verdict.sequential import EProcess, alarm, fields, restored, updated

ALPHA = 0.05
nulls = st.floats(1e-6, 0.8)
batches = st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), max_size=12)


def after(null_rate: float, history: list[tuple[int, float]]) -> EProcess:
    process = EProcess(null_rate)
    for n, share in history:
        process = updated(process, n, round(n * share))
    return process


@settings(deadline=None, max_examples=50)
@given(nulls, batches, st.floats(0, 1), st.integers(1, 6))
def test_under_the_null_no_batch_is_expected_to_raise_the_evidence(
    null_rate: float, history: list[tuple[int, float]], part: float, n: int
) -> None:
    process, rate = after(null_rate, history), null_rate * part
    expected = math.fsum(
        math.comb(n, k) * rate**k * (1 - rate) ** (n - k) * math.exp(updated(process, n, k).log_e - process.log_e)
        for k in range(n + 1)
    )
    assert expected <= 1 + 1e-9


@settings(deadline=None, max_examples=50)
@given(nulls, batches)
def test_a_hit_is_evidence_for_a_fault_and_a_miss_is_evidence_against_one(
    null_rate: float, history: list[tuple[int, float]]
) -> None:
    process = after(null_rate, history)
    assert updated(process, 1, 0).log_e < process.log_e < updated(process, 1, 1).log_e


@settings(deadline=None, max_examples=50)
@given(nulls, batches)
def test_it_comes_back_from_a_database_as_it_was(null_rate: float, history: list[tuple[int, float]]) -> None:
    process = after(null_rate, history)
    columns = fields(process)
    with sqlite3.connect(":memory:") as database:
        database.row_factory = sqlite3.Row
        database.execute("create table e (null_rate real, log_e real, n int, hits int, updates int, log_staked text)")
        database.execute(f"insert into e ({','.join(columns)}) values (?,?,?,?,?,?)", tuple(columns.values()))
        row = database.execute("select * from e").fetchone()
    assert restored(dict(row)) == process
    assert updated(restored(dict(row)), 3, 1) == updated(process, 3, 1)


def ever(process: EProcess, rate: float, updates: int, batch: int, chance: random.Random) -> int | None:
    """The number of probes at the first alarm."""
    begun = process.n
    for _ in range(updates):
        process = updated(process, batch, sum(chance.random() < rate for _ in range(batch)))
        if alarm(process, ALPHA):
            return process.n - begun
    return None


@pytest.mark.parametrize("null_rate", [0.02, 0.2])
def test_at_the_null_rate_a_false_alarm_within_a_long_horizon_is_as_rare_as_stated(null_rate: float) -> None:
    chance = random.Random(1)
    runs = 200
    alarms = sum(ever(EProcess(null_rate), null_rate, 100, 8, chance) is not None for _ in range(runs))
    # 21 of 200 or more have a chance of 0.12 % when the rate is 0.05.
    assert alarms < 21


@pytest.mark.parametrize(("null_rate", "rate"), [(0.02, 0.2), (0.01, 0.5), (0.1, 0.3)])
def test_a_fault_is_found_in_about_the_number_that_its_distance_from_the_null_asks_for(
    null_rate: float, rate: float
) -> None:
    growth = rate * math.log(rate / null_rate) + (1 - rate) * math.log((1 - rate) / (1 - null_rate))
    least = math.log(1 / ALPHA) / growth
    chance = random.Random(2)
    needed = [ever(EProcess(null_rate), rate, 1_000, 1, chance) for _ in range(100)]
    found = [n for n in needed if n is not None]
    assert len(found) == 100
    assert least * 0.9 <= sum(found) / 100 <= least * 2.5


def test_a_fault_that_begins_after_a_year_of_silence_costs_a_few_hits_and_not_a_year() -> None:
    process = EProcess(0.01)
    for _ in range(20_000):
        process = updated(process, 5, 0)
    hits = 0
    while not alarm(process, ALPHA):
        process, hits = updated(process, 1, 1), hits + 1
    assert hits <= 6


def test_hits_at_the_null_rate_for_a_year_leave_it_as_awake_as_silence_does() -> None:
    process = EProcess(0.01)
    for i in range(20_000):
        process = updated(process, 5, i % 20 == 0)
    assert not alarm(process, ALPHA)
    needed = ever(process, 0.5, 100, 1, random.Random(3))
    assert needed is not None and needed <= 30


def test_no_probe_is_no_evidence() -> None:
    process = updated(EProcess(0.1), 5, 1)
    assert updated(process, 0, 0) is process
    assert not alarm(EProcess(0.1), ALPHA)


@pytest.mark.parametrize(("n", "hits"), [(1, 2), (1, -1), (-1, 0)])
def test_more_hits_than_probes_are_refused(n: int, hits: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        updated(EProcess(0.1), n, hits)


@pytest.mark.parametrize("rate", [0, 1, -0.1, math.nan])
def test_a_null_rate_that_no_bet_can_exceed_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="null rate"):
        EProcess(rate)


def test_stakes_of_another_null_rate_are_refused() -> None:
    with pytest.raises(ValueError, match="stakes"):
        restored({**fields(updated(EProcess(0.1), 1, 1)), "null_rate": 0.001})
