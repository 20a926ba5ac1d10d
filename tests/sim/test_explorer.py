"""The search: complete, the same on any number of cores, with shortest traces that replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pagefence.lab import faults
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.invariants import Violation
from pagefence.protocol.messages import Ack
from pagefence.protocol.prefill import Phase
from pagefence.sim.bounds import NOTHING_GOES_WRONG
from pagefence.sim.explorer import NoSuchPath, Search, explore, moves_of
from pagefence.sim.menu import all_moves
from pagefence.sim.state import WorldState
from pagefence.sim.step import apply, beginning
from pagefence.sim.watch import retold
from pagefence.sim.world import World
from pagefence.sim.worlds import expected

from .small import ALONE, HANG_UPS, IN_DOUBT, ONE_CRASH, faulty, hunted, searched

SOME_FAULTS = ("stub-transfer", "free-while-writing", "salt-dropped")


# --- the product --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [HANG_UPS, ONE_CRASH, IN_DOUBT], ids=lambda bounds: bounds.name)
def test_every_rule_holds_in_every_interleaving_and_the_search_has_been_where_bugs_live(bounds: Any) -> None:
    result = searched(bounds.name)
    assert result.found is None
    assert result.complete
    assert not result.progress.frontier
    assert result.progress.expanded == len(result.progress.known)
    assert set(expected(bounds)) <= result.progress.sometimes


def test_two_cores_see_what_one_sees() -> None:
    one, two = searched(ONE_CRASH.name).progress, searched(ONE_CRASH.name, cores=2).progress
    assert len(one.known) > 200
    assert one.known == two.known
    assert (one.transitions, one.raw, one.rest, one.sometimes) == (two.transitions, two.raw, two.rest, two.sometimes)


@pytest.mark.parametrize("bounds", [ALONE, ONE_CRASH, IN_DOUBT], ids=lambda bounds: bounds.name)
def test_without_reduction_there_are_more_states_and_no_violation_either(bounds: Any) -> None:
    every, reduced = searched(bounds.name, reduced=False), searched(bounds.name)
    assert every.found is None
    assert every.complete
    assert len(every.progress.known) > len(reduced.progress.known)
    assert every.progress.sometimes == reduced.progress.sometimes


def test_a_limit_ends_the_search_and_it_does_not_say_that_it_was_complete() -> None:
    result = explore(World(ONE_CRASH), Search(cores=1, most_states=100))
    assert not result.complete
    assert result.found is None
    assert 100 <= len(result.progress.known) < len(searched(ONE_CRASH.name).progress.known)


# --- with a fault -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", SOME_FAULTS)
def test_a_fault_is_found_for_its_own_rule_with_reduction_and_without(fault: str) -> None:
    for reduced in (True, False):
        found = hunted(fault, reduced=reduced).found
        assert found is not None
        assert found.rule in faults.find(fault).rules


@pytest.mark.parametrize("fault", SOME_FAULTS)
def test_depth_first_finds_no_shorter_trace(fault: str) -> None:
    breadth, depth = hunted(fault).found, hunted(fault, "depth").found
    assert breadth is not None
    assert depth is not None
    assert len(breadth.path) <= len(depth.path)


def test_breadth_first_finds_a_shortest_trace_which_trying_everything_shorter_confirms() -> None:
    found = hunted("timeout-releases").found
    assert found is not None
    world = faulty("timeout-releases")
    states: list[WorldState] = [beginning(world)]
    broken: list[str] = []
    length = 0
    while not broken:
        length += 1
        states = [after for state in states for after in _after(world, state, broken)]
    assert length == len(found.path)
    assert found.rule in broken


def _after(world: World, state: WorldState, broken: list[str]) -> list[WorldState]:
    """All successors; rules that a move breaks go to `broken`."""
    after = []
    for move in all_moves(world, state):
        try:
            after.append(apply(world, state, move).state)
        except Violation as violation:
            broken.append(violation.rule_id)
    return after


def test_two_cores_find_the_trace_that_one_finds() -> None:
    two = explore(faulty("stub-transfer"), Search(cores=2))
    assert two.found == hunted("stub-transfer").found
    assert two.progress.known == hunted("stub-transfer").progress.known


@pytest.mark.parametrize("fault", SOME_FAULTS)
def test_the_numbers_of_a_path_replay_to_the_same_violation(fault: str) -> None:
    found = hunted(fault).found
    assert found is not None
    moves = tuple(moves_of(faulty(fault), found.numbers))
    assert moves == found.path
    trace = retold(faulty(fault), moves, fault, "off", "again")
    assert (trace.rule, trace.violation) == (found.rule, found.message)
    assert len(trace.steps) == len(moves)


@pytest.mark.parametrize("bad", [(-1,), (999,), (0, 999)])
def test_a_number_that_names_no_move_is_no_path(bad: tuple[int, ...]) -> None:
    with pytest.raises(NoSuchPath, match=f"place {len(bad)}"):
        list(moves_of(World(ONE_CRASH), bad))


def test_a_path_that_goes_on_after_the_violation_is_no_path() -> None:
    found = hunted("free-while-writing").found
    assert found is not None
    with pytest.raises(NoSuchPath, match=f"place {len(found.numbers) + 1}"):
        list(moves_of(faulty("free-while-writing"), (*found.numbers, 0)))


# --- eventually ---------------------------------------------------------------------------------------------------


def test_a_world_that_goes_round_in_a_circle_has_no_outcome_and_is_a_violation() -> None:
    deaf = Decisions(cells={("prefill", Phase.SENT, Ack): lambda d, s, m: (s, ())})
    result = explore(World(replace(ALONE, budget=NOTHING_GOES_WRONG), deaf), Search(cores=1))
    assert result.complete
    assert result.found is not None
    assert result.found.rule == "I5"
    assert "circle" in result.found.message


def test_pages_that_stay_held_when_nothing_more_can_happen_are_a_violation() -> None:
    found = explore(World(ALONE, Decisions(may_release=lambda lease: False)), Search(cores=1)).found
    assert found is not None
    assert found.rule in ("I3", "I5", "I6")
