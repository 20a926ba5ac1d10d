"""What can happen next in a world: the ordinary course of things, and what may still go wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pagefence.protocol.messages import Envelope, PeerUp, Reaped, Timer, WorkerRef
from pagefence.sim.memory import Write
from pagefence.sim.moves import Move
from pagefence.sim.processes import DecodeProcess, PrefillProcess, Process
from pagefence.sim.state import ROUTER, WorldState
from pagefence.sim.world import World, delivery


def ordinary(world: World, state: WorldState) -> list[Move]:
    """What happens without anything going wrong. Timers fire when nothing else can."""
    return list(course(world, state)) or [timer_move("timer", state, *timer) for timer in firing(state)]


def menu(world: World, state: WorldState) -> tuple[list[Move], list[Move]]:
    """What happens ordinarily, and what may go wrong as far as the budget reaches."""
    usual = ordinary(world, state)
    return usual, list(mishaps(state, any(move.kind != "timer" for move in usual)))


def all_moves(world: World, state: WorldState) -> list[Move]:
    """Every move of a state, in the order in which the explorer numbers them."""
    usual, wrong = menu(world, state)
    return usual + wrong


def course(world: World, state: WorldState) -> Iterator[Move]:
    """What happens without anything going wrong, timers left out; the most ordinary first."""
    down = {p.ref for p in state.processes if p is not None and p.crashed}
    for envelope in heads(state.network):
        if envelope.receiver not in down:
            yield delivery("deliver", envelope, state)
    for name, process in zip(world.names, state.processes, strict=True):
        if process is None:
            yield Move("restart", name)
            continue
        yield from work(process, state)
        if process.crashed:
            yield Move("reap", name)
    for envelope in state.echoes:
        if envelope.receiver not in down:
            yield delivery("echo", envelope, state)
    if state.submitted < len(world.bounds.asks):
        yield Move("submit", ticket=state.submitted)


def work(process: Process, state: WorldState) -> Iterator[Move]:
    """What a process has under way: writes land even after a crash, the rest needs a process that takes steps."""
    name = process.ref.name
    if isinstance(process, PrefillProcess):
        yield from (Move("land", name, ticket=state.minted.get(w.room)) for w in _first_of_each_room(process.writes))
    if process.crashed:
        return
    if isinstance(process, DecodeProcess):
        yield from (Move("verify", name, ticket=state.minted.get(room)) for room in sorted(process.verifying))
        yield from (Move("generate", name, ticket=state.minted.get(room)) for room in sorted(process.rows))
        return
    for room, job in sorted(process.jobs.items()):
        if job.done < job.order.admitted.tokens:
            yield Move("compute", name, ticket=state.minted.get(room))


def mishaps(state: WorldState, busy: bool) -> Iterator[Move]:
    """What may go wrong. `busy`: something else than a timer can happen."""
    left = state.budget
    first = heads(state.network)
    up = [process for process in state.processes if process is not None and not process.crashed]
    living = {ROUTER, *(process.ref for process in up)}
    if left.lose:
        yield from (delivery("lose", e, state) for e in first if not isinstance(e.body, PeerUp | Reaped))
    if left.repeat:
        yield from (delivery("repeat", e, state) for e in first if e.receiver in living)
    if left.overtake:
        waiting = [e for e in state.network if e not in first and e.receiver in living]
        yield from dict.fromkeys(delivery("overtake", e, state) for e in waiting)
    if left.early and busy:
        yield from (timer_move("early", state, ref, timer) for ref, timer in firing(state))
    if left.hang_up:
        yield from (Move("hang-up", ticket=ticket) for ticket in sorted(state.outcomes.open))
    for process in up:
        yield from _mishaps_of(process, state)
    for writer in state.processes:
        if isinstance(writer, PrefillProcess):
            for page in writer.late:
                yield Move("land-late", writer.ref.name, page.part, state.minted.get(page.room))


def _mishaps_of(process: Process, state: WorldState) -> Iterator[Move]:
    name, left = process.ref.name, state.budget
    if left.crash:
        yield Move("crash", name)
    if isinstance(process, PrefillProcess) and left.fail:
        for room, job in sorted(process.jobs.items()):
            if job.done < job.order.admitted.tokens:
                yield Move("compute-fails", name, ticket=state.minted.get(room))
    if isinstance(process, PrefillProcess) and left.doubt:
        for write in _first_of_each_room(process.writes):
            yield Move("write-fails", name, ticket=state.minted.get(write.room))
    if isinstance(process, DecodeProcess) and left.flip:
        for room in sorted(process.rows):
            yield Move("flip", name, "foreign", state.minted.get(room))
            yield Move("flip", name, "garbage", state.minted.get(room))


def firing(state: WorldState) -> list[tuple[WorkerRef, Timer]]:
    """Timers whose process takes steps."""
    up = {ROUTER, *(p.ref for p in state.processes if p is not None and not p.crashed)}
    return sorted((timer for timer in state.timers if timer[0] in up), key=str)


def timer_move(kind: str, state: WorldState, ref: WorkerRef, timer: Timer) -> Move:
    """The move in which a timer fires."""
    return Move("early" if kind == "early" else "timer", str(ref), timer.kind, state.minted.get(timer.room))


def heads(network: Iterable[Envelope]) -> list[Envelope]:
    """The oldest message of each channel."""
    first: dict[tuple[WorkerRef, WorkerRef], Envelope] = {}
    for envelope in network:
        first.setdefault((envelope.sender, envelope.receiver), envelope)
    return list(first.values())


def _first_of_each_room(writes: tuple[Write, ...]) -> list[Write]:
    return list({write.room: write for write in reversed(writes)}.values())
