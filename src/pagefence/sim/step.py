"""One move of a world: the machines take their step, the rules are checked, the effects are carried out.

`apply` is pure. It raises Violation on the first broken rule, and NotPossible for a move that this state does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from pagefence.pool.pages import PagePool, PoolError
from pagefence.pool.slots import SlotError
from pagefence.protocol import decode, prefill, router
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeState
from pagefence.protocol.effects import Effect, Effects, Emit, End, Refuse, Restart, Run, Send, SetTimer, Zero
from pagefence.protocol.invariants import RULES, Violation, check_decode, check_prefill, check_router
from pagefence.protocol.messages import (
    Abort,
    Ack,
    Capacity,
    ClientGone,
    ComputeFailed,
    Drained,
    Envelope,
    Failed,
    FrameBroken,
    PeerUp,
    Reaped,
    Rejected,
    Room,
    Start,
    Submit,
    Timer,
    Tokens,
    WorkerGone,
    WorkerRef,
    WorkerUp,
)
from pagefence.protocol.prefill import PrefillState
from pagefence.sim import processes as proc
from pagefence.sim.bounds import Bounds, answer
from pagefence.sim.memory import read
from pagefence.sim.moves import Move
from pagefence.sim.processes import DecodeProcess, PrefillProcess, Process
from pagefence.sim.reduction import without_the_dead
from pagefence.sim.state import ROUTER, WorldState, empty, room_of


class NotPossible(Exception):
    """The move is not one that this state has."""


# What a machine stops on when a fault has broken what it relies on.
_STOPS = (PoolError, SlotError, LookupError, AssertionError, ValueError)
# Called after a move of this kind, with the world as it then is; a fault below the protocol lives here.
Below = Callable[["Scene", Move], None]


@dataclass(frozen=True, slots=True)
class World:
    """What stays the same during a run: sizes, decisions, the rules that are watched, and what is broken below.

    `reduced`: what can only be dropped is dropped at once (`reduction`). `only_harm`: rules may break inside as long as
    no other request's bytes or tokens reach a client. `forgiving`: a machine that a fault makes stop on an error of its
    own has crashed; without it, that is a defect of ours.
    """

    bounds: Bounds
    decisions: Decisions = field(default_factory=Decisions)
    watched: frozenset[str] = frozenset(RULES)
    below: Below | None = None
    reduced: bool = True
    only_harm: bool = False
    forgiving: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names."""
        return self.bounds.names()

    def beginning(self) -> WorldState:
        """Every worker is up and knows its peers; nothing was asked yet."""
        state = empty(self.bounds)
        for name in self.names:
            state = apply(self, state, Move("restart", name)).state
        while state.network:
            head = state.network[0]
            state = apply(self, state, delivery("deliver", head, state)).state
        return state


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state after a move; `sometimes`: the interesting things that happened; `effects`: who did what."""

    state: WorldState
    sometimes: tuple[str, ...] = ()
    effects: tuple[tuple[WorkerRef, Effect], ...] = ()
    delivered: Envelope | None = None


def delivery(kind: Any, envelope: Envelope, state: WorldState) -> Move:
    """The move that delivers (loses, repeats, ...) this message."""
    room = room_of(envelope.body)
    ticket = None if room is None else state.minted.get(room)
    body = envelope.body
    about = body.index if isinstance(body, Tokens) else getattr(body, "worker", None)
    what = type(body).__name__ if about is None else f"{type(body).__name__} {about}"
    return Move(kind, _channel(envelope.sender, envelope.receiver), what, ticket)


@lru_cache(10_000)
def _channel(sender: WorkerRef, receiver: WorkerRef) -> str:
    return f"{sender}>{receiver}"


def apply(world: World, state: WorldState, move: Move) -> Outcome:
    """The world after `move`. Raises Violation, NotPossible."""
    scene = Scene(world, state)
    MOVES[move.kind](scene, move)
    if world.below is not None:
        world.below(scene, move)
    after = scene.state()
    if world.reduced:
        after = without_the_dead(state, after, world.names, world.decisions.cells)
    return Outcome(after, tuple(scene.sometimes), tuple(scene.effects), scene.delivered)


class Scene:
    """A world in the middle of a move: the one place here where things change."""

    def __init__(self, world: World, state: WorldState) -> None:
        self.world, self.before = world, state
        self.bounds, self.decisions = world.bounds, world.decisions
        self.router = state.router
        self.processes = list(state.processes)
        self.epochs = list(state.epochs)
        self.network = list(state.network)
        self.echoes = list(state.echoes)
        self.timers = set(state.timers)
        self.outcomes, self.minted = state.outcomes, state.minted
        self.submitted, self.budget = state.submitted, state.budget
        self.sometimes: list[str] = []
        self.effects: list[tuple[WorkerRef, Effect]] = []
        self.delivered: Envelope | None = None

    def state(self) -> WorldState:
        """The world as it stands now."""
        return WorldState(
            self.router,
            tuple(self.processes),
            tuple(self.epochs),
            self.budget,
            tuple(self.network),
            tuple(self.echoes),
            self.before.timers if self.timers == self.before.timers else frozenset(self.timers),
            self.submitted,
            self.outcomes,
            self.minted,
        )

    # --- parts that moves are made of -----------------------------------------------------------------------------

    def break_rule(self, rule: str, message: str) -> None:
        """A rule is broken; it counts when it is watched."""
        if rule in self.world.watched and not self.world.only_harm:
            raise Violation(rule, message)

    def check(self, law: Callable[..., object], *about: object) -> None:
        """Run a check; what it finds counts when the rule is watched."""
        if self.world.only_harm:
            return
        try:
            law(*about)
        except Violation as violation:
            if violation.rule_id in self.world.watched:
                raise

    def harm(self, law: Callable[..., object], *about: object) -> None:
        """Run a check of what would reach a client. In a world that looks at harm alone, there are no others."""
        if self.world.only_harm:
            law(*about)

    def spend(self, what: str) -> None:
        """Take one from the budget. Raises NotPossible when there is none."""
        left = getattr(self.budget, what)
        if left < 1:
            raise NotPossible(f"no {what} left")
        self.budget = self.budget._replace(**{what: left - 1})

    def place(self, name: str) -> int:
        """Where a worker stands in `processes`. Raises NotPossible."""
        try:
            return self.world.names.index(name)
        except ValueError:
            raise NotPossible(f"no worker {name}") from None

    def running(self, name: str) -> Process:
        """A process that takes steps. Raises NotPossible."""
        process = self.processes[self.place(name)]
        if process is None or process.crashed:
            raise NotPossible(f"{name} takes no steps")
        return process

    def prefill(self, name: str) -> PrefillProcess:
        """A running prefill process. Raises NotPossible."""
        process = self.running(name)
        if not isinstance(process, PrefillProcess):
            raise NotPossible(f"{name} is no prefill worker")
        return process

    def decode(self, name: str) -> DecodeProcess:
        """A running decode process. Raises NotPossible."""
        process = self.running(name)
        if not isinstance(process, DecodeProcess):
            raise NotPossible(f"{name} is no decode worker")
        return process

    def put(self, process: Process) -> None:
        """The process after a change."""
        self.processes[self.place(process.ref.name)] = process

    def ticket(self, room: Room) -> int:
        """Whose room it is. Raises Violation for a room that nobody asked for (I9)."""
        ticket = self.minted.get(room)
        if ticket is None:
            raise Violation("I9", f"{room} belongs to no request")
        return ticket

    def tenant(self, room: Room) -> str:
        """The tenant of a room."""
        return self.bounds.asks[self.ticket(room)].tenant

    def room(self, rooms: Any, ticket: int | None) -> Room:
        """The room of a ticket among `rooms`. Raises NotPossible."""
        for room in rooms:
            if self.minted.get(room) == ticket:
                return room  # type: ignore[no-any-return]
        raise NotPossible(f"nothing of request {ticket} there")

    def send(self, sender: WorkerRef, effect: Send) -> None:
        """Put a message on its way."""
        envelope = Envelope(sender, effect.to, effect.body)
        if envelope not in self.network:
            self.network.append(envelope)

    # --- steps of the machines ------------------------------------------------------------------------------------

    def tell_router(self, message: router.Input) -> None:
        """One step of the router."""
        try:
            self.router, effects = router.Machine(self.decisions).step(self.router, message)
        except _STOPS:
            if not self.world.forgiving:
                raise
            return  # a router that a fault has confused: what it was told is lost
        if isinstance(message, Submit):
            self._minted(message.ticket, effects)
        self._reservation_is_decodes(message, effects)
        self._no_error_lost(message, effects)
        self.outcomes = self._recorded(effects)
        self.effects += [(ROUTER, effect) for effect in effects]
        for effect in effects:
            if isinstance(effect, Send):
                self.send(ROUTER, effect)
            elif isinstance(effect, SetTimer):
                self.timers.add((ROUTER, Timer(effect.room, effect.kind)))
            elif isinstance(effect, Restart):
                self.sometimes.append("a silent worker was recycled")
                self.reap(effect.worker)
            elif isinstance(effect, Emit):
                self._own_tokens(effect)
            elif isinstance(effect, End):
                self.sometimes.append("an answer was complete")
            elif isinstance(effect, Refuse):
                self.sometimes.append(f"a client got HTTP {effect.error.status}")
                if effect.error.guard:
                    self.sometimes.append(f"contained by {effect.error.guard}")
        self.check(check_router, self.router)
        forgotten = [t for t in self.outcomes.open if t not in self.router.rooms]
        if forgotten:
            rule = "I9" if isinstance(message, ClientGone) else "I5"
            self.break_rule(rule, f"the router forgot request {forgotten[0]}, whose client still waits")

    def tell(self, process: Process, message: Any) -> None:
        """One step of a worker, and what its driver then does."""
        tell: Callable[[Any, Any], None] = self._tell_prefill
        if isinstance(process, DecodeProcess):
            tell = self._tell_decode
        if not self.world.forgiving:
            tell(process, message)
            return
        try:
            tell(process, message)
        except _STOPS:
            self.put(replace(process, crashed=True))

    def _tell_prefill(self, p: PrefillProcess, message: Any) -> None:
        before = p.state
        state, effects = prefill.Machine(self.decisions).step(before, message)
        self._not_by_timer(message, before.pool, state.pool)
        p = replace(p, state=state)
        for effect in effects:
            p = proc.prefill_performs(p, effect, self.decisions)
            self._carry_out(p.ref, effect)
        self.put(p)
        self.check(check_prefill, state)
        self._both_legs_know(message, before, p, effects)
        body = message.body if isinstance(message, Envelope) else message
        if isinstance(body, Abort) and any(w.room == body.room for w in p.writes):
            self.sometimes.append("an abort overtook a write")
        starts = (e.body.room for e in self.network if isinstance(e.body, Start))
        if isinstance(body, Abort) and before.phase(body.room) is prefill.Phase.NEW and body.room in starts:
            self.sometimes.append("an abort overtook a start")
        if len({w.room for w in p.writes}) < len(p.writes):
            self.sometimes.append("two chunks were in flight")

    def _tell_decode(self, p: DecodeProcess, message: Any) -> None:
        before = p.state
        state, effects = decode.Machine(self.decisions).step(before, message)
        self._not_by_timer(message, before.pool, state.pool)
        p = replace(p, state=state)
        for effect in effects:
            if isinstance(effect, Zero):
                self._reuse(p, effect)
            if isinstance(effect, Run):
                self.check(self._computed_whole, state, effect)
                self._arrived_whole(p, effect)
            p = proc.decode_performs(p, effect, self.decisions)
            self._carry_out(p.ref, effect)
        self.put(p)
        self.check(check_decode, state)
        if state.pool.counts().quarantined:
            self.sometimes.append("pages were in quarantine")

    def _carry_out(self, sender: WorkerRef, effect: Effect) -> None:
        self.effects.append((sender, effect))
        if isinstance(effect, Send):
            self.send(sender, effect)
        elif isinstance(effect, SetTimer):
            self.timers.add((sender, Timer(effect.room, effect.kind)))

    def reap(self, ref: WorkerRef) -> None:
        """The process is gone, and with it its writes in flight and its memory; messages it sent still travel."""
        i = self.place(ref.name)
        process = self.processes[i]
        if process is None or process.ref != ref:
            return
        self.processes[i] = None
        self.timers = {timer for timer in self.timers if timer[0] != ref}
        self.tell_router(WorkerGone(ref))

    # --- rules that no single state shows -------------------------------------------------------------------------

    def _minted(self, ticket: int, effects: Effects) -> None:
        """I8, I9: a room is used once, and only a fleet that is ready mints one."""
        room = self.router.rooms.get(ticket)
        if room is None:
            return
        if room in self.minted:
            self.break_rule("I9", f"room {room} is minted for request {ticket} and was request {self.minted[room]}'s")
        self.minted = self.minted.set(room, ticket)
        reasons = Decisions().not_ready(self.router.topology)
        if reasons:
            self.break_rule("I8", f"request {ticket} is taken by a fleet that is not ready: {reasons[0]}")

    def _recorded(self, effects: Effects) -> Any:
        try:
            return self.outcomes.saw(effects)
        except Violation as violation:
            self.break_rule(violation.rule_id, str(violation))
            return self.outcomes

    def _own_tokens(self, effect: Emit) -> None:
        """I10: what a client gets are the tokens of its own request, in order."""
        got = self.outcomes.emitted[effect.ticket]
        if got != tuple(answer(effect.ticket, i) for i in range(len(got))):
            message = f"the client of request {effect.ticket} got {got}"
            self.break_rule("I10", message)
            if any(token // 1_000 % 1_000 != effect.ticket for token in got) and self.world.only_harm:
                raise Violation("I10", message)

    def _reservation_is_decodes(self, message: object, effects: Effects) -> None:
        """I9: prefill is started on the reservation that decode made; pages and peers are nobody else's to name."""
        made = message.body if isinstance(message, Envelope) else None
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.body, Start) and effect.body.reservation != made:
                self.break_rule("I9", f"{effect.body.room} is started on a reservation that decode did not make")

    def _no_error_lost(self, message: object, effects: Effects) -> None:
        """I5: a request that failed does not end as if it had finished."""
        body = message.body if isinstance(message, Envelope) else message
        if isinstance(body, Rejected | Failed) and any(isinstance(effect, End) for effect in effects):
            self.break_rule("I5", f"{body.room} failed ({body.error.code}), and its client is told a normal finish")
        if isinstance(body, Rejected) and body.error.code == "context_length_exceeded":
            ticket = self.minted.get(body.room)
            fits = ticket is not None and not Decisions().router_limit(self._submit(ticket), self.router.topology)
            if fits:
                self.break_rule(
                    "I3", f"request {ticket} is within the limit that the fleet states and a worker refuses it"
                )

    def _not_by_timer(self, message: object, before: PagePool, after: PagePool) -> None:
        """I2: no timer releases pages."""
        if isinstance(message, Timer) and len(after.free) > len(before.free):
            self.break_rule("I2", f"the timer {message.kind} of {message.room} released pages")

    def _both_legs_know(self, message: object, before: PrefillState, p: PrefillProcess, effects: Effects) -> None:
        """I3: a room that ended on prefill without being delivered is said to be over, to decode and, if refused,
        to the router."""
        body = message.body if isinstance(message, Envelope) else message
        if isinstance(body, Ack | Reaped):
            return
        for room, request in before.requests.items():
            if room not in p.state.requests and p.state.members.is_alive(request.decode):
                self._told(effects, request.decode, room)
        if isinstance(body, Start) and body.room not in p.state.requests and not before.members.is_over(body.room):
            self._told(effects, ROUTER, body.room)
            self._told(effects, body.reservation.decode, body.room)

    def _told(self, effects: Effects, whom: WorkerRef, room: Room) -> None:
        ends = (e.body for e in effects if isinstance(e, Send) and e.to == whom)
        if not any(isinstance(body, Drained | Rejected) and body.room == room for body in ends):
            self.break_rule("I3", f"{room} ended on prefill and {whom.name} is not told")

    def _computed_whole(self, state: DecodeState, run: Run) -> None:
        """I6: prefill computed as many tokens as decode goes on from, when it computed this prompt at all."""
        request = state.requests[run.room]
        source = self.processes[self.place(request.offer.prefill.name)]
        receipt = request.receipt
        if receipt is None or not isinstance(source, PrefillProcess):
            return
        job = source.state.requests.get(run.room)
        prompt = self.bounds.prompt(self.ticket(run.room))
        ids = job.admitted.token_ids if job else ()
        if receipt.tokens < run.prompt_tokens and ids and ids == prompt[: len(ids)]:
            self.break_rule("I6", f"prefill computed {receipt.tokens} of {run.prompt_tokens} tokens of {run.room}")

    def _arrived_whole(self, p: DecodeProcess, run: Run) -> None:
        """I4: decode starts on pages that hold what was reserved for: this room's prompt, written in this tenancy."""
        prompt, size = self.bounds.prompt(self.ticket(run.room)), self.bounds.page_size
        for i, ref in enumerate(run.pages[: run.prompt_pages]):
            cell, expected = read(p.memory, ref), prompt[i * size : (i + 1) * size]
            if (cell.room, cell.generation, cell.tokens) != (run.room, ref.generation, expected):
                self.break_rule("I4", f"{run.room} starts, and its page {ref.index} (position {i}) holds {cell}")

    def _reuse(self, p: DecodeProcess, effect: Zero) -> None:
        """Was a page let to one tenant while another's bytes still lay in it?"""
        newest = {ref: lease.owner for lease in p.state.pool.leases.values() for ref in lease.pages}
        for ref in effect.pages:
            cell, owner = read(p.memory, ref), newest.get(ref)
            if cell.tenant and isinstance(owner, Room) and cell.tenant != self.tenant(owner):
                self.sometimes.append("a page was reused by another tenant")

    def _submit(self, ticket: int) -> Submit:
        ask = self.bounds.asks[ticket]
        return Submit(ticket, f"n{ticket}", ask.tenant, self.bounds.prompt(ticket), ask.new, ask.said)


# --- the moves ----------------------------------------------------------------------------------------------------


def _submit(s: Scene, move: Move) -> None:
    ticket = s.submitted if move.ticket is None else move.ticket
    if not s.submitted <= ticket < len(s.bounds.asks):
        raise NotPossible(f"request {ticket} was made, or passed over")
    s.submitted = ticket + 1
    s.outcomes = s.outcomes.submitted(ticket)
    s.tell_router(s._submit(ticket))


def _hang_up(s: Scene, move: Move) -> None:
    if move.ticket not in s.outcomes.open:
        raise NotPossible(f"no client of request {move.ticket}")
    s.spend("hang_up")
    s.outcomes = s.outcomes.gone(move.ticket)
    s.tell_router(ClientGone(move.ticket))


def _find(s: Scene, where: list[Envelope], move: Move, behind: bool = False) -> Envelope:
    """The first message that the move names; `behind`: the first that is not the oldest of its channel."""
    for envelope in where:
        if delivery(move.kind, envelope, s.before) == move and not (behind and _is_head(s, envelope)):
            return envelope
    raise NotPossible(f"no such message: {move}")


def _is_head(s: Scene, envelope: Envelope) -> bool:
    channel = (envelope.sender, envelope.receiver)
    return next(e for e in s.network if (e.sender, e.receiver) == channel) is envelope


def _arrive(s: Scene, envelope: Envelope) -> None:
    s.delivered = envelope
    if envelope.receiver == ROUTER:
        s.tell_router(envelope)
        return
    process = s.processes[s.place(envelope.receiver.name)]
    if process is None or process.ref != envelope.receiver:
        return
    if process.crashed:
        raise NotPossible(f"{process.ref} takes no steps")
    s.tell(process, envelope)


def _deliver(s: Scene, move: Move) -> None:
    envelope = _find(s, s.network, move)
    if not _is_head(s, envelope):
        raise NotPossible(f"not the oldest of its channel: {move}")
    s.network.remove(envelope)
    _arrive(s, envelope)


def _overtake(s: Scene, move: Move) -> None:
    envelope = _find(s, s.network, move, behind=True)
    s.spend("overtake")
    s.sometimes.append("a message overtook another")
    s.network.remove(envelope)
    _arrive(s, envelope)


def _repeat(s: Scene, move: Move) -> None:
    envelope = _find(s, s.network, move)
    s.spend("repeat")
    s.sometimes.append("a message came twice")
    s.network.remove(envelope)
    s.echoes.append(envelope)
    _arrive(s, envelope)


def _echo(s: Scene, move: Move) -> None:
    envelope = _find(s, s.echoes, move)
    s.echoes.remove(envelope)
    _arrive(s, envelope)


def _lose(s: Scene, move: Move) -> None:
    envelope = _find(s, s.network, move)
    if isinstance(envelope.body, PeerUp | Reaped):
        raise NotPossible("the driver says this itself; it is not lost")
    s.spend("lose")
    s.sometimes.append("a message was lost")
    s.network.remove(envelope)


def _compute(s: Scene, move: Move) -> None:
    p = s.prefill(move.who)
    room = s.room(p.jobs, move.ticket)
    if p.jobs[room].done == p.jobs[room].order.admitted.tokens:
        raise NotPossible(f"{room} is computed")
    s.check(proc.require_prefix, p, room, s.tenant(room))
    p, message = proc.compute(p, room, s.bounds.chunk, s.tenant(room), s.ticket(room))
    s.tell(p, message)


def _compute_fails(s: Scene, move: Move) -> None:
    p = s.prefill(move.who)
    room = s.room(p.jobs, move.ticket)
    s.spend("fail")
    s.sometimes.append("a forward pass failed")
    s.tell(replace(p, jobs=p.jobs.delete(room)), ComputeFailed(room, "no luck"))


def _land(s: Scene, move: Move) -> None:
    p = s.processes[s.place(move.who)]
    if not isinstance(p, PrefillProcess):
        raise NotPossible(f"{move.who} writes nothing")
    write = next((w for w in p.writes if s.minted.get(w.room) == move.ticket), None)
    if write is None:
        raise NotPossible(f"no write of request {move.ticket} is in flight")
    s.check(proc.require_source, p, write)
    target = s.processes[s.place(write.reservation.decode.name)]
    if isinstance(target, DecodeProcess) and target.ref == write.reservation.decode:
        if target.state.phase(write.room) == "quarantined":
            s.sometimes.append("a write landed in quarantine")
        s.check(proc.require_own_pages, target, write)
        s.put(proc.copy_in(target, write, p.source))
    after, message = proc.landed(p, write)
    if p.crashed:
        s.sometimes.append("a write landed after its writer had crashed")
        s.put(after)
    else:
        s.tell(after, message)


def _verify(s: Scene, move: Move) -> None:
    p = s.decode(move.who)
    p, message = proc.verify(p, s.room(p.verifying, move.ticket), s.decisions)
    s.tell(p, message)


def _generate(s: Scene, move: Move) -> None:
    p = s.decode(move.who)
    room = s.room(p.rows, move.ticket)
    ticket, row = s.ticket(room), p.rows[room]
    if row.made > 0:
        broken = proc.broken_frame(p, room, row.run.pages) if s.decisions.check_frames else None
        if broken:
            s.tell(replace(p, rows=p.rows.delete(room)), broken)
            return
        s.sometimes.append("attention read its pages")
        s.check(proc.require_own_bytes, p, row.run, s.bounds.prompt(ticket))
        s.harm(proc.require_nothing_foreign, p, row.run, s.tenant(room))
    p, message = proc.generate(p, room, ticket)
    s.tell(p, message)


def _flip(s: Scene, move: Move) -> None:
    p = s.decode(move.who)
    room = s.room(p.rows, move.ticket)
    s.spend("flip")
    page = p.rows[room].run.pages[0]
    foreign = move.what == "foreign"
    s.tell(replace(p, rows=p.rows.delete(room)), FrameBroken(room, page, 0, "garbage", foreign))


def _timer(s: Scene, move: Move) -> None:
    for ref, timer in sorted(s.timers, key=str):
        if (str(ref), timer.kind, s.minted.get(timer.room)) == (move.who, move.what, move.ticket):
            break
    else:
        raise NotPossible(f"no such timer: {move}")
    s.timers.remove((ref, timer))
    if ref == ROUTER:
        s.tell_router(timer)
        return
    process = s.running(ref.name)
    s.tell(process, timer)


def _early(s: Scene, move: Move) -> None:
    s.spend("early")
    s.sometimes.append("a timer fired early")
    _timer(s, move)


def _crash(s: Scene, move: Move) -> None:
    process = s.running(move.who)
    s.spend("crash")
    s.sometimes.append("a worker crashed")
    s.put(replace(process, crashed=True))


def _reap(s: Scene, move: Move) -> None:
    process = s.processes[s.place(move.who)]
    if process is None or not process.crashed:
        raise NotPossible(f"{move.who} has not crashed")
    s.reap(process.ref)


def _restart(s: Scene, move: Move) -> None:
    i = s.place(move.who)
    if s.processes[i] is not None:
        raise NotPossible(f"{move.who} is there")
    s.epochs[i] += 1
    ref = WorkerRef(move.who, s.epochs[i])
    is_prefill = move.who.startswith("p")
    process: Process = (proc.start_prefill if is_prefill else proc.start_decode)(ref, ROUTER, s.bounds)
    s.processes[i] = process
    capacity = Capacity(process.state.pool.capacity, s.bounds.page_size, s.bounds.rows)
    s.tell_router(WorkerUp(ref, "prefill" if is_prefill else "decode", capacity, "here"))


MOVES: dict[str, Callable[[Scene, Move], None]] = {
    "submit": _submit,
    "hang-up": _hang_up,
    "deliver": _deliver,
    "overtake": _overtake,
    "repeat": _repeat,
    "echo": _echo,
    "lose": _lose,
    "compute": _compute,
    "compute-fails": _compute_fails,
    "land": _land,
    "verify": _verify,
    "generate": _generate,
    "flip": _flip,
    "timer": _timer,
    "early": _early,
    "crash": _crash,
    "reap": _reap,
    "restart": _restart,
}
