"""Admission as a step: what was true when counting began has to be true when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from pagefence.edge.admission import AdmissionSettings, Counted, ModelBounds, NeedsCount
from pagefence.edge.beside import Beside, Queue
from pagefence.edge.capacity import Capacity, Room
from pagefence.edge.demand import Admitted
from pagefence.edge.gates import LiveGate
from pagefence.edge.refusal import Refusal
from tests.edge.models import completion_of

BEFORE = Room(1000, 1000, "a pool")


@dataclass
class Live:
    """Capacities and counting at once: while it counts, what the engines hold becomes `after`."""

    after: Room | None
    room: Room | None = BEFORE
    bounds: ModelBounds = field(default_factory=lambda: ModelBounds(None, None, 0))

    @property
    def counter(self) -> Live:
        return self

    def now(self) -> Capacity:
        return Capacity(self.room, None if self.room else "silence", 0.0)

    async def count(self, needs: NeedsCount) -> Sequence[Counted]:
        self.room = self.after
        return [Counted(500, 500, 500)]


@pytest.mark.parametrize(
    ("after", "admitted"),
    [
        (BEFORE, True),
        (Room(2000, 2000, ""), True),
        (Room(100, 100, ""), False),
        (Room(1000, 9, ""), False),
        (None, False),
    ],
)
def test_a_pool_that_shrank_while_a_prompt_was_counted_admits_nothing(after: Room | None, admitted: bool) -> None:
    live = cast(Any, Live(after))
    gate = LiveGate(live, live, Beside(Queue(), "test"), AdmissionSettings())
    verdict = asyncio.run(gate.admit(completion_of("a prompt", max_tokens=5)))
    assert isinstance(verdict, Admitted) is admitted
    if isinstance(verdict, Refusal):
        assert (verdict.status, verdict.code) == (503, "capacity_unknown")
