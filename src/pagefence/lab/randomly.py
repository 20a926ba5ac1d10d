"""Many seeds of the simulator, on all cores, with or without a fault."""

from __future__ import annotations

import multiprocessing
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from random import Random

from pagefence.lab import faults
from pagefence.sim import weather
from pagefence.sim.crew import LostProcess, begin_as_child
from pagefence.sim.moves import Move
from pagefence.sim.simulator import Run, shrink, simulate
from pagefence.sim.world import World
from pagefence.sim.worlds import SOMETIMES

# It takes a hang-up in the one millisecond of a message's way: three in a thousand runs. Left to the explorer.
_BRIEF = "an abort overtook a start"


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
        enough = self.fault is None and self.runs * self.events >= 20_000
        return tuple(what for what in SOMETIMES if what != _BRIEF) if enough else ()

    def again(self, seed: int) -> str:
        """The command that repeats one seed."""
        flags = ["--fault", self.fault, "--guards", self.guards] if self.fault else []
        flags += ["--large"] if self.large else []
        flags += ["--seed", str(seed), "--runs", "1", "--events", str(self.events)]
        return shlex.join(["pagefence", "explore", "--random", *flags])


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
    """Every seed, in order. Raises LostProcess."""
    numbers = range(seeds.first, seeds.first + seeds.runs)
    if seeds.cores < 2 or seeds.runs < 2:
        yield from (_played(seeds, seed) for seed in numbers)
        return
    context = multiprocessing.get_context("fork")
    size = 1 if seeds.large else 16
    shares = [numbers[at : at + size] for at in range(0, seeds.runs, size)]
    ends, processes = [], []
    try:
        for core in range(min(seeds.cores, len(shares))):
            here, there = context.Pipe(duplex=False)
            args = (seeds, shares[core :: seeds.cores], there, os.getpid())
            processes.append(context.Process(target=_play_all, args=args, daemon=True))
            processes[-1].start()
            there.close()
            ends.append(here)
        for number in range(len(shares)):
            answer = ends[number % len(ends)].recv()
            if isinstance(answer, Exception):
                raise answer
            yield from answer
    except (EOFError, OSError):
        raise LostProcess from None
    finally:
        for process in processes:
            process.kill()  # not terminate: a child still being born would take that with our handler, and stay
            process.join()


def _play_all(seeds: Seeds, shares: list[range], end: Connection, parent: int) -> None:
    """A process of its own: its shares in order, each as one answer."""
    begin_as_child(parent)
    try:
        for share in shares:
            end.send([_played(seeds, seed) for seed in share])
    except Exception as error:  # a defect of ours: who waits must hear of it
        end.send(error)


def _played(seeds: Seeds, seed: int) -> Played:
    run = seeds.play(seed)
    return Played(seed, len(run.moves), run.rule, run.violation, run.sometimes, run.virtual_s, run.history)
