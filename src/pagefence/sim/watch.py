"""A run of moves told step by step: what the trace table and the sequence diagram are made from."""

from __future__ import annotations

from collections.abc import Iterable

from pagefence.protocol.effects import Dropped, Effect, Emit, End, Refuse, Send, SetTimer
from pagefence.protocol.invariants import Violation
from pagefence.protocol.messages import Envelope, Room
from pagefence.sim.moves import Move
from pagefence.sim.processes import DecodeProcess, Process
from pagefence.sim.state import WorldState, room_of
from pagefence.sim.step import apply, beginning
from pagefence.sim.trace import Message, PageView, Trace, TraceStep
from pagefence.sim.world import Outcome, World


def retold(world: World, moves: Iterable[Move], fault: str | None, guards: str, replay: str) -> Trace:
    """The run of `moves` from the beginning of the world, to the first broken rule or to the end.

    Raises NotPossible where a move does not fit.
    """
    state, steps = beginning(world), []
    rule = violation = None
    for number, move in enumerate(moves, 1):
        try:
            outcome = apply(world, state, move)
        except Violation as broken:
            rule, violation = broken.rule_id, str(broken)
            steps.append(TraceStep(number, move, None, (), (), _pools(world, state)))
            break
        state = outcome.state
        steps.append(_told(world, number, move, outcome))
    return Trace(world.bounds.name, fault, guards, tuple(steps), rule, violation, replay)


def _told(world: World, number: int, move: Move, outcome: Outcome) -> TraceStep:
    state = outcome.state
    delivered = None if outcome.delivered is None else _message(state, outcome.delivered)
    sent, did = [], []
    for who, effect in outcome.effects:
        if isinstance(effect, Send):
            sent.append(_message(state, Envelope(who, effect.to, effect.body)))
        elif isinstance(effect, Emit | End | Refuse):
            sent.append(Message("router", "client", type(effect).__name__, effect.ticket))
        elif not isinstance(effect, SetTimer):
            did.append(f"{who.name}: {_in_words(state, effect)}")
    return TraceStep(number, move, delivered, tuple(sent), tuple(did), _pools(world, state))


def _in_words(state: WorldState, effect: Effect) -> str:
    if isinstance(effect, Dropped):
        return f"drops {effect.what} ({effect.why})"
    pages = getattr(effect, "pages", None)
    room = room_of(effect)
    words = [type(effect).__name__]
    words += [f"#{state.minted[room]}"] if room is not None and room in state.minted else []
    words += ["pages " + " ".join(str(ref.index) for ref in pages)] if pages else []
    return " ".join(words)


def _message(state: WorldState, envelope: Envelope) -> Message:
    room = room_of(envelope.body)
    ticket = None if room is None else state.minted.get(room)
    return Message(envelope.sender.name, envelope.receiver.name, type(envelope.body).__name__, ticket)


def _pools(world: World, state: WorldState) -> tuple[tuple[str, tuple[PageView, ...]], ...]:
    living = [p for p in state.processes if p is not None]
    return tuple((p.ref.name, _pages(state, p)) for p in living)


def _pages(state: WorldState, process: Process) -> tuple[PageView, ...]:
    memory = process.memory if isinstance(process, DecodeProcess) else process.source
    owners: dict[int, tuple[int | None, bool]] = {}
    for owner, lease in process.state.pool.leases.items():
        ticket = state.minted.get(owner) if isinstance(owner, Room) else None
        owners.update({ref.index: (ticket, lease.quarantined) for ref in lease.pages})
    views = []
    for index in range(len(process.state.pool.generations)):
        owner, quarantined = owners.get(index, (None, False))
        cell = memory.get(index)
        holds = state.minted.get(cell.room) if cell is not None and cell.room is not None else None
        views.append(PageView(index, owner, holds, quarantined))
    return tuple(views)
