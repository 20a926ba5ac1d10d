"""Which states count as the same: those that no machine can tell apart, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from immutables import Map

from pagefence.pool.pages import PagePool, PageRef
from pagefence.protocol import handoff
from pagefence.protocol.messages import Receipt, Reservation, WorkerRef
from pagefence.sim.bounds import Budget
from pagefence.sim.canonical import Canon
from pagefence.sim.memory import Cell
from pagefence.sim.menu import all_moves, ordinary
from pagefence.sim.processes import KEY, DecodeProcess, PrefillProcess
from pagefence.sim.state import WorldState
from pagefence.sim.step import apply, beginning
from pagefence.sim.world import World

from .small import ALL, HANG_UPS

WORLD = World(ALL)
# Another name for a page of a worker: (worker, index, generation) -> (index, generation).
Renaming = Callable[[WorkerRef | None, int, int], tuple[int, int]]
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def walk(seed: int, steps: int) -> WorldState:
    """Where a random schedule leads."""
    random, state = Random(seed), beginning(WORLD)
    for _ in range(steps):
        moves = all_moves(WORLD, state)
        if not moves:
            break
        state = apply(WORLD, state, random.choice(moves)).state
    return state


def keys(state: WorldState) -> tuple[bytes, bytes]:
    return Canon().keys(state)


def renamed(value: Any, name: Renaming, home: WorkerRef | None = None) -> Any:
    """A copy of a state, or of a part of it, with every page called by its other name."""
    if isinstance(value, Budget):
        return value
    if isinstance(value, tuple):
        return tuple(renamed(item, name, home) for item in value)
    if isinstance(value, PageRef):
        return PageRef(*name(home, value.index, value.generation))
    if isinstance(value, PagePool):
        pages = dict(name(home, index, generation) for index, generation in enumerate(value.generations))
        number = {index: name(home, index, 0)[0] for index in range(len(pages))}
        return dataclasses.replace(
            value,
            generations=tuple(pages[index] for index in range(len(pages))),
            free=tuple(number[index] for index in value.free),
            leases=renamed(value.leases, name, home),
            retired=frozenset(number[index] for index in value.retired),
            cache=renamed(value.cache, name, home),
        )
    if isinstance(value, Map):
        return Map({key: renamed(item, name, home) for key, item in value.items()})
    if isinstance(value, PrefillProcess | DecodeProcess):
        memory = "memory" if isinstance(value, DecodeProcess) else "source"
        cells = Map(_cell(name, value.ref, index, cell) for index, cell in getattr(value, memory).items())
        rest = {f.name: renamed(getattr(value, f.name), name, value.ref) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **{**rest, memory: cells})
    if isinstance(value, Reservation | Receipt):
        home = value.decode
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        copy = type(value)(**{field: renamed(getattr(value, field), name, home) for field in names})
        return handoff.seal(KEY, copy) if isinstance(copy, Receipt) else copy
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: renamed(getattr(value, f.name), name, home) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


def _cell(name: Renaming, home: WorkerRef, index: int, cell: Cell) -> tuple[int, Cell]:
    other, generation = name(home, index, cell.generation)
    return other, dataclasses.replace(cell, generation=generation) if cell.room else cell


def permuting(process: PrefillProcess | DecodeProcess, random: Random) -> tuple[Renaming, bool]:
    """The pages of one worker in another order, and whether any has another name now."""
    order = list(range(len(process.state.pool.generations)))
    random.shuffle(order)

    def name(home: WorkerRef | None, index: int, generation: int) -> tuple[int, int]:
        return (order[index] if home == process.ref else index), generation

    return name, order != sorted(order)


def ageing(process: PrefillProcess | DecodeProcess, page: int) -> Renaming:
    """One page was let and released once more, long ago."""

    def name(home: WorkerRef | None, index: int, generation: int) -> tuple[int, int]:
        return index, generation + 2 * (home == process.ref and index == page)

    return name


def a_process(state: WorldState, random: Random) -> PrefillProcess | DecodeProcess | None:
    """A worker that is not yet reaped."""
    living = [process for process in state.processes if process is not None]
    return random.choice(living) if living else None


# --- the same -----------------------------------------------------------------------------------------------------


@QUICK
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 70))
def test_which_page_is_which_does_not_matter_now_or_later(seed: int, steps: int) -> None:
    state, random = walk(seed, steps), Random(seed)
    process = a_process(state, random)
    if process is None:
        return
    name, moved = permuting(process, random)
    other = renamed(state, name)
    assert keys(other)[0] == keys(state)[0]
    assert (keys(other)[1] != keys(state)[1]) == moved
    for _ in range(8):  # and no machine can tell: what follows is the same as well
        moves = all_moves(WORLD, state)
        assert all_moves(WORLD, other) == moves
        if not moves:
            break
        move = random.choice(moves)
        state, other = apply(WORLD, state, move).state, apply(WORLD, other, move).state
        assert keys(other)[0] == keys(state)[0], move


@QUICK
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 70))
def test_how_often_a_page_was_let_does_not_matter(seed: int, steps: int) -> None:
    state, random = walk(seed, steps), Random(seed)
    process = a_process(state, random)
    if process is None:
        return
    page = random.randrange(len(process.state.pool.generations))
    other = renamed(state, ageing(process, page))
    assert other != state
    assert keys(other)[0] == keys(state)[0]
    assert keys(other)[1] != keys(state)[1]


def test_the_order_of_messages_between_channels_does_not_matter() -> None:
    state = busy()
    assert len({(e.sender, e.receiver) for e in state.network}) > 1
    first, *rest = state.network
    later = [e for e in rest if (e.sender, e.receiver) == (first.sender, first.receiver)]
    others = [e for e in rest if e not in later]
    assert keys(changed(state, network=(*others, first, *later))) == keys(state)


def test_without_symmetry_every_renaming_is_another_state() -> None:
    state = busy()
    process = state.process("d1", ALL)
    assert process is not None
    name, moved = permuting(process, Random(1))
    assert moved
    plain = Canon(symmetry=False)
    assert plain.keys(renamed(state, name))[0] != plain.keys(state)[0]
    assert plain.keys(state)[0] == plain.keys(state)[1]


# --- not the same -------------------------------------------------------------------------------------------------


def busy() -> WorldState:
    """Both requests are under way: messages on several channels, leases, timers."""
    world = World(HANG_UPS)
    state = beginning(world)
    while not (state.submitted == 2 and len(state.network) > 1 and _decode(state).pool.leases):
        moves = ordinary(world, state)
        submit = [move for move in moves if move.kind == "submit"]
        state = apply(world, state, (submit or moves)[0]).state
    return state


def changed(state: WorldState, /, **changes: Any) -> WorldState:
    return dataclasses.replace(state, **changes)


def with_decode(state: WorldState, /, **changes: Any) -> WorldState:
    """The decode process changed."""
    processes = tuple(
        dataclasses.replace(process, **changes) if isinstance(process, DecodeProcess) else process
        for process in state.processes
    )
    return changed(state, processes=processes)


def _process(state: WorldState) -> DecodeProcess:
    return next(process for process in state.processes if isinstance(process, DecodeProcess))


def _decode(state: WorldState) -> Any:
    return _process(state).state


def _with_pool(state: WorldState, pool: PagePool) -> WorldState:
    return with_decode(state, state=dataclasses.replace(_decode(state), pool=pool))


def _swapped_in_the_page_table(state: WorldState) -> WorldState:
    pool = _decode(state).pool
    owner, lease = next(iter(pool.leases.items()))
    other = dataclasses.replace(lease, pages=tuple(reversed(lease.pages)))
    return _with_pool(state, dataclasses.replace(pool, leases=pool.leases.set(owner, other)))


def _of_another_owner(state: WorldState) -> WorldState:
    pool = _decode(state).pool
    owner, lease = next(iter(pool.leases.items()))
    room = msgspec.structs.replace(owner, counter=owner.counter + 1)
    leases = pool.leases.delete(owner).set(room, dataclasses.replace(lease, owner=room))
    return _with_pool(state, dataclasses.replace(pool, leases=leases))


def _in_another_tenancy(state: WorldState) -> WorldState:
    pool = _decode(state).pool
    page = next(iter(pool.leases.values())).pages[0].index
    generations = tuple(g + 2 * (index == page) for index, g in enumerate(pool.generations))
    return _with_pool(state, dataclasses.replace(pool, generations=generations))


def _with_bytes_of_another_tenant(state: WorldState) -> WorldState:
    process = _process(state)
    return with_decode(state, memory=process.memory.set(0, Cell(tokens=(1, 2), tenant="c")))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: changed(s, network=s.network[1:]), id="a message less"),
        pytest.param(lambda s: changed(s, network=(*s.network, s.network[0])), id="a message twice"),
        pytest.param(lambda s: changed(s, echoes=s.network[:1]), id="an old copy more"),
        pytest.param(lambda s: changed(s, timers=frozenset(list(s.timers)[1:])), id="a timer less"),
        pytest.param(lambda s: changed(s, budget=s.budget._replace(hang_up=0)), id="less may go wrong"),
        pytest.param(lambda s: changed(s, outcomes=s.outcomes.gone(1)), id="a client less"),
        pytest.param(lambda s: with_decode(s, crashed=True), id="a crashed worker"),
        pytest.param(_swapped_in_the_page_table, id="two pages swapped in a page table"),
        pytest.param(_of_another_owner, id="a page of another owner"),
        pytest.param(_in_another_tenancy, id="a page in another tenancy"),
        pytest.param(_with_bytes_of_another_tenant, id="other bytes in a page"),
    ],
)
def test_what_differs_in_something_real_is_another_state(change: Callable[[WorldState], WorldState]) -> None:
    state = busy()
    assert keys(change(state))[0] != keys(state)[0]


def test_a_broken_pool_that_has_another_page_twice_is_another_state() -> None:
    """After a double free; with I6 watched no search goes on from there, without it the searches differ."""
    state = beginning(World(HANG_UPS))
    pool = _decode(state).pool
    one, two = ((2, 1, 0, 0), (2, 2, 1, 0))
    assert len(pool.generations) == 3
    first = _with_pool(state, dataclasses.replace(pool, free=one))
    second = _with_pool(state, dataclasses.replace(pool, free=two))
    assert keys(first)[0] != keys(second)[0]
