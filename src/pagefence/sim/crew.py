"""The processes that expand states. Each keeps the states that it was the first to reach; only keys travel.

They are forked from the searching process, so a world need not be picklable and the states found until then are shared.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any

from pagefence.mistakes import CouldNotAsk
from pagefence.process import die_with_parent
from pagefence.protocol.invariants import Violation, check_rest
from pagefence.sim.canonical import Canon
from pagefence.sim.menu import menu
from pagefence.sim.processes import DecodeProcess, PrefillProcess
from pagefence.sim.state import WorldState
from pagefence.sim.step import apply
from pagefence.sim.steps import Steps
from pagefence.sim.world import World

# A difference of so many states is not worth handing over.
EVEN_ENOUGH = 16


class LostProcess(CouldNotAsk):
    """A process of ours was ended from outside: what it had to say is missing."""

    def __init__(self) -> None:
        super().__init__("a process that searched was ended from outside (out of memory?); fewer --cores need less")


@dataclass(frozen=True, slots=True)
class Expanded:
    """One state's successors: (key, raw key, number of the move, whether this process keeps the state since now).

    `broken`: (rule, message, number of the move; None when the state itself is at fault).
    """

    successors: tuple[tuple[bytes, bytes, int, bool], ...] = ()
    calm: bytes | None = None
    rests: bool = False
    sometimes: frozenset[str] = frozenset()
    broken: tuple[str, str, int | None] | None = None


class Expander:
    """Expands states of one world and keeps those that it reached first."""

    def __init__(self, world: World, states: Mapping[bytes, WorldState]) -> None:
        self.world = world
        self.canon = Canon(symmetry=world.reduced)
        self.steps = Steps()
        self.states = dict(states)
        self.reached = set(states)

    def expand(self, key: bytes) -> Expanded:
        """All moves of a kept state, and where they lead."""
        world, state = self.world, self.states.pop(key)
        usual, wrong = menu(world, state)
        moves = usual + wrong
        if not usual:
            broken = not_at_rest(world, state)
            if broken or not moves:
                return Expanded(rests=broken is None, broken=broken)
        successors, sometimes = [], set[str]()
        for number, move in enumerate(moves):
            try:
                outcome = apply(world, state, move, self.steps)
            except Violation as violation:
                return Expanded(sometimes=frozenset(sometimes), broken=(violation.rule_id, str(violation), number))
            sometimes.update(outcome.sometimes)
            successor, raw = self.canon.keys(outcome.state)
            new = successor not in self.reached
            if new:
                self.reached.add(successor)
                self.states[successor] = outcome.state
            successors.append((successor, raw, number, new))
        return Expanded(tuple(successors), successors[0][0] if usual else None, not usual, frozenset(sometimes))

    def answer(self, forget: Iterable[bytes], keys: Sequence[bytes]) -> list[Expanded]:
        """Let go of states that another process keeps, then expand some."""
        for key in forget:
            self.states.pop(key, None)
        return [self.expand(key) for key in keys]


class Crew:
    """As many processes as cores; with one core, this process itself."""

    def __init__(self, world: World, cores: int, states: Mapping[bytes, WorldState]) -> None:
        shares: list[dict[bytes, WorldState]] = [{} for _ in range(cores)]
        self._keeper: dict[bytes, int] = {}
        for place, (key, state) in enumerate(states.items()):
            self._keeper[key] = place % cores
            shares[place % cores][key] = state
        self._size = cores
        self._expanders = [Expander(world, share) for share in shares]
        self._ends: list[Connection] = []
        self._processes: list[ForkProcess] = []
        self._forget: list[set[bytes]] = [set() for _ in shares]
        self._under_way: list[int] = []  # who expands each state of the batch that was begun
        self._done: list[Any] = []
        self.memory_bytes = 0

    def keep(self, key: bytes, keeper: int) -> None:
        """A state that is new to all: whoever reached it keeps it."""
        self._keeper[key] = keeper

    def forget(self, key: bytes, second: int) -> None:
        """Another process was first to reach it: the paths that are known lead to that one's copy."""
        if self._keeper.get(key) != second:  # unless that copy was handed to it meanwhile
            self._forget[second].add(key)

    def __enter__(self) -> Crew:
        if len(self._expanders) > 1:
            context = multiprocessing.get_context("fork")
            for expander in self._expanders:
                here, there = context.Pipe()
                process = context.Process(target=_serve, args=(expander, there, os.getpid()), daemon=True)
                process.start()
                there.close()
                self._ends.append(here)
                self._processes.append(process)
            self._expanders = []
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.kill()  # not terminate: a child still being born would take that with our handler, and stay
            process.join()
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        largest_child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if self._processes else 0
        self.memory_bytes = 1024 * (own + len(self._processes) * largest_child)

    def begin(self, batch: Sequence[bytes]) -> None:
        """Have some states expanded; `finish` gives what came of it. Between the two nothing else may be asked."""
        self._under_way = [self._keeper.pop(key) for key in batch]
        shares: list[list[bytes]] = [[] for _ in range(self._size)]
        for key, keeper in zip(batch, self._under_way, strict=True):
            shares[keeper].append(key)
        self._order([("answer", *given) for given in zip(self._forget, shares, strict=True)])
        self._forget = [set() for _ in shares]

    def finish(self) -> list[tuple[int, Expanded]]:
        """For each state that was begun with, in order: who expanded it, and its successors."""
        in_order = [iter(answer) for answer in self._answers()]
        return [(keeper, next(in_order[keeper])) for keeper in self._under_way]

    def even_out(self, batch: Sequence[bytes]) -> None:
        """Before a batch: hand states of it from who keeps most of them to who keeps least, or one would wait."""
        load = Counter(dict.fromkeys(range(self._size), 0))
        load.update(self._keeper[key] for key in batch)
        (most, many), (least, few) = load.most_common()[0], load.most_common()[-1]
        surplus = (many - few) // 2
        if surplus <= EVEN_ENOUGH:
            return
        kept = (key for key in batch if self._keeper[key] == most)
        handed = self._ask_one(most, "give", (list(islice(kept, surplus)),))
        self._ask_one(least, "take", (handed,))
        self._forget[least] -= handed.keys()  # what it had of its own is replaced
        self._keeper.update(dict.fromkeys(handed, least))

    def states(self, frontier: Iterable[bytes]) -> dict[bytes, WorldState]:
        """The kept states of a frontier, in its order."""
        self._order([("kept",)] * self._size)
        kept = self._answers()
        return {key: kept[self._keeper[key]][key] for key in frontier}

    def _ask_one(self, whom: int, what: str, given: tuple[Any, ...]) -> Any:
        self._order([(what, *given) if i == whom else ("nothing",) for i in range(self._size)])
        return self._answers()[whom]

    def _order(self, orders: Sequence[tuple[Any, ...]]) -> None:
        """One order to each process; alone, it is carried out at once."""
        if not self._ends:
            self._done = [_do(expander, *order) for expander, order in zip(self._expanders, orders, strict=True)]
            return
        try:
            for end, order in zip(self._ends, orders, strict=True):
                end.send(order)
        except OSError:
            raise LostProcess from None

    def _answers(self) -> list[Any]:
        if not self._ends:
            return self._done
        try:
            answers = [end.recv() for end in self._ends]
        except (EOFError, OSError):
            raise LostProcess from None
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


def _do(expander: Expander, what: str, *given: Any) -> Any:
    if what == "answer":
        return expander.answer(*given)
    if what == "kept":
        return expander.states
    if what == "give":
        return {key: expander.states.pop(key) for key in given[0]}
    if what == "take":
        expander.states.update(given[0])
        expander.reached.update(given[0])
    return None


def begin_as_child(parent: int) -> None:
    """First thing in a process of ours. Ctrl-C is the parent's to hear; when that is gone, so is this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(parent)


def _serve(expander: Expander, end: Connection, parent: int) -> None:
    """A process of the crew, until the other end closes."""
    begin_as_child(parent)
    gc.disable()  # states hold no cycles, and walking millions of them costs more than the search
    while True:
        try:
            order = end.recv()
        except EOFError:
            return
        try:
            end.send(_do(expander, *order))
        except Exception as error:  # a defect of ours: the searching process must not wait for ever
            end.send(error)


def not_at_rest(world: World, state: WorldState) -> tuple[str, str, int | None] | None:
    """Nothing ordinary can happen any more: then nothing may be held and every client has its outcome."""
    prefills = [p.state for p in state.processes if isinstance(p, PrefillProcess)]
    decodes = [p.state for p in state.processes if isinstance(p, DecodeProcess)]
    try:
        check_rest(state.router, prefills, decodes, state.outcomes)
    except Violation as violation:
        if world.only_harm or violation.rule_id not in world.watched:
            return None
        return violation.rule_id, f"nothing more can happen, and {violation}", None
    return None
