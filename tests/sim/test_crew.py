"""The processes that expand states come and go as one."""

from __future__ import annotations

import pytest

from pagefence.run import terminated_is_interrupted
from pagefence.sim.crew import Crew
from pagefence.sim.interrupts import put_off
from pagefence.sim.world import World
from pagefence.sim.worlds import WORLDS


@pytest.mark.timeout(60)
def test_a_crew_that_is_dismissed_while_it_is_still_being_born_is_gone() -> None:
    """A process takes signals with our handlers until it has set its own."""
    world = World(WORLDS["hang-ups"].bounds)
    with terminated_is_interrupted(), put_off():
        for _ in range(15):
            with Crew(world, 2, {}) as crew:
                processes = list(crew._processes)
            assert not any(process.is_alive() for process in processes)
