"""Many seeds of the simulator, on all cores, with or without a fault."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from pagefence.lab import faults
from pagefence.sim import weather
from pagefence.sim.moves import Move
from pagefence.sim.simulator import Run, shrink, simulate
from pagefence.sim.step import World
from pagefence.sim.worlds import SOMETIMES


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds `first`, `first` + 1, ... of one kind of world."""

    first: int
    runs: int
    events: int
    large: bool = False
    fault: str | None = None
    guards: str = "off"
    cores: int = 2

    def world(self, random: Random) -> World:
        """A world of the kind. A fault brings the sizes in which it shows, and everything may go wrong in it."""
        if self.fault is None:
            return World(weather.large(random) if self.large else weather.small(random))
        small = faults.find(self.fault).small_world(self.guards)
        return replace(small, bounds=replace(small.bounds, budget=weather.UNLIMITED))

    def play(self, seed: int) -> Run:
        """One seed."""
        return simulate(seed, self.world, self.events)

    def shrunk(self, seed: int) -> tuple[World, tuple[Move, ...]]:
        """The small trace of a seed that breaks a rule, and its world."""
        run = self.play(seed)
        return run.world, shrink(run)

    def expected(self) -> tuple[str, ...]:
        """What enough seeds of the product must have seen."""
        return SOMETIMES if self.fault is None and self.runs * self.events >= 20_000 else ()

    def again(self, seed: int) -> str:
        """The command that repeats one seed."""
        fault = f" --fault {self.fault} --guards {self.guards}" if self.fault else ""
        large = " --large" if self.large else ""
        return f"pagefence explore --random{fault}{large} --seed {seed} --runs 1 --events {self.events}"


@dataclass(frozen=True, slots=True)
class Played:
    """What is kept of a run."""

    seed: int
    events: int
    rule: str | None
    violation: str | None
    sometimes: Counter[str]
    virtual_s: float
    history: str


def play_seeds(seeds: Seeds) -> Iterator[Played]:
    """Every seed, in order."""
    numbers = range(seeds.first, seeds.first + seeds.runs)
    if seeds.cores < 2 or seeds.runs < 2:
        yield from (_played(seeds, seed) for seed in numbers)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(seeds.cores, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap(partial(_played, seeds), numbers, chunksize=1 if seeds.large else 16)


def _played(seeds: Seeds, seed: int) -> Played:
    run = seeds.play(seed)
    return Played(seed, len(run.moves), run.rule, run.violation, run.sometimes, run.virtual_s, run.history)
