"""Faults of slots, identities, the prefix cache and streams: each is found for its own reason, or contained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pagefence.lab.faults import FAULTS
from pagefence.lab.faults.hash_collision import weak_key
from pagefence.lab.faults.salt_dropped import unsalted_key
from pagefence.lab.worlds import PAIR
from pagefence.pool.pages import StalePage
from pagefence.protocol.decisions import Decisions
from pagefence.sim.bounds import Ask
from pagefence.sim.explorer import Search, explore
from pagefence.sim.world import World

ONE_CORE = Search(cores=1, most_seconds=60)
# The rule that is found first with guards off, and the words that only this fault's reason has.
REASONS = {
    "metadata-race": ("I10", "the client of request 0 got"),
    "sentinel-slot": ("I2", "a padding row of d1#1 wrote into page 2, which is let"),
    "double-free": ("I6", r"pages in no place or in two: \[0, 0, 1, 1, 2, 2\] of 3"),
    "page-leak": ("I6", r"pages in no place or in two: \[0, 1\] of 3"),
    "duplicate-room": ("I9", "is minted for request 1 and was request 0's"),
    "client-topology": ("I9", "is started on a reservation that decode did not make"),
    "hash-collision": ("I7", "is shared by .* of another isolation key"),
    "salt-dropped": ("I7", "is shared by .* of another isolation key"),
    "shared-without-key": ("I7", "the forward pass of .* reads page 0, which was computed for a"),
    "stream-swap": ("I10", "the client of request 1 got"),
}
# What a client could notice. The other rules are broken inside, where a guard may still contain what follows.
AT_THE_CLIENT = frozenset({"I1", "I3", "I5", "I7", "I10"})
# With every guard in force: what none of them holds, and the first rule that a client could then notice.
HELD_BY_NO_GUARD = {
    "metadata-race": "I10",
    "sentinel-slot": "I1",
    "duplicate-room": "I5",
    "hash-collision": "I7",
    "salt-dropped": "I7",
    "shared-without-key": "I7",
    "stream-swap": "I10",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REASONS)
def test_nothing_is_found_in_its_world_without_it(name: str) -> None:
    assert explore(World(FAULTS[name].bounds), replace(ONE_CORE, most_states=500)).found is None


@pytest.mark.parametrize("name", HELD_BY_NO_GUARD)
def test_no_guard_holds_it(name: str) -> None:
    world = replace(FAULTS[name].small_world("on"), watched=AT_THE_CLIENT)
    found = explore(world, ONE_CORE).found
    assert found is not None
    assert found.rule == HELD_BY_NO_GUARD[name]


def test_a_write_to_pages_that_a_client_named_is_contained_by_frames_and_by_the_hand_off_check() -> None:
    fault = FAULTS["client-topology"]
    result = explore(replace(fault.small_world("on"), watched=AT_THE_CLIENT), ONE_CORE)
    assert result.found is None
    assert result.complete
    assert {"contained by page-frames", "contained by handoff-check"} <= result.progress.sometimes


def test_a_leaked_page_reaches_no_client() -> None:
    result = explore(replace(FAULTS["page-leak"].small_world("on"), watched=AT_THE_CLIENT), ONE_CORE)
    assert result.found is None
    assert result.complete


def test_the_second_owner_of_a_page_freed_twice_is_given_away_by_its_generation() -> None:
    bounds = replace(PAIR, asks=(Ask("a", 2, 1), Ask("b", 2), Ask("c", 2)), prefill_pages=1)
    world = replace(replace(FAULTS["double-free"], bounds=bounds).small_world("on"), watched=AT_THE_CLIENT)
    with pytest.raises(StalePage):
        explore(world, replace(ONE_CORE, order="depth"))


@pytest.mark.parametrize(
    ("name", "decisions"),
    [
        ("hash-collision", replace(Decisions(), cache_key=weak_key)),
        ("salt-dropped", replace(Decisions(), cache_key=unsalted_key)),
    ],
)
def test_a_wrong_key_alone_does_no_harm_for_the_content_is_compared(name: str, decisions: Decisions) -> None:
    result = explore(World(FAULTS[name].bounds, decisions), ONE_CORE)
    assert result.found is None
    assert result.complete
