"""A pool of slots for any resource that is reserved first and filled later.

The discipline is the one that pages follow (`pagefence.pool.pages`): a released slot is reset, a stale handle is
refused, and only a slot whose state *is* VALID may be used. "Not finished" is not a substitute for "valid": in the
incident of August 2026 a rejected request passed every queue because the queues asked the first question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Generic, TypeVar, cast

from pagefence.pool.generation import is_occupied, must_retire

T = TypeVar("T")


class SlotError(Exception):
    """Base of everything a slot pool refuses."""


class NoFreeSlot(SlotError):
    """Fewer free slots than asked for; nothing was reserved."""


class StaleHandle(SlotError):
    """The handle's tenancy is over: the slot is free, retired or let again."""


class NotValid(SlotError):
    """The slot is reserved but was never filled, so it has nothing of its owner's to show."""


class AlreadyValid(SlotError):
    """The slot was filled before; filling is done once per tenancy."""


class SlotState(Enum):
    FREE = "free"
    RESERVED = "reserved"
    VALID = "valid"
    RETIRED = "retired"


class _Empty(Enum):
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Handle:
    """A claim to one slot during one tenancy."""

    index: int
    generation: int


@dataclass(frozen=True, slots=True)
class _Slot(Generic[T]):
    generation: int = 0
    state: SlotState = SlotState.FREE
    value: T | _Empty = _Empty.EMPTY


@dataclass(frozen=True, slots=True)
class SlotPool(Generic[T]):
    """An immutable pool: every operation returns the next pool."""

    slots: tuple[_Slot[T], ...]

    @classmethod
    def of(cls, size: int) -> SlotPool[T]:
        """A pool of `size` free slots."""
        empty: _Slot[T] = _Slot()  # not _Slot[T](): on 3.11 a frozen slotted dataclass cannot be made through its alias
        return cls((empty,) * size)

    def reserve(self, count: int = 1) -> tuple[SlotPool[T], tuple[Handle, ...]]:
        """Reserve `count` slots, all or none. Raises NoFreeSlot."""
        free = [i for i, slot in enumerate(self.slots) if slot.state is SlotState.FREE][:count]
        if len(free) < count:
            raise NoFreeSlot(f"{count} slots asked for, {len(free)} free of {len(self.slots)}")
        slots = list(self.slots)
        for i in free:
            slots[i] = _Slot(slots[i].generation + 1, SlotState.RESERVED)
        return replace(self, slots=tuple(slots)), tuple(Handle(i, slots[i].generation) for i in free)

    def fill(self, handle: Handle, value: T) -> SlotPool[T]:
        """RESERVED -> VALID. Raises StaleHandle, AlreadyValid."""
        if self._held(handle).state is SlotState.VALID:
            raise AlreadyValid(f"slot {handle.index} was filled before in generation {handle.generation}")
        return self._with(handle.index, _Slot(handle.generation, SlotState.VALID, value))

    def get(self, handle: Handle) -> T:
        """The value of a VALID slot. Raises StaleHandle, NotValid."""
        slot = self._held(handle)
        if slot.state is not SlotState.VALID:
            raise NotValid(f"slot {handle.index} is {slot.state.value}, not valid")
        return cast(T, slot.value)

    def release(self, handle: Handle) -> SlotPool[T]:
        """Free the slot and forget its value. Raises StaleHandle."""
        self._held(handle)
        if must_retire(handle.generation):
            return self._with(handle.index, _Slot(handle.generation, SlotState.RETIRED))
        return self._with(handle.index, _Slot(handle.generation + 1))

    def count(self, state: SlotState) -> int:
        """How many slots are in `state`."""
        return sum(slot.state is state for slot in self.slots)

    def check(self) -> None:
        """Raise AssertionError unless every slot's generation, state and value agree."""
        for i, slot in enumerate(self.slots):
            occupied = slot.state in (SlotState.RESERVED, SlotState.VALID)
            assert slot.state is SlotState.RETIRED or is_occupied(slot.generation) == occupied, f"slot {i}: {slot}"
            assert (slot.value is not _Empty.EMPTY) == (slot.state is SlotState.VALID), f"slot {i}: {slot}"

    def _held(self, handle: Handle) -> _Slot[T]:
        if not 0 <= handle.index < len(self.slots):
            raise StaleHandle(f"no slot {handle.index} in a pool of {len(self.slots)}")
        slot = self.slots[handle.index]
        if slot.generation != handle.generation or slot.state not in (SlotState.RESERVED, SlotState.VALID):
            raise StaleHandle(f"slot {handle.index}: generation {handle.generation} is over, now {slot.generation}")
        return slot

    def _with(self, index: int, slot: _Slot[T]) -> SlotPool[T]:
        return replace(self, slots=(*self.slots[:index], slot, *self.slots[index + 1 :]))
