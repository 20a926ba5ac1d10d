"""One decision or one cell of a table replaced: each is caught for its own rule, or contained by a guard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pagefence.lab import faults, guards
from pagefence.lab.fault import SMALL
from pagefence.lab.worlds import SHORT_PREFILL
from pagefence.pool.pages import Lease
from pagefence.protocol import decode, decode_state, prefill
from pagefence.protocol.decisions import GUARDS, Decisions
from pagefence.protocol.effects import End, Refuse, Send
from pagefence.protocol.messages import Abort, Drained, Landed, Rejected, Start, Timer, WriteFailed
from pagefence.sim.bounds import Budget
from pagefence.sim.explorer import Search, explore
from pagefence.sim.world import World

from .small import IN_DOUBT, calmly

INCIDENT = faults.find("stub-transfer")


# --- the incident -------------------------------------------------------------------------------------------------


def test_the_incident_without_guards_reads_what_another_room_left_behind() -> None:
    world = INCIDENT.small_world("off")
    assert not {"handoff-check", "page-frames", "zero-on-lease"} & set(world.decisions.guards)
    found = explore(replace(world, watched=frozenset({"I1"})), Search(cores=1)).found
    assert found is not None
    assert found.rule == "I1"
    assert "which holds Cell(room=Room" in found.message


@pytest.mark.parametrize(
    ("guard", "rule"), [pytest.param("handoff-check", "I4", id="I4"), pytest.param("page-frames", "I1", id="I1")]
)
def test_the_incident_is_contained_by_one_guard_alone(guard: str, rule: str) -> None:
    world = replace(INCIDENT.small_world(guard), watched=frozenset({"I1", "I2", "I5", "I7", "I10"}))
    assert world.decisions.guards == (guard,)
    state, effects, sometimes = calmly(world)
    assert f"contained by {guard}" in sometimes
    (refusal,) = [effect for _, effect in effects if isinstance(effect, Refuse)]
    assert (refusal.error.status, refusal.error.rule, refusal.error.guard) == (500, rule, guard)
    assert refusal.ticket == 1
    assert refusal.ticket not in state.outcomes.begun
    assert isinstance(state.outcomes.ended[0], End), "the other tenant's request goes well"


def test_a_prompt_over_the_prefill_pool_gets_prefills_own_error_and_no_byte_of_a_body() -> None:
    inside = tuple(guard for guard in GUARDS if guard not in INCIDENT.outside)
    world = World(SHORT_PREFILL, guards.without(Decisions(), inside))
    state, effects, sometimes = calmly(replace(world, watched=world.watched - {"I8"}))
    outcome = state.outcomes.ended[1]
    assert isinstance(outcome, Refuse)
    assert (outcome.error.status, outcome.error.code, outcome.error.guard) == (400, "context_length_exceeded", None)
    pool = SHORT_PREFILL.prefill_pages * SHORT_PREFILL.page_size
    assert f"maximum context length is {pool} tokens" in outcome.error.message
    assert Rejected(next(room for room, ticket in state.minted.items() if ticket == 1), outcome.error) in [
        effect.body for who, effect in effects if isinstance(effect, Send) and who.name == "p1"
    ]
    assert 1 not in state.outcomes.begun
    assert "a client got HTTP 400" in sometimes


def test_freeing_pages_while_a_write_is_in_flight_is_caught_where_the_write_lands() -> None:
    released = Decisions(may_release=_at_once)
    found = explore(World(SMALL, released), Search(cores=1)).found
    assert found is not None
    assert found.rule == "I2"
    assert found.path[-1].kind == "land"


def _at_once(_: Lease) -> bool:
    return True


# --- a write that failed is taken for one that is over ------------------------------------------------------------


def _says_drained(d: Decisions, s: prefill.PrefillState, m: WriteFailed) -> prefill.Step:
    after, effects = prefill.write_failed(d, s, m)
    return after, (*effects, Send(s.requests[m.room].decode, Drained(m.room)))


def _counts_as_landed(d: Decisions, s: prefill.PrefillState, m: WriteFailed) -> prefill.Step:
    return prefill.landed(d, s, Landed(m.room, m.stop, (b"made up", b"made up")))


def _lets_go_of_the_source(d: Decisions, s: prefill.PrefillState, m: WriteFailed) -> prefill.Step:
    return prefill._settle(d, s, m.room)


@pytest.mark.parametrize(
    ("rule", "broken", "moves"),
    [(_says_drained, "I2", 8), (_counts_as_landed, "I1", 10), (_lets_go_of_the_source, "I1", 7)],
)
def test_a_failed_write_that_is_taken_for_over_is_caught_when_it_lands_all_the_same(
    rule: Any, broken: str, moves: int
) -> None:
    cell = ("prefill", prefill.Phase.COMPUTING, WriteFailed)
    found = explore(World(IN_DOUBT, Decisions(cells={cell: rule})), Search(cores=1)).found
    assert found is not None
    assert (found.rule, found.path[-1].kind, len(found.path)) == (broken, "land-late", moves)


# --- one cell of a table replaced ---------------------------------------------------------------------------------


def _release_by_timer(d: Decisions, s: decode_state.DecodeState, m: Timer) -> decode.Step:
    pool = s.pool
    for holder in pool.lease_of(m.room).holders:
        pool = pool.drained(m.room, holder)
    return decode._leave(d, replace(s, pool=pool), m.room)


def _settle_with_writes_in_flight(d: Decisions, s: prefill.PrefillState, m: Abort) -> prefill.Step:
    return prefill._settle(d, s, m.room)


@pytest.mark.parametrize(
    ("cell", "rule", "broken"),
    [
        pytest.param(
            ("prefill", prefill.Phase.OVER, Start), prefill.start_arrives, {"I2", "I5"}, id="no tombstone"
        ),
        pytest.param(
            ("prefill", prefill.Phase.COMPUTING, Abort), _settle_with_writes_in_flight, {"I1", "I2"}, id="no drain"
        ),
        pytest.param(
            ("decode", decode_state.Phase.QUARANTINED, Timer), _release_by_timer, {"I2"}, id="timer releases"
        ),
        pytest.param(
            ("decode", decode_state.Phase.RESERVED, Abort), decode.prefill_is_drained, {"I2"}, id="router's word"
        ),
    ],
)  # fmt: skip
def test_a_wrong_cell_in_a_table_is_caught(cell: Any, rule: Any, broken: set[str]) -> None:
    bounds = replace(SMALL, budget=Budget(hang_up=1, early=1))
    found = explore(World(bounds, Decisions(cells={cell: rule})), Search(cores=1, most_states=3_000)).found
    assert found is not None
    assert found.rule in broken
