"""The slot pool's own check bites, and its counters fit where they are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pagefence.pool.generation import LAST_GENERATION, is_occupied, must_retire
from pagefence.pool.slots import Handle, NoFreeSlot, SlotPool, SlotState


def pool_in(state: SlotState) -> SlotPool[str]:
    """Two slots; the first is in this state."""
    pool = SlotPool[str].of(2)
    if state is SlotState.RETIRED:
        worn = replace(pool.slots[0], generation=LAST_GENERATION - 1)
        pool = replace(pool, slots=(worn, pool.slots[1]))
    if state is SlotState.FREE:
        return pool
    pool, (handle,) = pool.reserve()
    if state is SlotState.RETIRED:
        return pool.release(handle)
    return pool.fill(handle, "mine") if state is SlotState.VALID else pool


def first(pool: SlotPool[str], **fields: Any) -> SlotPool[str]:
    """The pool with something else in its first slot."""
    return replace(pool, slots=(replace(pool.slots[0], **fields), *pool.slots[1:]))


@pytest.mark.parametrize("state", SlotState)
def test_a_pool_in_use_is_sound(state: SlotState) -> None:
    pool = pool_in(state)
    pool.check()
    assert pool.slots[0].state is state
    assert [pool.count(each) for each in SlotState].count(1) == (0 if state is SlotState.FREE else 2)


@pytest.mark.parametrize("state", [SlotState.FREE, SlotState.RESERVED, SlotState.VALID])
def test_a_generation_of_the_other_kind_is_refused(state: SlotState) -> None:
    pool = pool_in(state)
    with pytest.raises(AssertionError):
        first(pool, generation=pool.slots[0].generation + 1).check()


@pytest.mark.parametrize("state", [SlotState.FREE, SlotState.RESERVED, SlotState.RETIRED])
def test_a_value_where_none_belongs_is_refused(state: SlotState) -> None:
    with pytest.raises(AssertionError):
        first(pool_in(state), value="somebody's").check()


def test_a_valid_slot_without_a_value_is_refused() -> None:
    empty = pool_in(SlotState.FREE).slots[0].value
    with pytest.raises(AssertionError):
        first(pool_in(SlotState.VALID), value=empty).check()


def test_slots_are_reserved_from_the_front_one_unless_more_are_asked_for() -> None:
    pool, handles = SlotPool[str].of(4).reserve()
    assert handles == (Handle(0, 1),)
    pool, handles = pool.reserve(2)
    assert handles == (Handle(1, 1), Handle(2, 1))
    with pytest.raises(NoFreeSlot, match="2 slots asked for, 1 free of 4"):
        pool.reserve(2)


def test_a_slot_that_is_released_leaves_the_others_as_they_were() -> None:
    pool, (a, b, c) = SlotPool[str].of(3).reserve(3)
    for handle, value in ((a, "a"), (b, "b"), (c, "c")):
        pool = pool.fill(handle, value)
    pool = pool.release(b)
    assert (pool.get(a), pool.get(c)) == ("a", "c")
    pool, handles = pool.reserve()
    assert handles == (Handle(1, 3),)


def test_a_generation_fits_eight_bytes_and_the_last_one_is_occupied() -> None:
    assert LAST_GENERATION.to_bytes(8) == b"\xff" * 8
    assert is_occupied(LAST_GENERATION)
    assert must_retire(LAST_GENERATION)
    assert not must_retire(LAST_GENERATION - 2)
