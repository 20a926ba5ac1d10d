"""In every phase a room hears only what belongs there: what acts is listed, everything else changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from pagefence.pool.pages import PageRef
from pagefence.protocol import decode, errors, prefill, router
from pagefence.protocol.decisions import GUARDS, Decisions
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
    TimerKind,
    Tokens,
    WorkerRef,
    WriteFailed,
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
    "computing": {Abort, Landed, WriteFailed, ComputeFailed},
    "sent": {Abort, Ack, Timer},
    "draining": {Landed, WriteFailed},
    "over": {Start, Abort},
}
ON_THE_ROUTER: dict[str, set[type]] = {
    "offered": {Reservation, Rejected, Failed, Timer},
    "started": {Rejected, Committed, Failed, Timer},
    "committed": {Tokens, Finished, Failed, Timer},
    "over": set(),
}


def words(stage: Stage, room: Room) -> dict[type, list[Any]]:
    """Every kind of message about the room, in itself plausible, and every timer."""
    p, d, page, error = stage.p.ref, stage.d.ref, PageRef(0, 1), errors.internal("no")
    reservation = Reservation(room, p, d, 8, 4, 2, (page, page))
    said: dict[type, list[Any]] = {}
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
        *(Timer(room, kind) for kind in get_args(TimerKind)),
        ChunkComputed(room, 8, 1),
        Landed(room, 8, ()),
        WriteFailed(room, 8),
        ComputeFailed(room, "no"),
        PagesDigested(room, ()),
        Generated(room, (1,), "stop"),
        FrameBroken(room, page, 0, "nothing", False),
    ):
        said.setdefault(type(message), []).append(message)
    return said


def kinds(room_message: object) -> list[type]:
    return sorted(get_args(room_message), key=str)


def cases(scenes: dict[str, Scene], room_message: object) -> list[tuple[str, type]]:
    return [(phase, kind) for phase in scenes for kind in kinds(room_message)]


def acts(step: Callable[[Any, Any], tuple[Any, Effects]], state: object, messages: list[Any]) -> bool:
    """One of the messages changes something or causes something. What does not is dropped, and counted as dropped.

    A timer of another kind passes without a word.
    """
    steps = [step(state, message) for message in messages]
    silent = [effects for after, effects in steps if after == state and not effects]
    assert not silent or isinstance(messages[0], Timer)
    return any(after != state or (effects and not only_dropped(effects)) for after, effects in steps)


def posted(sender: WorkerRef, receiver: WorkerRef, messages: list[Any]) -> list[Any]:
    """Drivers hand over their messages as they are; all others come in envelopes."""
    return [Envelope(sender, receiver, m) if isinstance(m, PeerMessage) else m for m in messages]


@pytest.mark.parametrize(("phase", "kind"), cases(DECODE, decode.RoomMessage))
def test_decode_acts_on_what_belongs_to_the_phase_and_on_nothing_else(phase: str, kind: type) -> None:
    stage, room = DECODE[phase]()
    assert stage.d.state.phase(room) == phase
    sender = stage.router.me if kind in (Offer, Abort) else stage.p.ref
    messages = posted(sender, stage.d.ref, words(stage, room)[kind])
    assert acts(decode.Machine().step, stage.d.state, messages) == (kind in ON_DECODE[phase])


@pytest.mark.parametrize(("phase", "kind"), cases(PREFILL, prefill.RoomMessage))
def test_prefill_acts_on_what_belongs_to_the_phase_and_on_nothing_else(phase: str, kind: type) -> None:
    stage, room = PREFILL[phase]()
    assert stage.p.state.phase(room) == phase
    sender = stage.d.ref if kind is Ack else stage.router.me
    messages = posted(sender, stage.p.ref, words(stage, room)[kind])
    assert acts(prefill.Machine().step, stage.p.state, messages) == (kind in ON_PREFILL[phase])


@pytest.mark.parametrize(("phase", "kind"), cases(ROUTER, router.RoomMessage))
def test_the_router_acts_on_what_belongs_to_the_phase_and_on_nothing_else(phase: str, kind: type) -> None:
    stage, room = ROUTER[phase]()
    assert stage.router.phase(room) == phase
    messages = posted(stage.d.ref, stage.router.me, words(stage, room)[kind])
    assert acts(router.Machine().step, stage.router, messages) == (kind in ON_THE_ROUTER[phase])


def test_a_message_for_another_machine_is_dropped() -> None:
    stage = Stage()
    room = stage.computing()
    said = words(stage, room)
    me, p, d = stage.router.me, stage.p.ref, stage.d.ref
    for kind in set(get_args(PeerMessage)) & set(said):
        body: PeerMessage = said[kind][0]
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


@pytest.mark.parametrize("machine", [router.Machine, prefill.Machine, decode.Machine])
def test_a_machine_that_is_told_nothing_else_has_every_guard_up(machine: type[Any]) -> None:
    product = machine().decisions
    assert product == Decisions()
    assert product.zero_on_lease
    assert product.check_frames
    assert product.guards == GUARDS
    assert not product.cells
