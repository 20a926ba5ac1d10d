"""Every interleaving of a small world: breadth first (the first violation has a shortest trace) or depth first.

States are known by their canonical keys (`canonical`). The frontier is expanded in batches by forked processes; their
answers are merged in order, so that breadth first a run to its end gives the same counts and the same trace however
many cores work on it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from pagefence.mistakes import Mistake
from pagefence.protocol.invariants import Violation
from pagefence.sim.canonical import Canon
from pagefence.sim.checkpoint import Checkpoint
from pagefence.sim.crew import Crew, Expanded
from pagefence.sim.interrupts import put_off
from pagefence.sim.menu import all_moves
from pagefence.sim.moves import Move
from pagefence.sim.state import WorldState
from pagefence.sim.step import apply, beginning
from pagefence.sim.world import World

Order = Literal["breadth", "depth"]
_Came = tuple[bytes, tuple[int, Expanded]]  # what came of a state: who expanded it, and its successors
_BATCH = 256
ROOT = b""
SAVE_EVERY_S = 120.0


class NoSuchPath(Mistake):
    """A path that this world does not have."""


@dataclass(frozen=True, slots=True)
class Search:
    """How to search. Whether symmetry and partial-order reduction are used is said by `World.reduced`."""

    order: Order = "breadth"
    cores: int = 2
    most_states: int | None = None
    most_seconds: float | None = None


@dataclass(slots=True)
class Progress:
    """How far a search has come.

    `known`: state -> the state it was first reached from, and the number of the move that led here from there.
    `calm`: state -> where the ordinary course of things leads next. `frontier`: known and not yet expanded.
    """

    known: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    calm: dict[bytes, bytes] = field(default_factory=dict)
    rest: set[bytes] = field(default_factory=set)
    frontier: deque[bytes] = field(default_factory=deque)
    raw: set[bytes] = field(default_factory=set)
    transitions: int = 0
    expanded: int = 0
    sometimes: set[str] = field(default_factory=set)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """A violation, and the moves that lead to it from the beginning of the world, also as numbers in their menus."""

    rule: str
    message: str
    path: tuple[Move, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a search has shown. `complete`: every reachable state was visited. `rests`: from each of them the ordinary
    course of things was followed to rest; False where that was not asked, or not for every state."""

    progress: Progress
    found: Found | None
    complete: bool
    memory_bytes: int
    rests: bool = False


def explore(
    world: World,
    search: Search,
    tell: Callable[[Progress], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Search the world, or go on where `checkpoint` stands. Returns at the first violation, at the end, or at a limit.

    Raises KeyboardInterrupt after the checkpoint was written.
    """
    p, states = (checkpoint.load() if checkpoint else None) or _begin(world)
    run = _Run(world, search, p, tell, checkpoint)
    with put_off() as interrupted:
        if search.cores > 1:
            # Alone until there is something for everyone, for what a process has reached stays with it.
            states = run.on(1, states, lambda: interrupted() or len(p.frontier) >= _BATCH)
        if p.frontier and run.found is None:
            run.on(search.cores, states, interrupted)
    complete = not p.frontier and run.found is None
    asked = complete and "I5" in world.watched and not world.only_harm
    if asked:
        run.found = _never_rests(world, p)
    return Result(p, run.found, complete, run.memory_bytes, rests=asked and run.found is None)


class _Run:
    """A search under way: what was found, and how long it has taken."""

    def __init__(
        self,
        world: World,
        search: Search,
        p: Progress,
        tell: Callable[[Progress], None] | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.world, self.search, self.p = world, search, p
        self.tell, self.checkpoint = tell, checkpoint
        self.found: Found | None = None
        self.memory_bytes = 0
        self._saved = self._started = time.monotonic()
        self._before = p.seconds

    def on(self, cores: int, states: dict[bytes, WorldState], enough: Callable[[], bool]) -> dict[bytes, WorldState]:
        """Search until the end, a violation, a limit, or `enough`; gives the states of the frontier.

        Breadth first, a batch is merged while the next one is being expanded.
        """
        p, came = self.p, list[_Came]()
        with Crew(self.world, cores, states) as crew:
            while (p.frontier or came) and self.found is None and not _spent(p, self.search) and not enough():
                batch = _take(p, self.search, cores)
                crew.even_out(batch)
                crew.begin(batch)
                self._merge(came, crew)
                came = list(zip(batch, crew.finish(), strict=True))
                save = self._save_is_due()
                if save or self.search.order == "depth":
                    self._merge(came, crew)
                    came = []
                if save:
                    self._save(crew.states(p.frontier))
                if self.tell is not None:
                    self.tell(p)
            self._merge(came, crew)
            left = {} if self.found else crew.states(p.frontier)
            if left:
                self._save(left)
        self.memory_bytes = crew.memory_bytes
        return left

    def _merge(self, came: list[_Came], crew: Crew) -> None:
        for key, (keeper, expanded) in came:
            self.found = self.found or _merge(self.world, self.p, key, keeper, expanded, crew)
        self.p.seconds = self._before + time.monotonic() - self._started

    def _save_is_due(self) -> bool:
        return self.checkpoint is not None and time.monotonic() - self._saved > SAVE_EVERY_S

    def _save(self, states: dict[bytes, WorldState]) -> None:
        if self.checkpoint is not None and self.found is None:
            self.checkpoint.save(self.p, states)
            self._saved = time.monotonic()


def _begin(world: World) -> tuple[Progress, dict[bytes, WorldState]]:
    state = beginning(world)
    key, raw = Canon(symmetry=world.reduced).keys(state)
    p = Progress(known={key: (ROOT, 0)}, raw={raw}, frontier=deque([key]))
    return p, {key: state}


def _take(p: Progress, search: Search, cores: int) -> list[bytes]:
    """The next states to expand: the oldest, or for depth first the newest."""
    count = min(len(p.frontier), _BATCH * cores if search.order == "breadth" else cores)
    take = p.frontier.popleft if search.order == "breadth" else p.frontier.pop
    return [take() for _ in range(count)]


def _spent(p: Progress, search: Search) -> bool:
    too_many = search.most_states is not None and len(p.known) >= search.most_states
    return too_many or (search.most_seconds is not None and p.seconds >= search.most_seconds)


def _merge(world: World, p: Progress, key: bytes, keeper: int, expanded: Expanded, crew: Crew) -> Found | None:
    p.expanded += 1
    p.transitions += len(expanded.successors)
    p.sometimes |= expanded.sometimes
    if expanded.rests:
        p.rest.add(key)
    if expanded.calm is not None:
        p.calm[key] = expanded.calm
    if expanded.broken is not None:
        rule, message, number = expanded.broken
        return _found(world, p, rule, message, key, number)
    for successor, raw, number, kept in expanded.successors:
        p.raw.add(raw)
        if successor not in p.known:
            p.known[successor] = (key, number)
            p.frontier.append(successor)
            crew.keep(successor, keeper)
        elif kept:
            crew.forget(successor, keeper)
    return None


def _found(world: World, p: Progress, rule: str, message: str, key: bytes, last: int | None) -> Found:
    """A violation in the state `key`, or in its move number `last`."""
    numbers = [] if last is None else [last]
    while p.known[key][0]:
        key, number = p.known[key]
        numbers.append(number)
    numbers.reverse()
    return Found(rule, message, tuple(moves_of(world, numbers)), tuple(numbers))


def moves_of(world: World, numbers: Iterable[int]) -> Iterator[Move]:
    """The moves that a path of numbers names. Raises NoSuchPath where a number names none."""
    state, over = beginning(world), False
    for place, number in enumerate(numbers):
        menu = [] if over else all_moves(world, state)
        if not 0 <= number < len(menu):
            raise NoSuchPath(f"number {number} at place {place + 1} of the path names no move: there are {len(menu)}")
        yield menu[number]
        try:
            state = apply(world, state, menu[number]).state
        except Violation:
            over = True


def _never_rests(world: World, p: Progress) -> Found | None:
    """Eventually: from every state the ordinary course of things leads to rest.

    The fairness that is assumed: nothing more goes wrong, and what can happen again and again is not put off for ever.
    """
    good = set(p.rest)
    for start in p.known:
        trail: list[bytes] = []
        key, on_trail = start, set[bytes]()
        while key not in good:
            if key in on_trail or key not in p.calm:
                message = "I5 one outcome: the ordinary course of things goes round in a circle and never comes to rest"
                return _found(world, p, "I5", message, start, None)
            on_trail.add(key)
            trail.append(key)
            key = p.calm[key]
        good.update(trail)
    return None
