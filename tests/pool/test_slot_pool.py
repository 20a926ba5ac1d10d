"""What the slot pool promises: reserved is not valid, stale is refused, released is forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagefence.pool.generation import LAST_GENERATION
from pagefence.pool.slots import (
    AlreadyValid,
    Handle,
    NoFreeSlot,
    NotValid,
    SlotPool,
    SlotState,
    StaleHandle,
)

SIZE = 4


def worn(pool: SlotPool[str], generations: list[int]) -> SlotPool[str]:
    """The pool after a very long life."""
    slots = (replace(slot, generation=generation) for slot, generation in zip(pool.slots, generations, strict=True))
    return replace(pool, slots=tuple(slots))


def test_a_reserved_slot_has_nothing_to_show_until_it_is_filled() -> None:
    pool, (handle,) = SlotPool[str].of(1).reserve()
    with pytest.raises(NotValid):
        pool.get(handle)
    assert pool.fill(handle, "mine").get(handle) == "mine"


def test_none_is_a_value_like_any_other() -> None:
    pool, (handle,) = SlotPool[None].of(1).reserve()
    pool = pool.fill(handle, None)
    pool.check()
    pool.get(handle)


def test_a_slot_is_filled_once_per_tenancy() -> None:
    pool, (handle,) = SlotPool[str].of(1).reserve()
    pool = pool.fill(handle, "first")
    with pytest.raises(AlreadyValid):
        pool.fill(handle, "second")


def test_a_reservation_takes_all_or_none() -> None:
    pool, _ = SlotPool[str].of(3).reserve(2)
    with pytest.raises(NoFreeSlot):
        pool.reserve(2)
    assert pool.count(SlotState.FREE) == 1


def test_a_handle_is_stale_after_release_and_after_the_slot_is_let_again() -> None:
    pool, (old,) = SlotPool[str].of(1).reserve()
    released = pool.fill(old, "a").release(old)
    let_again, (new,) = released.reserve()
    let_again = let_again.fill(new, "b")
    for later in (released, let_again):
        for use in (later.get, later.release, lambda handle, pool=later: pool.fill(handle, "c")):
            with pytest.raises(StaleHandle):
                use(old)
    assert let_again.get(new) == "b"


def test_a_handle_to_nowhere_is_stale() -> None:
    for index in (-1, 1):
        with pytest.raises(StaleHandle):
            SlotPool[str].of(1).get(Handle(index, 1))


def test_a_released_slot_remembers_nothing() -> None:
    pool, (handle,) = SlotPool[str].of(1).reserve()
    assert "secret" not in repr(pool.fill(handle, "secret").release(handle))


def test_a_slot_whose_generation_would_wrap_is_retired() -> None:
    pool, (handle,) = worn(SlotPool[str].of(1), [LAST_GENERATION - 1]).reserve()
    pool = pool.fill(handle, "last").release(handle)
    pool.check()
    assert pool.count(SlotState.RETIRED) == 1
    with pytest.raises(StaleHandle):
        pool.get(handle)
    with pytest.raises(NoFreeSlot):
        pool.reserve()


class SlotsUnderUse(RuleBasedStateMachine):
    """A model beside the pool: what each live handle may show, and every handle that is over."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = SlotPool[str].of(SIZE)
        self.live: dict[Handle, str | None] = {}
        self.over: set[Handle] = set()
        self.retired = 0
        self.filled = 0

    @initialize(start=st.lists(st.sampled_from([0, LAST_GENERATION - 3, LAST_GENERATION - 1]), min_size=4, max_size=4))
    def some_slots_are_near_the_end_of_their_counter(self, start: list[int]) -> None:
        self.pool = worn(self.pool, start)

    @rule(count=st.integers(1, SIZE))
    def reserve(self, count: int) -> None:
        if count > SIZE - self.retired - len(self.live):
            with pytest.raises(NoFreeSlot):
                self.pool.reserve(count)
            return
        self.pool, handles = self.pool.reserve(count)
        assert not self.over & set(handles), "a handle came back"
        self.live |= dict.fromkeys(handles)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def fill(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(list(self.live)))
        self.filled += 1
        value = f"value {self.filled}"
        if self.live[handle] is not None:
            with pytest.raises(AlreadyValid):
                self.pool.fill(handle, value)
            return
        self.pool = self.pool.fill(handle, value)
        self.live[handle] = value

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(list(self.live)))
        self.pool = self.pool.release(handle)
        self.retired += handle.generation == LAST_GENERATION
        del self.live[handle]
        self.over.add(handle)

    @invariant()
    def the_pool_is_whole(self) -> None:
        self.pool.check()
        assert sum(self.pool.count(state) for state in SlotState) == SIZE
        assert self.pool.count(SlotState.FREE) == SIZE - self.retired - len(self.live)

    @invariant()
    def every_handle_shows_its_own_value_or_nothing(self) -> None:
        for handle, value in self.live.items():
            if value is None:
                with pytest.raises(NotValid):
                    self.pool.get(handle)
            else:
                assert self.pool.get(handle) == value
        for handle in self.over:
            with pytest.raises(StaleHandle):
                self.pool.get(handle)


TestSlotsUnderUse = SlotsUnderUse.TestCase
TestSlotsUnderUse.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
