"""A world in the middle of a move: its machines take their steps, the rules are checked, effects are carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pagefence.pool.pages import PoolError
from pagefence.pool.slots import SlotError
from pagefence.protocol import decode, prefill, router
from pagefence.protocol.effects import Effect, Effects, Emit, End, Refuse, Restart, Run, Send, SetTimer, Zero
from pagefence.protocol.invariants import Violation, check_decode, check_prefill, check_router
from pagefence.protocol.messages import Abort, ClientGone, Envelope, Room, Start, Submit, Timer, WorkerGone, WorkerRef
from pagefence.sim import laws
from pagefence.sim import processes as proc
from pagefence.sim.processes import DecodeProcess, PrefillProcess, Process
from pagefence.sim.state import ROUTER, WorldState
from pagefence.sim.steps import Step, Steps
from pagefence.sim.world import NotPossible, World

# What a machine stops on when a fault has broken what it relies on.
_STOPS = (PoolError, SlotError, LookupError, AssertionError, ValueError)


class Scene:
    """A world in the middle of a move: the one place here where things change."""

    def __init__(self, world: World, state: WorldState, steps: Steps | None = None) -> None:
        self.world, self.before = world, state
        self.steps = Steps() if steps is None else steps
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
            step = self.steps.take(router.Machine(self.decisions).step, self.router, message)
        except _STOPS:
            if not self.world.forgiving:
                raise
            return  # a router that a fault has confused: what it was told is lost
        self.router, effects = step.state, step.effects
        if isinstance(message, Submit):
            laws.minted(self, message.ticket, effects)
        laws.reservation_is_decodes(self, message, effects)
        laws.no_error_lost(self, message, effects)
        laws.stated_limit_kept(self, message)
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
                laws.own_tokens(self, effect)
            elif isinstance(effect, End):
                self.sometimes.append("an answer was complete")
            elif isinstance(effect, Refuse):
                self.sometimes.append(f"a client got HTTP {effect.error.status}")
                if effect.error.guard:
                    self.sometimes.append(f"contained by {effect.error.guard}")
        self._check_once(check_router, step)
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
        step = self.steps.take(prefill.Machine(self.decisions).step, before, message)
        state, effects = step.state, step.effects
        laws.not_by_timer(self, message, before.pool, state.pool)
        p = replace(p, state=state)
        for effect in effects:
            p = proc.prefill_performs(p, effect, self.decisions)
            self._carry_out(p.ref, effect)
        self.put(p)
        self._check_once(check_prefill, step)
        laws.both_legs_know(self, message, before, p, effects)
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
        step = self.steps.take(decode.Machine(self.decisions).step, before, message)
        state, effects = step.state, step.effects
        laws.not_by_timer(self, message, before.pool, state.pool)
        p = replace(p, state=state)
        for effect in effects:
            if isinstance(effect, Zero):
                laws.reuse(self, p, effect)
            if isinstance(effect, Run):
                laws.computed_whole(self, state, effect)
                laws.arrived_whole(self, p, effect)
            p = proc.decode_performs(p, effect, self.decisions)
            self._carry_out(p.ref, effect)
        self.put(p)
        self._check_once(check_decode, step)
        if state.pool.counts().quarantined:
            self.sometimes.append("pages were in quarantine")

    def _check_once(self, law: Callable[[Any], object], step: Step) -> None:
        """A step that was taken before has passed already."""
        if not step.sound:
            self.check(law, step.state)
            step.sound = True

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
        self.processes = [proc.target_reaped(p, ref) if isinstance(p, PrefillProcess) else p for p in self.processes]
        self.timers = {timer for timer in self.timers if timer[0] != ref}
        self.tell_router(WorkerGone(ref))

    def _recorded(self, effects: Effects) -> Any:
        try:
            return self.outcomes.saw(effects)
        except Violation as violation:
            self.break_rule(violation.rule_id, str(violation))
            return self.outcomes

    def submit_of(self, ticket: int) -> Submit:
        """What the client of this ticket asks."""
        ask = self.bounds.asks[ticket]
        return Submit(ticket, f"n{ticket}", ask.tenant, self.bounds.prompt(ticket), ask.new, ask.said)
