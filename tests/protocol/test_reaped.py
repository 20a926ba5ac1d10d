"""A process that is gone reaches nothing: its pages are free, its rooms have failed, its late messages are dropped."""

from __future__ import annotations

import pytest

from pagefence.protocol import router
from pagefence.protocol.effects import Compute, End
from pagefence.protocol.messages import (
    Abort,
    Ack,
    Capacity,
    Drained,
    Envelope,
    Offer,
    PeerUp,
    Reaped,
    Receipt,
    Room,
    Start,
    WorkerGone,
    WorkerRef,
    WorkerUp,
)

from .processes import PrefillProcess
from .stage import ROUTER, Stage, only_dropped

PREFILL_SCENES = ["reserved", "computing", "sent", "verifying"]


@pytest.mark.parametrize("scene", PREFILL_SCENES)
def test_prefill_is_reaped_before_the_commit_and_the_room_fails_at_once(scene: str) -> None:
    stage = Stage()
    room = getattr(stage, scene)()
    stage.reap(stage.p)
    assert (stage.refusal().error.status, stage.refusal().error.code) == (503, "worker_lost")
    stage.flush()
    assert stage.phases(room)[2] == "over"
    assert stage.d.state.pool.counts().free == 14
    stage.at_rest()


def test_prefill_is_reaped_after_the_commit_and_the_answer_goes_on() -> None:
    stage = Stage()
    room = stage.decoding()
    stage.reap(stage.p)
    stage.flush()
    stage.generate(room, 2)
    stage.at_rest()
    assert isinstance(stage.client[-1], End)


def test_prefill_is_reaped_while_its_room_is_in_quarantine() -> None:
    stage = Stage()
    stage.computing()
    stage.hang_up()
    stage.take(Abort, to=stage.p.ref)
    stage.flush()
    assert stage.d.state.pool.counts().quarantined == 3
    stage.reap(stage.p)
    stage.at_rest()


def test_prefill_is_reaped_while_its_room_waits_for_pages() -> None:
    stage = Stage(decode_pages=8)
    stage.decoding(prompt=20, max_new=4)
    room = stage.submit(prompt=20, max_new=4, ticket=1)
    stage.flush()
    stage.reap(stage.p)
    stage.flush()
    assert stage.phases(room)[2] == "over"
    assert stage.d.state.waiting == ()


@pytest.mark.parametrize("scene", ["reserved", "computing", "sent", "verifying", "decoding"])
def test_decode_is_reaped_and_prefill_keeps_only_what_its_writes_in_flight_read(scene: str) -> None:
    stage = Stage()
    room = getattr(stage, scene)()
    stage.reap(stage.d)
    assert stage.refusal().error.code == "worker_lost"
    stage.flush()
    if scene == "computing":
        assert stage.p.state.pool.counts().leased == 2
        for write in stage.p.writes:
            stage.tell(stage.p, stage.p.landed(write))
    assert stage.phases(room)[1] == "over"
    stage.at_rest()


def test_a_start_for_a_reaped_decode_is_rejected() -> None:
    stage = Stage()
    stage.reserved()
    start = stage.take(Start)
    stage.reap(stage.d)
    stage.flush()
    stage.arrives(start)
    assert stage.effects(Compute) == []
    stage.at_rest()


def test_an_offer_for_a_reaped_prefill_is_rejected() -> None:
    stage = Stage()
    stage.submit()
    offer = stage.take(Offer)
    stage.arrives(Envelope(ROUTER, stage.d.ref, Reaped(stage.p.ref)))
    stage.arrives(offer)
    assert stage.d.state.pool.counts().leased == 0
    stage.flush()
    assert stage.refusal().error.code == "worker_lost"


# --- epochs -------------------------------------------------------------------------------------------------------


def restarted(stage: Stage) -> WorkerRef:
    """Prefill dies and comes back under the same name."""
    stage.reap(stage.p)
    stage.p = PrefillProcess.start(WorkerRef("p", 2), ROUTER, 9, 4, stage.decisions)
    stage.come_up(stage.p)
    stage.flush()
    return stage.p.ref


@pytest.mark.parametrize("kind", [Receipt, Drained])
def test_what_a_dead_incarnation_said_last_is_dropped(kind: type) -> None:
    stage = Stage()
    room = stage.sent()
    late = stage.take(Receipt) if kind is Receipt else Envelope(stage.p.ref, stage.d.ref, Drained(room))
    restarted(stage)
    assert only_dropped(stage.arrives(late))
    assert only_dropped(stage.arrives(Envelope(late.sender, ROUTER, late.body)))


def test_a_message_for_a_dead_incarnation_does_not_reach_its_successor() -> None:
    stage = Stage()
    stage.reserved()
    start = stage.take(Start)
    restarted(stage)
    assert only_dropped(stage.arrives(start))
    assert stage.effects(Compute) == []


def test_late_or_repeated_news_of_a_dead_incarnation_does_not_bring_it_back() -> None:
    stage = Stage()
    old = stage.p.ref
    new = restarted(stage)
    stage.arrives(Envelope(ROUTER, stage.d.ref, PeerUp(old, "prefill", "here")))
    stage.arrives(Envelope(ROUTER, stage.d.ref, Reaped(old)))
    assert stage.d.state.members.is_alive(new)
    assert not stage.d.state.members.is_alive(old)


def test_a_reaping_is_told_also_when_the_successor_was_announced_first() -> None:
    stage = Stage()
    old, room = stage.p.ref, stage.computing()
    new = WorkerRef("p", 2)
    machine = router.Machine(stage.decisions)
    state, _ = machine.step(stage.router, WorkerUp(new, "prefill", Capacity(36, 4, 3), "here"))
    stage.router, effects = machine.step(state, WorkerGone(old))
    stage._after(ROUTER, effects)
    stage.outcomes = stage.outcomes.saw(effects)
    assert stage.router.workers["p"].worker == new
    stage.p.crashed = True
    stage.flush()
    assert stage.d.state.phase(room) == "over"
    assert stage.d.state.pool.counts().free == 14
    stage.at_rest()


@pytest.mark.parametrize("body", [Reaped(WorkerRef("p", 1)), PeerUp(WorkerRef("p", 9), "prefill", "x")])
def test_who_lives_is_the_routers_word_alone(body: Reaped | PeerUp) -> None:
    stage = Stage()
    stage.computing()
    assert only_dropped(stage.arrives(Envelope(stage.p.ref, stage.d.ref, body)))
    assert only_dropped(stage.arrives(Envelope(stage.d.ref, stage.p.ref, body)))
    assert stage.d.state.members.is_alive(WorkerRef("p", 1))


# --- tombstones ---------------------------------------------------------------------------------------------------


def test_tombstones_below_the_routers_floor_are_forgotten_and_their_rooms_stay_over() -> None:
    stage = Stage()
    rooms = [stage.submit(ticket=ticket) for ticket in range(3)]
    for ticket in (2, 1, 0):
        stage.hang_up(ticket)
    stage.flush()
    assert len(stage.d.state.members.over) == len(stage.p.state.members.over) == 3
    last = stage.decoding(ticket=3)
    for members in (stage.d.state.members, stage.p.state.members):
        assert members.floor == last.counter
        assert [counter for counter in members.over if counter < last.counter] == []
        assert all(members.is_over(room) for room in rooms)


def test_a_start_below_the_floor_is_answered_with_a_drain() -> None:
    stage = Stage()
    stage.reserved(ticket=0)
    late = stage.take(Start)
    stage.hang_up(0)
    stage.take(Abort, to=stage.p.ref)
    stage.deliver(Abort, to=stage.d.ref)
    stage.take(Abort, to=stage.p.ref)
    stage.computing(ticket=1)
    stage.arrives(late)
    assert len(stage.waiting(Drained)) == 1
    stage.flush()
    assert stage.d.state.pool.counts().quarantined == 0


def test_rooms_of_another_router_epoch_are_over_by_definition() -> None:
    stage = Stage()
    for process in (stage.p, stage.d):
        assert process.state.phase(Room(8, 0, "n")) == "over"


def test_an_ack_for_a_room_that_is_over_is_dropped() -> None:
    stage = Stage()
    room = stage.decoding()
    assert only_dropped(stage.arrives(Envelope(stage.d.ref, stage.p.ref, Ack(room))))
