"""The router by itself, in the hands of a test."""

from __future__ import annotations

from typing import Any

from pagefence.pool.pages import PageRef
from pagefence.protocol import router
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Effects, Send
from pagefence.protocol.messages import (
    Capacity,
    Committed,
    Envelope,
    PeerMessage,
    Reservation,
    Role,
    Room,
    Submit,
    WorkerRef,
    WorkerUp,
)
from pagefence.protocol.router import RouterConfig, RouterState

ME = WorkerRef("router", 7)
P1, P2, D1, D2 = (WorkerRef(name, 1) for name in ("p1", "p2", "d1", "d2"))
SIZE = Capacity(40, 4, 3)
ROOM = Room(7, 0, "n0")


def up(worker: WorkerRef, pool: int = 40) -> WorkerUp:
    role: Role = "prefill" if worker.name.startswith("p") else "decode"
    return WorkerUp(worker, role, Capacity(pool, 4, 3), f"at {worker.name}")


def ask(ticket: int = 0, prompt: int = 8, new: int = 2) -> Submit:
    return Submit(ticket, f"n{ticket}", f"tenant{ticket}", tuple(range(prompt)), new, b"hot", "messages")


class Alone:
    """The machine and its state; `effects` are those of the last step."""

    def __init__(self, *workers: WorkerRef | WorkerUp, decisions: Decisions | None = None, **config: Any) -> None:
        self.machine = router.Machine(decisions or Decisions())
        self.state = RouterState(ME, RouterConfig(24, **config))
        self.effects: Effects = ()
        for worker in workers:
            self.tell(up(worker) if isinstance(worker, WorkerRef) else worker)

    def tell(self, message: router.Input) -> Effects:
        self.state, self.effects = self.machine.step(self.state, message)
        return self.effects

    def hears(self, sender: WorkerRef, body: PeerMessage) -> Effects:
        return self.tell(Envelope(sender, ME, body))

    def to(self, worker: WorkerRef) -> list[PeerMessage]:
        """What the last step sends to a worker."""
        return [effect.body for effect in self.effects if isinstance(effect, Send) and effect.to == worker]

    def offered(self, ticket: int = 0, prompt: int = 8, new: int = 2) -> Room:
        self.tell(ask(ticket, prompt, new))
        return self.state.rooms[ticket]

    def started(self, ticket: int = 0, prompt: int = 8, new: int = 2) -> Room:
        room = self.offered(ticket, prompt, new)
        request = self.state.requests[room]
        self.hears(request.decode, reservation(room, request))
        return room

    def committed(self, ticket: int = 0, prompt: int = 8, new: int = 2) -> Room:
        room = self.started(ticket, prompt, new)
        self.hears(self.state.requests[room].decode, Committed(room))
        return room


def reservation(room: Room, request: router.Request) -> Reservation:
    return Reservation(room, request.prefill, request.decode, 8, 4, 2, (PageRef(0, 1), PageRef(1, 1)))
