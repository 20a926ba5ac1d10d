"""Rules that no single state shows: what a step says and does is held against what really happened in the world.

`protocol/invariants.py` has the rules that a state shows by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagefence.pool.pages import PagePool
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeState
from pagefence.protocol.effects import Effects, Emit, End, Run, Send, Zero
from pagefence.protocol.invariants import Violation
from pagefence.protocol.messages import (
    Ack,
    Drained,
    Envelope,
    Failed,
    Reaped,
    Rejected,
    Room,
    Start,
    Timer,
    WorkerRef,
)
from pagefence.protocol.prefill import PrefillState
from pagefence.sim.bounds import answer
from pagefence.sim.memory import BLANK, read
from pagefence.sim.moves import Move
from pagefence.sim.processes import DecodeProcess, PrefillProcess
from pagefence.sim.state import ROUTER

if TYPE_CHECKING:
    from pagefence.sim.scene import Scene


def minted(s: Scene, ticket: int, effects: Effects) -> None:
    """I8, I9: a room is used once, and only a fleet that is ready mints one."""
    room = s.router.rooms.get(ticket)
    if room is None:
        return
    if room in s.minted:
        s.break_rule("I9", f"room {room} is minted for request {ticket} and was request {s.minted[room]}'s")
    s.minted = s.minted.set(room, ticket)
    reasons = Decisions().not_ready(s.router.topology)
    if reasons:
        s.break_rule("I8", f"request {ticket} is taken by a fleet that is not ready: {reasons[0]}")


def own_tokens(s: Scene, effect: Emit) -> None:
    """I10: what a client gets are the tokens of its own request, in order."""
    got = s.outcomes.emitted[effect.ticket]
    if got != tuple(answer(effect.ticket, i) for i in range(len(got))):
        message = f"the client of request {effect.ticket} got {got}"
        s.break_rule("I10", message)
        if any(token // 1_000 % 1_000 != effect.ticket for token in got) and s.world.only_harm:
            raise Violation("I10", message)


def reservation_is_decodes(s: Scene, message: object, effects: Effects) -> None:
    """I9: prefill is started on the reservation that decode made; pages and peers are nobody else's to name."""
    made = message.body if isinstance(message, Envelope) else None
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.body, Start) and effect.body.reservation != made:
            s.break_rule("I9", f"{effect.body.room} is started on a reservation that decode did not make")


def no_error_lost(s: Scene, message: object, effects: Effects) -> None:
    """I5: a request that failed does not end as if it had finished."""
    body = message.body if isinstance(message, Envelope) else message
    if isinstance(body, Rejected | Failed) and any(isinstance(effect, End) for effect in effects):
        s.break_rule("I5", f"{body.room} failed ({body.error.code}), and its client is told a normal finish")


def stated_limit_kept(s: Scene, message: object) -> None:
    """I3: what is within the limit that the fleet states is refused as too long by nobody."""
    body = message.body if isinstance(message, Envelope) else message
    if not isinstance(body, Rejected) or body.error.code != "context_length_exceeded":
        return
    ticket = s.ticket(body.room)
    if Decisions().router_limit(s.submit_of(ticket), s.router.topology) is None:
        s.break_rule("I3", f"request {ticket} is within the limit that the fleet states and a worker refuses it")


def not_by_timer(s: Scene, message: object, before: PagePool, after: PagePool) -> None:
    """I2: no timer releases pages."""
    if isinstance(message, Timer) and len(after.free) > len(before.free):
        s.break_rule("I2", f"the timer {message.kind} of {message.room} released pages")


def both_legs_know(s: Scene, message: object, before: PrefillState, p: PrefillProcess, effects: Effects) -> None:
    """I3: a room that ended on prefill without being delivered is said to be over, to decode and, if refused,
    to the router."""
    body = message.body if isinstance(message, Envelope) else message
    if isinstance(body, Ack | Reaped):
        return
    for room, request in before.requests.items():
        if room not in p.state.requests and p.state.members.is_alive(request.decode):
            _told(s, effects, request.decode, room)
    if isinstance(body, Start) and body.room not in p.state.requests and not before.members.is_over(body.room):
        _told(s, effects, ROUTER, body.room)
        _told(s, effects, body.reservation.decode, body.room)


def _told(s: Scene, effects: Effects, whom: WorkerRef, room: Room) -> None:
    ends = (e.body for e in effects if isinstance(e, Send) and e.to == whom)
    if not any(isinstance(body, Drained | Rejected) and body.room == room for body in ends):
        s.break_rule("I3", f"{room} ended on prefill and {whom.name} is not told")


def computed_whole(s: Scene, state: DecodeState, run: Run) -> None:
    """I6: computed and cached on prefill are together as many tokens as decode goes on from."""
    receipt = state.requests[run.room].receipt
    tokens = 0 if receipt is None else receipt.tokens
    if tokens != run.prompt_tokens:
        s.break_rule("I6", f"prefill computed {tokens} of {run.prompt_tokens} tokens of {run.room}")


def arrived_whole(s: Scene, p: DecodeProcess, run: Run) -> None:
    """I4: decode starts on pages that hold what was reserved for: this room's prompt, written in this tenancy."""
    prompt, size = s.bounds.prompt(s.ticket(run.room)), s.bounds.page_size
    for i, ref in enumerate(run.pages[: run.prompt_pages]):
        cell, expected = read(p.memory, ref), prompt[i * size : (i + 1) * size]
        if (cell.room, cell.generation, cell.tokens) != (run.room, ref.generation, expected):
            s.break_rule("I4", f"{run.room} starts, and its page {ref.index} (position {i}) holds {cell}")


def reuse(s: Scene, p: DecodeProcess, effect: Zero) -> None:
    """Was a page let to one tenant while another's bytes still lay in it?"""
    newest = {ref: lease.owner for lease in p.state.pool.leases.values() for ref in lease.pages}
    for ref in effect.pages:
        cell, owner = read(p.memory, ref), newest.get(ref)
        if cell.tenant and isinstance(owner, Room) and cell.tenant != s.tenant(owner):
            s.sometimes.append("a page was reused by another tenant")


def nothing_else_written(s: Scene, move: Move) -> None:
    """I2: a decode step writes only the slot of its own row. That is not modelled, so here it writes nothing."""
    before = s.before.process(move.who, s.bounds) if move.kind == "generate" else None
    after = s.processes[s.place(move.who)] if isinstance(before, DecodeProcess) else None
    if not isinstance(before, DecodeProcess) or not isinstance(after, DecodeProcess):
        return
    for index, cell in after.memory.items():
        was = before.memory.get(index, BLANK)
        if cell != was:
            s.break_rule("I2", f"a decode step of request {move.ticket} wrote elsewhere, into page {index}")
