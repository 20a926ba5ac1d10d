"""Quarantine ends by proof: timers remind and ask for a recycling, and never release (I2)."""

from __future__ import annotations

import pytest

from pagefence.protocol.effects import Restart
from pagefence.protocol.messages import Abort, Drained, Envelope, FrameBroken, PeerUp, Recycle, Room, WorkerRef

from .stage import ROUTER, Stage, only_dropped


def frame_broken(stage: Stage, room: Room, foreign: bool) -> None:
    page = stage.d.state.pool.lease_of(room).pages[0]
    stage.tell(stage.d, FrameBroken(room, page, 0, "somebody" if foreign else "nothing", foreign))


def test_the_drain_timer_reminds_once_and_then_asks_for_the_recycling_of_prefill() -> None:
    stage = Stage()
    room = stage.computing()
    stage.hang_up()
    stage.take(Abort, to=stage.p.ref)
    stage.deliver(Abort, to=stage.d.ref)
    stage.take(Abort, to=stage.p.ref)
    stage.fire("drain", room)
    assert len(stage.waiting(Abort, to=stage.p.ref)) == 1
    assert not stage.waiting(Recycle)
    for _ in range(2):
        stage.fire("drain", room)
        assert stage.d.is_quarantined(room)
    assert [recycle.worker for recycle in stage.waiting(Recycle)] == [stage.p.ref] * 2
    stage.deliver(Recycle)
    assert [effect.worker for effect in stage.effects(Restart)] == [stage.p.ref]


def test_a_lost_drain_is_asked_for_again() -> None:
    stage = Stage()
    room = stage.reserved()
    stage.hang_up()
    while not stage.waiting(Drained):
        stage.arrives(stage.post.pop(0))
    stage.post.clear()
    stage.fire("hand-off", room)
    assert stage.d.is_quarantined(room)
    stage.post.clear()
    stage.fire("drain", room)
    stage.at_rest()
    assert stage.effects(Restart) == []


def test_a_recycling_asked_for_after_the_worker_was_replaced_is_ignored() -> None:
    stage = Stage()
    stale = WorkerRef("p", 0)
    stage.arrives(Envelope(stage.d.ref, ROUTER, Recycle(stale, "owes a drain")))
    assert stage.effects(Restart) == []


def test_a_receipt_for_a_quarantined_room_asks_for_the_drain_again() -> None:
    stage = Stage()
    room = stage.sent()
    stage.fire("hand-off", room)
    stage.take(Abort)
    stage.flush()
    stage.at_rest()
    assert stage.refusal().error.status == 504


@pytest.mark.parametrize("scene", ["verifying", "decoding"])
def test_a_blank_frame_fails_the_request_and_waits_for_its_own_prefill(scene: str) -> None:
    stage = Stage()
    room = getattr(stage, scene)()
    frame_broken(stage, room, foreign=False)
    assert stage.d.is_quarantined(room)
    stage.at_rest()
    error = stage.refusal().error
    assert (error.code, error.rule, error.guard) == ("frame_mismatch", "I1", "page-frames")
    assert stage.effects(Restart) == []


@pytest.mark.parametrize("foreign", [False, True])
def test_a_broken_frame_after_every_writer_was_reaped_waits_for_nobody(foreign: bool) -> None:
    stage = Stage()
    room = stage.decoding()
    stage.reap(stage.p)
    stage.flush()
    assert stage.phases(room)[2] == "decoding"
    frame_broken(stage, room, foreign)
    assert stage.d.state.pool.counts().free == 14
    stage.at_rest()


def test_a_foreign_frame_distrusts_every_writer_until_each_is_reaped() -> None:
    stage = Stage()
    other = WorkerRef("p2", 1)
    stage.arrives(Envelope(ROUTER, stage.d.ref, PeerUp(other, "prefill", "there")))
    room = stage.decoding()
    frame_broken(stage, room, foreign=True)
    stage.deliver(Abort, to=stage.p.ref)
    drained = stage.take(Drained)
    assert only_dropped(stage.arrives(drained))
    assert stage.d.is_quarantined(room)
    stage.fire("drain", room)
    stage.fire("drain", room)
    assert {recycle.worker for recycle in stage.waiting(Recycle)} == {stage.p.ref, other}
    stage.reap(stage.p)
    stage.flush()
    assert stage.d.is_quarantined(room), "the other writer is still alive"


def test_timers_that_fire_after_the_end_do_nothing() -> None:
    stage = Stage()
    room = stage.decoding()
    stage.generate(room, 2)
    stage.at_rest()
    for kind in ("deadline", "hand-off", "resend"):
        assert only_dropped(stage.fire(kind, room))


@pytest.mark.parametrize("scene", ["reserved", "computing", "sent", "verifying", "decoding"])
def test_no_timer_ever_releases_a_page(scene: str) -> None:
    stage = Stage()
    room = getattr(stage, scene)()
    free = stage.d.state.pool.counts().free
    stage.fire("hand-off", room)
    for kind in ("drain", "drain", "drain"):
        if stage.d.is_quarantined(room):
            stage.fire(kind, room)
    assert stage.d.state.pool.counts().free == free
