"""Abort: prefill stops, what is in flight lands in quarantine, and only prefill's word frees the pages."""

from __future__ import annotations

import pytest

from pagefence.protocol.effects import Compute, Restart, Stop
from pagefence.protocol.messages import (
    Abort,
    ComputeFailed,
    Drained,
    Envelope,
    Failed,
    Finished,
    Offer,
    Reservation,
    Start,
    Tokens,
)

from .stage import ROUTER, Stage, only_dropped


def test_an_abort_before_start_quarantines_until_prefill_says_that_nothing_will_come() -> None:
    stage = Stage()
    room = stage.submit()
    stage.deliver(Offer)
    stage.hang_up()
    stage.take(Abort, to=stage.p.ref)
    stage.deliver(Abort, to=stage.d.ref)
    assert stage.d.is_quarantined(room)
    stage.deliver(Abort, to=stage.p.ref)
    assert stage.d.is_quarantined(room)
    stage.deliver(Drained)
    assert stage.d.state.pool.counts().free == 14
    stage.at_rest()
    assert stage.client == []


def test_an_abort_after_start_waits_for_the_writes_in_flight() -> None:
    stage = Stage()
    room = stage.computing()
    stage.hang_up()
    stage.flush()
    assert stage.d.is_quarantined(room)
    assert stage.phases(room)[1] == "draining"
    assert stage.p.state.pool.counts().leased == 2, "writes in flight still read their source"
    stage.land(room)
    stage.at_rest()


def test_nothing_more_is_launched_after_an_abort() -> None:
    stage = Stage()
    room = stage.submit(prompt=12)
    stage.flush()
    stage.tell(stage.p, stage.p.compute(room))
    late = stage.p.compute(room)
    stage.hang_up()
    stage.flush()
    assert only_dropped(stage.tell(stage.p, late))
    stage.land(room)
    stage.at_rest()


def test_an_abort_that_overtakes_start_leaves_a_tombstone() -> None:
    stage = Stage()
    room = stage.reserved()
    stage.hang_up()
    late = stage.take(Start)
    stage.flush()
    assert stage.phases(room) == ("over", "over", "over")
    stage.arrives(late)
    assert stage.effects(Compute) == []
    assert len(stage.waiting(Drained)) == 1
    stage.at_rest()


def test_an_abort_that_overtakes_its_offer_leaves_a_tombstone() -> None:
    stage = Stage()
    room = stage.submit()
    late = stage.take(Offer)
    stage.hang_up()
    stage.flush()
    assert only_dropped(stage.arrives(late))
    assert stage.phases(room)[2] == "over"
    stage.at_rest()


def test_prefills_drain_may_overtake_the_routers_abort() -> None:
    stage = Stage()
    stage.reserved()
    stage.hang_up()
    stage.deliver(Abort, to=stage.p.ref)
    stage.deliver(Drained)
    assert stage.d.state.pool.counts().leased == 0
    stage.at_rest()


def test_an_abort_of_a_waiting_room_holds_nothing_on_either_leg() -> None:
    stage = Stage(decode_pages=8)
    stage.decoding(prompt=20, max_new=4)
    room = stage.submit(prompt=20, max_new=4, ticket=1)
    stage.flush()
    assert stage.phases(room)[2] == "waiting"
    stage.hang_up(ticket=1)
    stage.flush()
    assert stage.phases(room) == ("over", "over", "over")
    assert stage.d.state.pool.counts().quarantined == 0


def test_an_abort_of_a_prompt_that_waits_on_prefill_is_drained_at_once() -> None:
    stage = Stage(decode_pages=20, prefill_pages=8)
    first = stage.computing(prompt=20, ticket=0)
    second = stage.computing(prompt=20, ticket=1)
    stage.hang_up(ticket=1)
    stage.flush()
    assert stage.phases(second) == ("over", "over", "over")
    assert stage.phases(first)[1] == "computing"


@pytest.mark.parametrize("scene", ["sent", "verifying"])
def test_an_abort_after_the_receipt_is_drained_at_once(scene: str) -> None:
    stage = Stage()
    room = getattr(stage, scene)()
    stage.hang_up()
    stage.at_rest()
    if scene == "verifying":
        assert only_dropped(stage.tell(stage.d, stage.d.verify(room)))


def test_an_abort_while_decoding_leaves_the_batch_before_its_pages_are_let_again() -> None:
    stage = Stage(decode_pages=8)
    room = stage.decoding(prompt=20, max_new=4)
    stage.submit(prompt=20, max_new=4, ticket=1)
    stage.flush()
    stage.generate(room)
    stage.hang_up()
    stage.done.clear()
    stage.deliver(Abort, to=stage.d.ref)
    kinds = [type(effect).__name__ for effect in stage.done]
    assert kinds[:2] == ["Stop", "Zero"]


def test_tokens_under_way_when_the_client_hangs_up_reach_nobody() -> None:
    stage = Stage()
    room = stage.decoding(max_new=2)
    stage.generate(room, 2)
    begun = list(stage.client)
    stage.hang_up()
    for kind in (Tokens, Tokens, Finished):
        stage.deliver(kind)
    stage.at_rest()
    assert stage.client == begun
    assert len(stage.effects(Stop)) == 1


def test_an_abort_that_is_lost_on_the_way_to_both_legs_is_made_good_by_the_handoff_timer() -> None:
    stage = Stage()
    room = stage.computing()
    stage.hang_up()
    stage.take(Abort)
    stage.take(Abort)
    stage.fire("hand-off", room)
    stage.flush()
    assert stage.d.is_quarantined(room)
    stage.land(room)
    stage.at_rest()


def test_the_deadline_gives_the_client_an_error_and_aborts_both_legs() -> None:
    stage = Stage()
    room = stage.computing()
    stage.fire("deadline", room)
    assert stage.refusal().error.status == 504
    stage.flush()
    stage.land(room)
    stage.at_rest()


@pytest.mark.parametrize("scene", ["reserved", "computing", "sent"])
def test_the_routers_word_alone_frees_nothing_on_decode(scene: str) -> None:
    stage = Stage()
    room = getattr(stage, scene)()
    free = stage.d.state.pool.counts().free
    abort = Abort(room, 0, stage.p.ref, stage.d.ref)
    for _ in range(3):
        stage.arrives(Envelope(ROUTER, stage.d.ref, abort))
    assert stage.d.state.pool.counts().free == free
    assert stage.d.is_quarantined(room)


def test_a_failed_computation_is_drained_and_answered_500() -> None:
    stage = Stage()
    room = stage.computing()
    stage.tell(stage.p, ComputeFailed(room, "out of luck"))
    assert len(stage.waiting(Failed)) == 1
    stage.flush()
    assert stage.d.is_quarantined(room)
    stage.land(room)
    stage.at_rest()
    assert (stage.refusal().error.status, stage.refusal().error.message) == (500, "out of luck")
    assert stage.effects(Restart) == []


def test_a_reservation_for_a_room_that_is_over_starts_nothing() -> None:
    stage = Stage()
    stage.submit()
    stage.deliver(Offer)
    late = stage.take(Reservation)
    stage.hang_up()
    stage.flush()
    assert only_dropped(stage.arrives(late))
    stage.at_rest()


def test_a_row_that_cannot_go_on_ends_with_an_error_and_holds_nothing() -> None:
    stage = Stage()
    room = stage.decoding()
    stage.generate(room)
    stage.tell(stage.d, ComputeFailed(room, "the logits are not finite"))
    stage.flush()
    assert stage.refusal().error.status == 500
    stage.at_rest()
    assert only_dropped(stage.tell(stage.d, ComputeFailed(room, "again")))
