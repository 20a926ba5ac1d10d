"""The state of a decode worker: its rooms, pages and rows. Small and immutable."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from immutables import Map

from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool
from pagefence.pool.slots import Handle, SlotPool
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import Offer, Receipt, Reservation, Room


class Phase(StrEnum):
    """Where a room stands on decode. NEW and OVER rooms hold nothing."""

    NEW = "new"
    WAITING = "waiting"
    RESERVED = "reserved"
    VERIFYING = "verifying"
    DECODING = "decoding"
    QUARANTINED = "quarantined"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """Fixed for one incarnation. Times in seconds."""

    layers: int
    mac_key: bytes
    max_waiting: int = 64
    handoff_s: float = 300.0
    drain_s: float = 30.0
    quarantine_share: float = 0.25


@dataclass(frozen=True, slots=True)
class Request:
    """One room that holds something, or waits to."""

    offer: Offer
    admitted: Admitted
    phase: Phase = Phase.WAITING
    slot: Handle | None = None
    reservation: Reservation | None = None
    receipt: Receipt | None = None
    emitted: int = 0
    reminded: bool = False
    distrusted: bool = False


@dataclass(frozen=True, slots=True)
class DecodeState:
    """`slots` are the rows of the decode batch; a row is VALID only while its room is DECODING."""

    members: Membership
    config: DecodeConfig
    pool: PagePool
    slots: SlotPool[Room]
    requests: Map[Room, Request] = Map()
    waiting: tuple[Room, ...] = ()

    def phase(self, room: Room) -> Phase:
        """The phase of any room, known or not."""
        request = self.requests.get(room)
        if request is not None:
            return request.phase
        return Phase.OVER if self.members.is_over(room) else Phase.NEW
