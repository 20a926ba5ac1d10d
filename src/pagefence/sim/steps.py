"""Steps that a machine has taken before: many schedules tell a worker the same in the same state.

A search is faster for it twice over: the step is not taken again, and equal states of a machine are one object, whose
shape for the key is known (`canonical`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pagefence.protocol.effects import Effects

_KEEP = 100_000


@dataclass(slots=True)
class Step:
    """A machine in the state `before` was told something. `sound`: the rules were checked in the state after it."""

    before: object
    state: Any
    effects: Effects
    sound: bool = False


class Steps:
    """Known by the very object that the state before is (each is kept, so no other can take its place), and message."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Any], Step] = {}

    def take(self, step: Callable[[Any, Any], tuple[Any, Effects]], state: object, message: Any) -> Step:
        """The step, now or from before. `step` must be pure, and the same for every state that it is asked with."""
        key = (id(state), message)
        known = self._known.get(key)
        if known is None:
            if len(self._known) > _KEEP:
                self._known.clear()
            known = self._known[key] = Step(state, *step(state, message))
        return known
