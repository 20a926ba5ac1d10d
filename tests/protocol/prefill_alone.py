"""The prefill machine by itself, in the hands of a test: two decode workers are up, and it says what it hears."""

from __future__ import annotations

from typing import Any

from pagefence.pool.pages import PagePool, PageRef
from pagefence.protocol import prefill
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Effects, Send
from pagefence.protocol.invariants import check_prefill
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import (
    Abort,
    ChunkComputed,
    Envelope,
    ErrorInfo,
    Landed,
    Logprob,
    PeerMessage,
    PeerUp,
    Rejected,
    Reservation,
    Room,
    Start,
    WorkerRef,
)
from pagefence.protocol.prefill import PrefillConfig, PrefillState

ROUTER, ME = WorkerRef("router", 7), WorkerRef("p", 1)
D1, D2 = WorkerRef("d1", 1), WorkerRef("d2", 1)
KEY = b"key"
LIKELY = (Logprob(-0.5, ((40, -0.5), (7, -1.5))),)
ROOMS = [Room(7, counter, f"n{counter}") for counter in range(6)]
ROOM = ROOMS[0]


def prompt(room: Room, tokens: int) -> tuple[int, ...]:
    return tuple(range(room.counter * 100, room.counter * 100 + tokens))


def start(room: Room = ROOM, tokens: int = 6, decode: WorkerRef = D1, floor: int = 0) -> Start:
    pages = tuple(PageRef(i + 20, 1) for i in range(-(-tokens // 4)))
    words = Reservation(room, ME, decode, tokens, 4, 2, pages)
    return Start(room, floor, "tenant", prompt(room, tokens), words, b"hot")


def abort(room: Room = ROOM, decode: WorkerRef = D1, floor: int = 0) -> Abort:
    return Abort(room, floor, ME, decode)


class Alone:
    """The machine and its state, checked after every step; `effects` are those of the last step."""

    def __init__(self, pages: int = 6, decisions: Decisions | None = None, **config: Any) -> None:
        self.machine = prefill.Machine(decisions or Decisions())
        limits = {"resend_s": 5.0, "prefix_cache": False, **config}
        self.state = PrefillState(Membership(ME, ROUTER), PrefillConfig(2, KEY, **limits), PagePool.of(pages, 4))
        self.effects: Effects = ()
        for worker in (D1, D2):
            self.hears(ROUTER, PeerUp(worker, "decode", "there"))

    def tell(self, message: prefill.Input) -> Effects:
        self.state, self.effects = self.machine.step(self.state, message)
        check_prefill(self.state)
        return self.effects

    def hears(self, sender: WorkerRef, body: PeerMessage) -> Effects:
        return self.tell(Envelope(sender, ME, body))

    def computing(self, room: Room = ROOM, tokens: int = 6, decode: WorkerRef = D1) -> Room:
        """Leased, nothing computed; or in the queue."""
        self.hears(ROUTER, start(room, tokens, decode))
        return room

    def in_flight(self, room: Room = ROOM, tokens: int = 6, decode: WorkerRef = D1) -> Room:
        """All is computed and nothing has landed."""
        self.computing(room, tokens, decode)
        self.tell(ChunkComputed(room, tokens, 40))
        return room

    def sent(self, room: Room = ROOM, tokens: int = 6, decode: WorkerRef = D1) -> Room:
        """The receipt is out."""
        self.in_flight(room, tokens, decode)
        self.tell(Landed(room, tokens, (b"one", b"two")))
        return room

    def draining(self, room: Room = ROOM) -> Room:
        """Aborted with all writes in flight."""
        self.in_flight(room)
        self.hears(ROUTER, abort(room))
        return room

    def waiting(self) -> list[Room]:
        """The queue."""
        return list(self.state.waiting)

    def counts(self) -> tuple[int, int]:
        """Pages free and leased."""
        counts = self.state.pool.counts()
        return counts.free, counts.leased

    def rejection(self) -> ErrorInfo:
        """The error of a rejection, which both legs must have got in the same words."""
        to_router, to_decode = self.effects
        assert isinstance(to_router, Send)
        assert isinstance(to_decode, Send)
        assert (to_router.to, to_decode.to) == (ROUTER, D1)
        assert to_router.body == to_decode.body
        assert isinstance(to_router.body, Rejected)
        return to_router.body.error
