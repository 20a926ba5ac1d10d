"""One seeded history of a world in virtual time, hostile at first and then fair until everything has come to rest.

Every possible move has a rate; which comes next, and after how long, is drawn as from a continuous-time Markov chain
(Gillespie 1977), so faults are weighted and time is virtual. Timers fire when they are due. One seed gives one history,
bit for bit, on any machine: nothing but the seed is drawn upon, and nothing depends on the order of a hash.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from pagefence.protocol.effects import SetTimer
from pagefence.protocol.invariants import Violation
from pagefence.protocol.messages import Timer, WorkerRef
from pagefence.sim.bounds import Bounds
from pagefence.sim.crew import not_at_rest
from pagefence.sim.menu import course, mishaps, timer_move
from pagefence.sim.moves import Move
from pagefence.sim.state import WorldState
from pagefence.sim.step import apply, beginning
from pagefence.sim.weather import Weather, weather
from pagefence.sim.world import NotPossible, World

PATIENCE = 50  # ordinary moves per request, in the fair part, before the world counts as restless


@dataclass(frozen=True, slots=True)
class Run:
    """What one seed did. `history` names it: equal for equal histories."""

    seed: int
    world: World
    moves: tuple[Move, ...]
    rule: str | None
    violation: str | None
    sometimes: Counter[str]
    virtual_s: float
    history: str


def simulate(seed: int, world_of: Callable[[Random], World], hostile_events: int) -> Run:
    """Play one seed: `hostile_events` moves with everything that goes wrong, then fair ones until rest."""
    random = Random(seed)
    world = world_of(random)
    play = _Play(world, weather(random), random)
    rule = violation = None
    try:
        play.until_rest(hostile_events)
    except Violation as broken:
        rule, violation = broken.rule_id, str(broken)
    said = "\n".join(map(str, play.moves)) + repr(rule)
    history = hashlib.blake2b(said.encode(), digest_size=8).hexdigest()
    return Run(seed, world, tuple(play.moves), rule, violation, play.sometimes, play.clock, history)


@dataclass(slots=True)
class _Play:
    world: World
    weather: Weather
    random: Random
    clock: float = 0.0
    moves: list[Move] = field(default_factory=list)
    sometimes: Counter[str] = field(default_factory=Counter)
    due: list[tuple[float, str, WorkerRef, Timer]] = field(default_factory=list)
    state: WorldState = field(init=False)

    def __post_init__(self) -> None:
        self.state = beginning(self.world)

    def until_rest(self, hostile_events: int) -> None:
        """Raises Violation on the first broken rule, and when the world does not come to rest (I5)."""
        limit = hostile_events + PATIENCE * (len(self.world.bounds.asks) + len(self.world.names)) * 4
        while len(self.moves) < limit:
            hostile = len(self.moves) < hostile_events
            ordinary = list(course(self.world, self.state))
            wrong = list(mishaps(self.state, busy=True)) if hostile and ordinary else []
            move = self._next(ordinary + wrong)
            if move is None:
                broken = not_at_rest(self.world, self.state)
                if broken:
                    raise Violation(broken[0], broken[1])
                return
            self._do(move)
        raise Violation("I5", "the world does not come to rest")

    def _next(self, moves: list[Move]) -> Move | None:
        """Draw a move and the time that passes; a timer that is due before goes first."""
        rates = [self.weather.rate(move.kind) for move in moves]
        total = math.fsum(rates)
        at = self.clock - math.log(1.0 - self.random.random()) / total if total else math.inf
        while self.due and self.due[0][0] <= at:
            when, _, ref, timer = heapq.heappop(self.due)
            if (ref, timer) not in self.state.timers:
                continue
            if self._is_down(ref):
                heapq.heappush(self.due, (at + 1.0 if total else when + 1.0, str(timer), ref, timer))
                continue
            self.clock = max(self.clock, when)
            return timer_move("timer", self.state, ref, timer)
        if not total:
            return None
        self.clock = at
        return self.random.choices(moves, rates)[0]

    def _is_down(self, ref: WorkerRef) -> bool:
        return any(p is not None and p.ref == ref and p.crashed for p in self.state.processes)

    def _do(self, move: Move) -> None:
        self.moves.append(move)
        outcome = apply(self.world, self.state, move)
        self.state = outcome.state
        self.sometimes.update(outcome.sometimes)
        for who, effect in outcome.effects:
            if isinstance(effect, SetTimer):
                timer = Timer(effect.room, effect.kind)
                heapq.heappush(self.due, (self.clock + effect.seconds, str(timer), who, timer))


# --- shrinking ----------------------------------------------------------------------------------------------------


def breaks(world: World, moves: list[Move]) -> tuple[str, int] | None:
    """The rule that a list of moves breaks, and after how many; moves that do not fit are passed over."""
    state = beginning(world)
    for number, move in enumerate(moves, 1):
        try:
            state = apply(world, state, move).state
        except NotPossible:
            continue
        except Violation as violation:
            return violation.rule_id, number
    return None


def shrink(run: Run, tell: Callable[[int], None] | None = None) -> tuple[Move, ...]:
    """A small list of moves that breaks the same rule: whole requests are left out first, then ever smaller pieces.

    A run that broke no rule on the way, but did not come to rest, is given back as it is.
    """
    world, rule = run.world, run.rule
    moves = list(run.moves)

    def still(candidate: list[Move]) -> list[Move] | None:
        found = breaks(world, candidate)
        return candidate[: found[1]] if found is not None and found[0] == rule else None

    if still(moves) is None:
        return run.moves
    for ticket in sorted({move.ticket for move in moves if move.ticket is not None}):
        moves = still([move for move in moves if move.ticket != ticket]) or moves
        if tell is not None:
            tell(len(moves))
    size = max(1, len(moves) // 2)
    while True:
        before = len(moves)
        for start in range(len(moves) - size, -1, -size):
            moves = still(moves[:start] + moves[start + size :]) or moves
            if tell is not None:
                tell(len(moves))
        if size > 1:
            size //= 2
        elif len(moves) == before:
            return tuple(_fitting(world, moves))


def _fitting(world: World, moves: list[Move]) -> list[Move]:
    """Only the moves that do something."""
    state = beginning(world)
    kept: list[Move] = []
    for move in moves:
        try:
            state = apply(world, state, move).state
        except NotPossible:
            continue
        except Violation:
            return [*kept, move]
        kept.append(move)
    return kept


def in_bounds(of: Callable[[Random], Bounds]) -> Callable[[Random], World]:
    """The product's world of these bounds."""
    return lambda random: World(of(random))
