"""One router, one prefill and one decode worker on a stage: the test says which message arrives when."""

from __future__ import annotations

from typing import TypeVar

from pagefence.protocol import decode_state, prefill, router
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Begin, Dropped, Effect, Effects, Emit, End, Refuse, Run, Send, SetTimer
from pagefence.protocol.invariants import Outcomes, check_rest, check_router
from pagefence.protocol.messages import (
    Capacity,
    ClientGone,
    Envelope,
    Offer,
    PeerMessage,
    Reservation,
    Room,
    Submit,
    Timer,
    TimerKind,
    WorkerGone,
    WorkerRef,
    WorkerUp,
)
from pagefence.protocol.router import RouterConfig, RouterState

from .processes import DecodeProcess, PrefillProcess, Process

PAGE = 4
ROUTER = WorkerRef("router", 7)
B = TypeVar("B")


class Stage:
    """Messages wait in `post` until the test delivers them. Every rule is checked after every step."""

    def __init__(
        self, decisions: Decisions | None = None, *, context: int = 24, prefill_pages: int = 9, decode_pages: int = 14
    ) -> None:
        self.decisions = decisions or Decisions()
        self.router = RouterState(ROUTER, RouterConfig(context))
        self.p = PrefillProcess.start(WorkerRef("p", 1), ROUTER, prefill_pages, PAGE, self.decisions)
        self.d = DecodeProcess.start(WorkerRef("d", 1), ROUTER, decode_pages, PAGE, self.decisions)
        self.post: list[Envelope] = []
        self.client: list[Begin | Emit | End | Refuse] = []
        self.done: list[Effect] = []
        self.outcomes = Outcomes()
        self.come_up(self.p)
        self.come_up(self.d)
        self.flush()
        self.done.clear()

    # --- the driver's part ----------------------------------------------------------------------------------------

    def come_up(self, process: Process) -> None:
        """The supervisor introduces a worker."""
        role = "prefill" if isinstance(process, PrefillProcess) else "decode"
        self.tell_router(WorkerUp(process.ref, role, Capacity(process.state.pool.capacity, PAGE, 3), "here"))  # type: ignore[arg-type]

    def submit(
        self, prompt: int = 8, max_new: int = 2, ticket: int = 0, tenant: int | None = None, text: int | None = None
    ) -> Room:
        """A client asks; the room it gets, if it gets one. Unless told, each ticket has its own tenant and text."""
        self.outcomes = self.outcomes.submitted(ticket)
        tenant, text = ticket if tenant is None else tenant, ticket if text is None else text
        tokens = tuple(range(text * 100, text * 100 + prompt))
        self.tell_router(Submit(ticket, f"n{ticket}", f"tenant{tenant}", tokens, max_new, param="messages"))
        return self.router.rooms.get(ticket, Room(0, 0, "none"))

    def hang_up(self, ticket: int = 0) -> None:
        """The client is gone."""
        self.outcomes = self.outcomes.gone(ticket)
        self.tell_router(ClientGone(ticket))

    def compute(self, room: Room) -> None:
        """All forward passes of a prompt; the writes stay in flight."""
        while room in self.p.computable():
            self.tell(self.p, self.p.compute(room))

    def land(self, room: Room) -> None:
        """All writes in flight land."""
        for write in [write for write in self.p.writes if write.room == room]:
            self.d.receive(write, self.p.now.source)
            self.tell(self.p, self.p.landed(write))

    def verify(self, room: Room) -> None:
        """Decode reads back its pages."""
        self.tell(self.d, self.d.verify(room))

    def generate(self, room: Room, steps: int = 1) -> None:
        """Decode steps of one row."""
        for _ in range(steps):
            self.d.check_read(room, self.router.requests[room].submit.token_ids)
            self.tell(self.d, self.d.generate(room))

    def fire(self, kind: TimerKind, room: Room) -> Effects:
        """A timer that was set comes due."""
        assert any(isinstance(e, SetTimer) and (e.room, e.kind) == (room, kind) for e in self.done), "was never set"
        if kind == "deadline":
            return self.tell_router(Timer(room, kind))
        return self.tell(self.p if kind == "resend" else self.d, Timer(room, kind))

    def reap(self, process: Process) -> None:
        """The supervisor found the process gone."""
        process.crashed = True
        self.post = [envelope for envelope in self.post if envelope.receiver != process.ref]
        self.tell_router(WorkerGone(process.ref))

    # --- the post -------------------------------------------------------------------------------------------------

    def waiting(self, kind: type[B], to: WorkerRef | None = None) -> list[B]:
        """Undelivered messages of a kind."""
        return [e.body for e in self.post if isinstance(e.body, kind) and to in (None, e.receiver)]

    def take(self, kind: type[PeerMessage], to: WorkerRef | None = None) -> Envelope:
        """Take the oldest message of a kind out of the post: lost, late or to be forged."""
        envelope = next(e for e in self.post if isinstance(e.body, kind) and to in (None, e.receiver))
        self.post.remove(envelope)
        return envelope

    def deliver(self, kind: type[PeerMessage], to: WorkerRef | None = None) -> Envelope:
        """Deliver the oldest message of a kind."""
        envelope = self.take(kind, to)
        self.arrives(envelope)
        return envelope

    def arrives(self, envelope: Envelope) -> Effects:
        """A message reaches the process of that name, whichever incarnation it was meant for."""
        if envelope.receiver.name == ROUTER.name:
            return self.tell_router(envelope)
        process: Process = self.p if envelope.receiver.name == "p" else self.d
        return self.tell(process, envelope) if not process.crashed else ()

    def flush(self) -> None:
        """Deliver everything, and what that causes, in order."""
        while self.post:
            self.arrives(self.post.pop(0))

    # --- scenes that most tests begin with ------------------------------------------------------------------------

    def reserved(self, **ask: int) -> Room:
        """Decode holds the pages; prefill has not heard of the room."""
        room = self.submit(**ask)
        self.flush_only_decode()
        return room

    def flush_only_decode(self) -> None:
        """Offer and reservation travel; Start stays in the post."""
        self.deliver(Offer)
        if self.waiting(Reservation):
            self.deliver(Reservation)

    def computing(self, **ask: int) -> Room:
        """All is computed, the writes are in flight."""
        room = self.submit(**ask)
        self.flush()
        self.compute(room)
        return room

    def sent(self, **ask: int) -> Room:
        """The receipt is in the post."""
        room = self.computing(**ask)
        self.land(room)
        return room

    def verifying(self, **ask: int) -> Room:
        """The receipt's words are accepted, its bytes not yet looked at."""
        room = self.sent(**ask)
        self.flush()
        return room

    def decoding(self, **ask: int) -> Room:
        """Committed, everybody knows, no token yet."""
        room = self.verifying(**ask)
        self.verify(room)
        self.flush()
        return room

    # --- what can be asked ----------------------------------------------------------------------------------------

    def phases(self, room: Room) -> tuple[router.Phase, prefill.Phase, decode_state.Phase]:
        """Where the room stands for router, prefill and decode."""
        return self.router.phase(room), self.p.state.phase(room), self.d.state.phase(room)

    def refusal(self) -> Refuse:
        """The one thing that the client got."""
        refusals = [effect for effect in self.client if isinstance(effect, Refuse)]
        assert len(refusals) == 1, refusals
        return refusals[0]

    def effects(self, kind: type[B]) -> list[B]:
        """All effects of a kind so far."""
        return [effect for effect in self.done if isinstance(effect, kind)]

    def at_rest(self) -> None:
        """Nothing is held anywhere and every client has its outcome."""
        self.flush()
        prefills = [] if self.p.crashed else [self.p.state]
        decodes = [] if self.d.crashed else [self.d.state]
        check_rest(self.router, prefills, decodes, self.outcomes)

    # --- stepping -------------------------------------------------------------------------------------------------

    def tell_router(self, message: router.Input) -> Effects:
        """One step of the router."""
        self.router, effects = router.Machine(self.decisions).step(self.router, message)
        self.outcomes = self.outcomes.saw(effects)
        check_router(self.router)
        self.client += [effect for effect in effects if isinstance(effect, Begin | Emit | End | Refuse)]
        self._after(ROUTER, effects)
        return effects

    def tell(self, process: Process, message: object) -> Effects:
        """One step of a worker."""
        effects = process.step(message)  # type: ignore[arg-type]
        for effect in effects:
            process.carry_out(effect)
            if isinstance(effect, Run) and effect.room in self.router.requests:
                self.d.check_read(effect.room, self.router.requests[effect.room].submit.token_ids)
        process.check()
        self._after(process.ref, effects)
        return effects

    def _after(self, sender: WorkerRef, effects: Effects) -> None:
        self.done += effects
        self.post += [Envelope(sender, effect.to, effect.body) for effect in effects if isinstance(effect, Send)]


def only_dropped(effects: Effects) -> bool:
    """The message changed nothing and caused nothing."""
    return bool(effects) and all(isinstance(effect, Dropped) for effect in effects)
