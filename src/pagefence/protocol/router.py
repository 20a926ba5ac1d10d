"""The router: mints the room, asks decode, starts prefill, and gives each client exactly one outcome (I5).

`TABLE` is the whole machine: what each message does in each phase of a room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import cast

import msgspec
from immutables import Map

from pagefence.protocol import errors
from pagefence.protocol.admission import Node, Topology
from pagefence.protocol.choice import Place, least_loaded, near_its_cache
from pagefence.protocol.decisions import ANY, Decisions, rule_in
from pagefence.protocol.effects import Begin, Dropped, Effects, Emit, End, Refuse, Restart, Send, SetTimer
from pagefence.protocol.messages import (
    Abort,
    ClientGone,
    Committed,
    Envelope,
    ErrorInfo,
    Failed,
    Finished,
    LastOrders,
    Offer,
    PeerMessage,
    PeerUp,
    Reaped,
    Recycle,
    Rejected,
    Reservation,
    Role,
    Room,
    Start,
    Submit,
    Timer,
    Tokens,
    WorkerGone,
    WorkerRef,
    WorkerUp,
)


class Phase(StrEnum):
    """Where a room stands for the router. A room that has its outcome is OVER and forgotten."""

    OFFERED = "offered"
    STARTED = "started"
    COMMITTED = "committed"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Fixed for one router. `limit`: a declared, enforced limit below the context. Times in seconds.

    `prefix_cache`: prefill keeps prefixes, so a prompt goes where its tenant's are, unless that worker is much busier.
    """

    context: int
    headroom: float = 1.25
    limit: int | None = None
    max_in_flight: int = 256
    deadline_s: float = 600.0
    prefix_cache: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One room on its way to its outcome. `emitted` counts tokens passed to the client."""

    submit: Submit
    prefill: WorkerRef
    decode: WorkerRef
    phase: Phase = Phase.OFFERED
    emitted: int = 0

    @property
    def prompt_tokens(self) -> int:
        """What prefill has to compute, but for what it finds in its cache."""
        return len(self.submit.token_ids)

    @property
    def tokens(self) -> int:
        """What decode leases: prompt and answer at its longest."""
        return self.prompt_tokens + self.submit.max_new_tokens


@dataclass(frozen=True, slots=True)
class RouterState:
    """All rooms without an outcome, and the workers alive. `draining`: nothing new is taken any more."""

    me: WorkerRef
    config: RouterConfig
    workers: Map[str, WorkerUp] = Map()
    requests: Map[Room, Request] = Map()
    rooms: Map[int, Room] = Map()
    counter: int = 0
    draining: bool = False

    @property
    def floor(self) -> int:
        """Every room with a lower counter is over."""
        return min((room.counter for room in self.requests), default=self.counter)

    @property
    def topology(self) -> Topology:
        """What readiness and the limit are judged on: the figures of the workers that live now."""
        nodes = tuple(Node(up.worker.name, up.role, up.capacity) for _, up in sorted(self.workers.items()))
        return Topology(self.config.context, self.config.headroom, nodes, self.config.limit)

    def phase(self, room: Room) -> Phase:
        """The phase of any room, known or not."""
        request = self.requests.get(room)
        return request.phase if request else Phase.OVER


RoomMessage = Reservation | Rejected | Committed | Tokens | Finished | Failed | Timer
Input = Envelope | Submit | ClientGone | LastOrders | WorkerUp | WorkerGone | Timer
Step = tuple[RouterState, Effects]


@dataclass(frozen=True, slots=True)
class Machine:
    """The router machine, bound to its decisions."""

    decisions: Decisions = field(default_factory=Decisions)

    def step(self, state: RouterState, message: Input) -> Step:
        """One message in, the next state and what to do out. Pure."""
        rule = self.decisions.cells.get(("router", ANY, type(message)))
        if rule is not None:
            return cast(Step, rule(self.decisions, state, message))
        if isinstance(message, Submit):
            return submit(self.decisions, state, message)
        if isinstance(message, ClientGone):
            return client_gone(state, message)
        if isinstance(message, LastOrders):
            return last_orders(state, message)
        if isinstance(message, WorkerUp):
            return worker_up(state, message)
        if isinstance(message, WorkerGone):
            return worker_gone(state, message.worker)
        if isinstance(message, Timer):
            return self._room(state, message, state.me)
        if message.receiver != state.me or not _is_alive(state, message.sender):
            return state, (Dropped(type(message.body).__name__, "of an incarnation that is over"),)
        return self._peer(state, message.body, message.sender)

    def _peer(self, state: RouterState, body: PeerMessage, sender: WorkerRef) -> Step:
        if isinstance(body, Recycle):
            return state, (Restart(body.worker, body.reason),) if _is_alive(state, body.worker) else ()
        if isinstance(body, Reservation | Rejected | Committed | Tokens | Finished | Failed):
            return self._room(state, body, sender)
        return state, (Dropped(type(body).__name__, "the router does not take this message"),)

    def _room(self, state: RouterState, message: RoomMessage, sender: WorkerRef) -> Step:
        request = state.requests.get(message.room)
        if request and sender not in _speakers(state, request, message):
            return state, (Dropped(type(message).__name__, f"not {sender}'s to say in this room"),)
        phase = state.phase(message.room)
        rule: Rule = rule_in(self.decisions.cells, TABLE, "router", phase, type(message))
        if isinstance(rule, str):
            return state, (Dropped(type(message).__name__, rule),)
        return rule(state, message)


# --- clients ------------------------------------------------------------------------------------------------------


def submit(d: Decisions, s: RouterState, m: Submit) -> Step:
    """refuse what no worker can hold, mint the room, offer it to decode"""
    why_not = why_not_ready(d, s)
    if why_not:
        return s, (Refuse(m.ticket, errors.unavailable(f"The fleet is not ready: {why_not[0]}", "not_ready")),)
    error = d.router_limit(m, s.topology)
    if error:
        return s, (Refuse(m.ticket, error),)
    if len(s.requests) >= s.config.max_in_flight:
        return s, (Refuse(m.ticket, errors.overloaded(f"{len(s.requests)} requests are in flight")),)
    prefill, decode = _choose(s, m)
    if prefill is None or decode is None:
        return s, (Refuse(m.ticket, errors.unavailable("no worker is alive", "not_ready")),)
    room = Room(s.me.epoch, s.counter, m.nonce)
    s = replace(s, counter=s.counter + 1, rooms=s.rooms.set(m.ticket, room))
    s = _put(s, room, Request(m, prefill.worker, decode.worker))
    offer = Offer(room, s.floor, prefill.worker, m.isolation_key, len(m.token_ids), m.max_new_tokens, m.sampling)
    return s, (Send(decode.worker, offer), SetTimer(room, "deadline", s.config.deadline_s))


def why_not_ready(d: Decisions, s: RouterState) -> tuple[str, ...]:
    """Why nothing new is taken; empty when it is."""
    return ("draining",) if s.draining else d.not_ready(s.topology)


def last_orders(s: RouterState, _: LastOrders) -> Step:
    """take nothing new; every open room goes on to its outcome"""
    return replace(s, draining=True), ()


def client_gone(s: RouterState, m: ClientGone) -> Step:
    """abort both legs; nobody is left to answer"""
    room = s.rooms.get(m.ticket)
    if room is None:
        return s, ()
    return _forget(s, room), _abort(s, room)


# --- the hand-off as the router sees it ---------------------------------------------------------------------------


def reserved(s: RouterState, m: Reservation) -> Step:
    """decode holds the pages: start prefill"""
    request = s.requests[m.room]
    ask = request.submit
    start = Start(m.room, s.floor, ask.isolation_key, ask.token_ids, m, ask.sampling)
    return _put(s, m.room, replace(request, phase=Phase.STARTED)), (Send(request.prefill, start),)


def rejected(s: RouterState, m: Rejected) -> Step:
    """the original error, once; the leg that refused holds nothing, the other is told by prefill and by abort"""
    error = m.error
    if error.param is not None:
        error = msgspec.structs.replace(error, param=s.requests[m.room].submit.param)
    return _refuse(s, m.room, error)


def failed(s: RouterState, m: Failed) -> Step:
    """the error, once; both legs stop"""
    return _refuse(s, m.room, m.error)


def committed(s: RouterState, m: Committed) -> Step:
    """response headers may go out"""
    request = s.requests[m.room]
    s = _put(s, m.room, replace(request, phase=Phase.COMMITTED))
    return s, (Begin(request.submit.ticket, m.room, m.cached_tokens),)


def tokens(s: RouterState, m: Tokens) -> Step:
    """to this room's client, in order, or not at all (I10)"""
    request = s.requests[m.room]
    if m.index + len(m.token_ids) <= request.emitted:
        return s, (Dropped("Tokens", _TWICE),)
    if m.index != request.emitted:
        return _refuse(s, m.room, errors.internal(f"token {request.emitted} was due, token {m.index} came"))
    request = replace(request, emitted=request.emitted + len(m.token_ids))
    return _put(s, m.room, request), (Emit(request.submit.ticket, m.token_ids, m.logprobs),)


def finished(s: RouterState, m: Finished) -> Step:
    """the one good outcome, if the tokens add up (I6)"""
    request = s.requests[m.room]
    if (m.prompt_tokens, m.completion_tokens) != (request.prompt_tokens, request.emitted):
        message = (
            f"Tokens do not add up (I6): decode counted {m.prompt_tokens} prompt and {m.completion_tokens} new tokens, "
            f"the router {request.prompt_tokens} and {request.emitted}."
        )
        return _refuse(s, m.room, errors.internal(message))
    return _forget(s, m.room), (End(request.submit.ticket, m.reason, m.prompt_tokens, m.completion_tokens),)


def deadline(s: RouterState, m: Timer) -> Step:
    """too slow: an error for the client, an abort for the legs"""
    if m.kind != "deadline":
        return s, ()
    return _refuse(s, m.room, errors.timed_out(f"no complete answer within {s.config.deadline_s:g} s"))


# --- workers ------------------------------------------------------------------------------------------------------


def worker_up(s: RouterState, m: WorkerUp) -> Step:
    """introduce the new incarnation and the workers of the other role to each other"""
    others = [up for _, up in sorted(s.workers.items()) if up.role != m.role]
    here = PeerUp(m.worker, m.role, m.address)
    effects = [Send(up.worker, here) for up in others]
    effects += [Send(m.worker, PeerUp(up.worker, up.role, up.address)) for up in others]
    return replace(s, workers=s.workers.set(m.worker.name, m)), tuple(effects)


def worker_gone(s: RouterState, worker: WorkerRef) -> Step:
    """tell every living worker, then give each room that needed the dead one its outcome"""
    # Its successor may have been announced first; the pages still wait for this news.
    if _is_alive(s, worker):
        s = replace(s, workers=s.workers.delete(worker.name))
    effects: Effects = tuple(Send(up.worker, Reaped(worker)) for _, up in sorted(s.workers.items()))
    lost = errors.unavailable(f"the worker {worker.name} died", "worker_lost")
    for room, request in sorted(s.requests.items()):
        needs_prefill = request.phase is not Phase.COMMITTED
        if request.decode == worker or (request.prefill == worker and needs_prefill):
            s, more = _refuse(s, room, lost)
            effects += more
    return s, effects


# --- small parts --------------------------------------------------------------------------------------------------


def _refuse(s: RouterState, room: Room, error: ErrorInfo) -> Step:
    ticket = s.requests[room].submit.ticket
    return _forget(s, room), (Refuse(ticket, error), *_abort(s, room))


def _abort(s: RouterState, room: Room) -> Effects:
    request = s.requests[room]
    abort = Abort(room, s.floor, request.prefill, request.decode)
    return tuple(Send(leg, abort) for leg in (request.decode, request.prefill) if _is_alive(s, leg))


def _is_alive(s: RouterState, worker: WorkerRef) -> bool:
    up = s.workers.get(worker.name)
    return up is not None and up.worker == worker


def _speakers(s: RouterState, request: Request, message: RoomMessage) -> tuple[WorkerRef, ...]:
    """Who may say this about a room: prefill may refuse or fail, but never commit or answer (I4, I10)."""
    if isinstance(message, Timer):
        return (s.me,)
    if isinstance(message, Rejected | Failed):
        return request.prefill, request.decode
    return (request.decode,)


def _choose(s: RouterState, m: Submit) -> tuple[Place | None, Place | None]:
    """Prefill and decode of a new room. Prefill owes what is not handed off, decode all that it has leased."""
    to_compute, leased = Counter[WorkerRef](), Counter[WorkerRef]()
    for request in s.requests.values():
        leased[request.decode] += request.tokens
        if request.phase is not Phase.COMMITTED:
            to_compute[request.prefill] += request.prompt_tokens
    prefills, decodes = _places(s, "prefill", to_compute), _places(s, "decode", leased)
    prompt = len(m.token_ids)
    near = near_its_cache(prefills, prompt, m.isolation_key) if s.config.prefix_cache else None
    return near or least_loaded(prefills, prompt), least_loaded(decodes, prompt + m.max_new_tokens)


def _places(s: RouterState, role: Role, outstanding: Mapping[WorkerRef, int]) -> list[Place]:
    workers = (up for up in s.workers.values() if up.role == role)
    return [Place(up.worker, up.capacity.pool_tokens, outstanding[up.worker]) for up in workers]


def _put(s: RouterState, room: Room, request: Request) -> RouterState:
    return replace(s, requests=s.requests.set(room, request))


def _forget(s: RouterState, room: Room) -> RouterState:
    ticket = s.requests[room].submit.ticket
    return replace(s, requests=s.requests.delete(room), rooms=s.rooms.delete(ticket))


# --- the table ----------------------------------------------------------------------------------------------------

Rule = Callable[..., Step] | str
_OVER = "the room has its outcome"
_EARLY = "the hand-off is not committed"
_TWICE = "came twice"

TABLE: Mapping[Phase, Mapping[type, Rule]] = {
    Phase.OFFERED: {
        Reservation: reserved,
        Rejected: rejected,
        Committed: _EARLY,
        Tokens: _EARLY,
        Finished: _EARLY,
        Failed: failed,
        Timer: deadline,
    },
    Phase.STARTED: {
        Reservation: _TWICE,
        Rejected: rejected,
        Committed: committed,
        Tokens: _EARLY,
        Finished: _EARLY,
        Failed: failed,
        Timer: deadline,
    },
    Phase.COMMITTED: {
        Reservation: _TWICE,
        Rejected: "prefill delivered; it cannot reject any more",
        Committed: _TWICE,
        Tokens: tokens,
        Finished: finished,
        Failed: failed,
        Timer: deadline,
    },
    Phase.OVER: {
        Reservation: _OVER,
        Rejected: _OVER,
        Committed: _OVER,
        Tokens: _OVER,
        Finished: _OVER,
        Failed: _OVER,
        Timer: _OVER,
    },
}
