"""Seeded histories in virtual time: the same everywhere, hostile enough, and small once they have found something."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from pagefence.lab import faults
from pagefence.lab.randomly import Seeds, play_seeds
from pagefence.sim.moves import Move
from pagefence.sim.simulator import Run, breaks, in_bounds, shrink, simulate
from pagefence.sim.weather import UNLIMITED, large, small
from pagefence.sim.world import World
from pagefence.sim.worlds import SOMETIMES, WHEN

HISTORIES = """
from pagefence.sim.simulator import in_bounds, simulate
from pagefence.sim.weather import small
print(*(simulate(seed, in_bounds(small), 150).history for seed in range(8)))
"""


def play(seed: int) -> Run:
    return simulate(seed, in_bounds(small), 150)


# --- the product --------------------------------------------------------------------------------------------------


def test_every_rule_holds_in_many_hostile_histories_that_have_been_where_bugs_live() -> None:
    seen: Counter[str] = Counter()
    virtual = 0.0
    seeds = Seeds(30, 130, 200)
    for run in play_seeds(seeds):
        assert run.rule is None, f"seed {run.seed}: {run.violation}"
        seen.update(run.sometimes)
        virtual += run.virtual_s
    also = ("a silent worker was recycled", "a write landed after its writer had crashed", "contained by page-frames")
    assert not [
        what
        for what in (*seeds.expected(), *(goal for goals in WHEN.values() for goal in goals), *also)
        if not seen[what]
    ]
    assert len(seeds.expected()) == len(SOMETIMES) - 1
    assert virtual > 130 * 10, "timers fire when they are due, in virtual time"


def test_a_seed_repeats_its_history() -> None:
    first, second = play(11), play(11)
    assert first == second
    assert len({play(seed).history for seed in range(6)}) == 6


def test_a_fresh_interpreter_with_other_hashes_plays_the_same_histories() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", HISTORIES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[-1]
        for seed in ("1", "2")
    }
    assert said == {play(7).history}


def test_many_cores_play_what_one_plays() -> None:
    assert list(play_seeds(Seeds(0, 6, 60, cores=2))) == list(play_seeds(Seeds(0, 6, 60, cores=1)))


def test_a_large_world_holds() -> None:
    run = simulate(3, in_bounds(large), 60)
    assert run.rule is None, run.violation
    assert len(run.world.names) == 20
    assert len(run.moves) > 1_000
    assert run.sometimes["an answer was complete"] > 10


def test_a_restless_world_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagefence.sim.simulator.PATIENCE", 0)
    run = simulate(1, in_bounds(small), 20)
    assert run.rule == "I5"
    assert shrink(run) == run.moves, "no move of it breaks a rule"


# --- a fault ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "first"), [("free-while-writing", 50), ("stub-transfer", 0), ("page-leak", 5)])
def test_a_fault_is_found_for_its_own_rule_and_its_history_made_small(fault: str, first: int) -> None:
    seeds = Seeds(first, 30, 200, fault=fault, cores=1)
    bad = next(run for run in play_seeds(seeds) if run.rule is not None)
    assert bad.rule in faults.find(fault).rules
    world, moves = seeds.shrunk(bad.seed)
    assert breaks(world, list(moves)) == (bad.rule, len(moves))
    assert len(moves) <= min(40, bad.events)
    for left_out in range(len(moves)):
        fewer = breaks(world, [*moves[:left_out], *moves[left_out + 1 :]])
        assert fewer is None or fewer[0] != bad.rule, f"{moves[left_out]} was not needed"


def test_moves_that_do_not_fit_are_passed_over() -> None:
    world = World(small(Random(1)))
    nowhere = [Move("land", "p1", ticket=5), Move("crash", "nobody"), Move("timer", "p1#1", "resend", 0)]
    assert breaks(world, nowhere) is None


def test_in_a_simulated_world_everything_may_go_wrong() -> None:
    assert small(Random(0)).budget == large(Random(0)).budget == UNLIMITED
    assert min(UNLIMITED) > 100_000


def test_the_history_names_what_happened_and_not_when() -> None:
    runs = [play(seed) for seed in range(4)]
    assert all(run.virtual_s > 0 for run in runs)
    assert len({run.virtual_s for run in runs}) == len(runs)
