"""In every phase a room hears only what belongs there: what acts is listed, everything else changes nothing."""

from __future__ import annotations

from typing import cast, get_args

import pytest

from pagefence.pool.pages import PageRef
from pagefence.protocol import decode, errors, prefill, router
from pagefence.protocol.effects import Effects
from pagefence.protocol.messages import (
    Abort,
    Ack,
    ChunkComputed,
    Committed,
    ComputeFailed,
    Drained,
    Envelope,
    Failed,
    Finished,
    FrameBroken,
    Generated,
    Landed,
    Offer,
    PagesDigested,
    PeerMessage,
    Receipt,
    Rejected,
    Reservation,
    Room,
    Start,
    Timer,
    Tokens,
)

from .scenes import DECODE, PREFILL, ROUTER, Scene
from .stage import Stage, only_dropped

ON_DECODE: dict[str, set[type]] = {
    "new": {Offer, Abort},
    "waiting": {Abort, Rejected, Drained},
    "reserved": {Abort, Receipt, Rejected, Drained, Timer},
    "verifying": {Abort, Rejected, Drained, PagesDigested, FrameBroken, Timer},
    "decoding": {Abort, Receipt, Generated, ComputeFailed, FrameBroken},
    "quarantined": {Receipt, Rejected, Drained, Timer},
    "over": {Receipt},
}
ON_PREFILL: dict[str, set[type]] = {
    "new": {Start, Abort},
    "waiting": {Abort},
    "computing": {Abort, Landed, ComputeFailed},
    "sent": {Abort, Ack, Timer},
    "draining": {Landed},
    "over": {Start, Abort},
}
ON_THE_ROUTER: dict[str, set[type]] = {
    "offered": {Reservation, Rejected, Failed, Timer},
    "started": {Rejected, Committed, Failed, Timer},
    "committed": {Tokens, Finished, Failed, Timer},
    "over": set(),
}


def words(stage: Stage, room: Room, timer: str) -> dict[type, object]:
    """One message of every kind about the room, in itself plausible."""
    p, d, page, error = stage.p.ref, stage.d.ref, PageRef(0, 1), errors.internal("no")
    reservation = Reservation(room, p, d, 8, 4, 2, (page, page))
    return {
        type(message): message
        for message in (
            Offer(room, 0, p, "tenant0", 8, 2),
            Start(room, 0, "tenant0", tuple(range(8)), reservation),
            Abort(room, 0, p, d),
            reservation,
            Rejected(room, error),
            Committed(room),
            Tokens(room, 0, (1,)),
            Finished(room, "stop", 8, 0),
            Failed(room, error),
            Receipt(room, p, d, 8, 2, (page, page), (b"", b""), 1),
            Drained(room),
            Ack(room),
            Timer(room, timer),  # type: ignore[arg-type]
            ChunkComputed(room, 8, 1),
            Landed(room, 8, ()),
            ComputeFailed(room, "no"),
            PagesDigested(room, ()),
            Generated(room, (1,), "stop"),
            FrameBroken(room, page, 0, "nothing", False),
        )
    }


def kinds(room_message: object) -> list[type]:
    return sorted(get_args(room_message), key=str)


def cases(scenes: dict[str, Scene], room_message: object) -> list[tuple[str, type]]:
    return [(phase, kind) for phase in scenes for kind in kinds(room_message)]


def acts(before: object, after: object, effects: Effects) -> bool:
    """It changed something or caused something."""
    return after != before or bool(effects and not only_dropped(effects))


@pytest.mark.parametrize(("phase", "kind"), cases(DECODE, decode.RoomMessage))
def test_decode_acts_on_what_belongs_to_the_phase_and_on_nothing_else(phase: str, kind: type) -> None:
    stage, room = DECODE[phase]()
    before = stage.d.state
    assert before.phase(room) == phase
    message = words(stage, room, "drain" if phase == "quarantined" else "hand-off")[kind]
    if isinstance(message, PeerMessage):
        sender = stage.router.me if isinstance(message, Offer | Abort) else stage.p.ref
        message = Envelope(sender, stage.d.ref, message)
    after, effects = decode.Machine(stage.decisions).step(before, message)  # type: ignore[arg-type]
    assert acts(before, after, effects) == (kind in ON_DECODE[phase])


@pytest.mark.parametrize(("phase", "kind"), cases(PREFILL, prefill.RoomMessage))
def test_prefill_acts_on_what_belongs_to_the_phase_and_on_nothing_else(phase: str, kind: type) -> None:
    stage, room = PREFILL[phase]()
    before = stage.p.state
    assert before.phase(room) == phase
    message = words(stage, room, "resend")[kind]
    if isinstance(message, PeerMessage):
        message = Envelope(stage.d.ref if isinstance(message, Ack) else stage.router.me, stage.p.ref, message)
    after, effects = prefill.Machine(stage.decisions).step(before, message)  # type: ignore[arg-type]
    assert acts(before, after, effects) == (kind in ON_PREFILL[phase])


@pytest.mark.parametrize(("phase", "kind"), cases(ROUTER, router.RoomMessage))
def test_the_router_acts_on_what_belongs_to_the_phase_and_on_nothing_else(phase: str, kind: type) -> None:
    stage, room = ROUTER[phase]()
    before = stage.router
    assert before.phase(room) == phase
    message = words(stage, room, "deadline")[kind]
    if isinstance(message, PeerMessage):
        message = Envelope(stage.d.ref, before.me, message)
    after, effects = router.Machine(stage.decisions).step(before, message)  # type: ignore[arg-type]
    assert acts(before, after, effects) == (kind in ON_THE_ROUTER[phase])


def test_a_message_for_another_machine_is_dropped() -> None:
    stage = Stage()
    room = stage.computing()
    said = words(stage, room, "drain")
    me, p, d = stage.router.me, stage.p.ref, stage.d.ref
    for kind in set(get_args(PeerMessage)) & set(said):
        body = cast(PeerMessage, said[kind])
        sender = me if kind in (Start, Offer) else None  # else the other leg
        if kind not in get_args(decode.RoomMessage):
            envelope = Envelope(sender or p, d, body)
            assert only_dropped(decode.Machine(stage.decisions).step(stage.d.state, envelope)[1]), kind
        if kind not in get_args(prefill.RoomMessage):
            envelope = Envelope(sender or d, p, body)
            assert only_dropped(prefill.Machine(stage.decisions).step(stage.p.state, envelope)[1]), kind
        if kind not in get_args(router.RoomMessage):
            envelope = Envelope(d, me, body)
            assert only_dropped(router.Machine(stage.decisions).step(stage.router, envelope)[1]), kind
