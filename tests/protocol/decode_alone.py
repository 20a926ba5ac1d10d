"""The decode machine by itself, in the hands of a test: two prefill workers are up, and it says what it hears."""

from __future__ import annotations

from typing import Any

from pagefence.pool.pages import PagePool
from pagefence.pool.slots import SlotPool
from pagefence.protocol import decode
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeConfig, DecodeState
from pagefence.protocol.effects import Effects, Send
from pagefence.protocol.handoff import seal
from pagefence.protocol.invariants import check_decode
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import (
    Abort,
    Envelope,
    ErrorInfo,
    Failed,
    FrameBroken,
    Offer,
    PagesDigested,
    PeerMessage,
    PeerUp,
    Receipt,
    Rejected,
    Room,
    WorkerRef,
)

ROUTER, ME = WorkerRef("router", 7), WorkerRef("d", 1)
P1, P2 = WorkerRef("p1", 1), WorkerRef("p2", 1)
KEY = b"key"
ROOMS = [Room(7, counter, f"n{counter}") for counter in range(6)]
ROOM = ROOMS[0]


class Alone:
    """The machine and its state, checked after every step; `effects` are those of the last step."""

    def __init__(self, pages: int = 12, rows: int = 3, decisions: Decisions | None = None, **config: Any) -> None:
        limits = {"handoff_s": 30.0, "drain_s": 3.0, **config}
        self.machine = decode.Machine(decisions or Decisions())
        pool, slots = PagePool.of(pages, 4), SlotPool[Room].of(rows)
        self.state = DecodeState(Membership(ME, ROUTER), DecodeConfig(2, KEY, **limits), pool, slots)
        self.effects: Effects = ()
        for worker in (P1, P2):
            self.hears(ROUTER, PeerUp(worker, "prefill", "there"))

    def tell(self, message: decode.Input) -> Effects:
        self.state, self.effects = self.machine.step(self.state, message)
        check_decode(self.state)
        return self.effects

    def hears(self, sender: WorkerRef, body: PeerMessage) -> Effects:
        return self.tell(Envelope(sender, ME, body))

    def offered(self, room: Room = ROOM, prompt: int = 6, max_new: int = 3, prefill: WorkerRef = P1) -> Room:
        """Reserved, when there is room."""
        self.hears(ROUTER, Offer(room, 0, prefill, "tenant", prompt, max_new, b"hot"))
        return room

    def receipt(self, room: Room, **changes: Any) -> Receipt:
        request = self.state.requests[room]
        assert request.reservation is not None
        r = request.reservation
        digests = tuple(bytes([i]) * 8 for i in range(len(r.pages)))
        words = {"tokens": r.prompt_tokens, "layers": r.layers, "pages": r.pages, "digests": digests, "first_token": 40}
        return seal(KEY, Receipt(room, r.prefill, ME, **{**words, **changes}))

    def verifying(self, room: Room = ROOM, **ask: Any) -> Room:
        self.offered(room, **ask)
        self.hears(self.state.requests[room].offer.prefill, self.receipt(room))
        return room

    def decoding(self, room: Room = ROOM, **ask: Any) -> Room:
        self.verifying(room, **ask)
        receipt = self.state.requests[room].receipt
        assert receipt is not None
        self.tell(PagesDigested(room, receipt.digests))
        return room

    def quarantined(self, room: Room = ROOM, **ask: Any) -> Room:
        self.offered(room, **ask)
        self.hears(ROUTER, Abort(room, 0, self.state.requests[room].offer.prefill, ME))
        return room

    def to_router(self) -> list[PeerMessage]:
        """What the last step says to the router."""
        return [effect.body for effect in self.effects if isinstance(effect, Send) and effect.to == ROUTER]

    def waiting(self) -> list[Room]:
        """The queue."""
        return list(self.state.waiting)

    def counts(self) -> tuple[int, int, int]:
        """Pages free, leased, quarantined."""
        counts = self.state.pool.counts()
        return counts.free, counts.leased, counts.quarantined


def abort(room: Room, prefill: WorkerRef = P1, floor: int = 0) -> Abort:
    return Abort(room, floor, prefill, ME)


def the_error(effects: Effects, kind: type[Rejected] | type[Failed]) -> ErrorInfo:
    """The one error that goes to the router."""
    (body,) = (e.body for e in effects if isinstance(e, Send) and e.to == ROUTER and isinstance(e.body, kind))
    return body.error


def frame_broken(alone: Alone, foreign: bool) -> Effects:
    page = alone.state.pool.lease_of(ROOM).pages[1]
    return alone.tell(FrameBroken(ROOM, page, 1, "somebody", foreign))
