"""A request that goes well, and messages that come twice, late or not at all on the way."""

from __future__ import annotations

import pytest

from pagefence.protocol.effects import Begin, Emit, End, Run
from pagefence.protocol.errors import internal
from pagefence.protocol.messages import (
    Ack,
    Capacity,
    Committed,
    Envelope,
    Failed,
    Finished,
    Offer,
    Receipt,
    Rejected,
    Reservation,
    Start,
    Tokens,
    WorkerRef,
    WorkerUp,
)

from .processes import token
from .stage import ROUTER, Stage, only_dropped


def test_a_client_gets_its_tokens_in_order_and_one_good_end() -> None:
    stage = Stage()
    room = stage.decoding(prompt=10, max_new=3)
    assert stage.phases(room) == ("committed", "over", "decoding")
    stage.generate(room, 3)
    stage.at_rest()
    tokens = [Emit(0, (token(room, i),)) for i in range(3)]
    assert stage.client == [Begin(0, room), *tokens, End(0, "length", 10, 3)]
    assert stage.phases(room) == ("over", "over", "over")


def test_headers_wait_for_the_commit() -> None:
    stage = Stage()
    room = stage.verifying()
    assert stage.client == []
    stage.verify(room)
    assert stage.client == []
    stage.deliver(Committed)
    assert stage.client == [Begin(0, room)]


def test_decode_leases_prompt_and_answer_at_once_and_reserves_only_the_prompt() -> None:
    stage = Stage()
    room = stage.reserved(prompt=5, max_new=4)
    lease = stage.d.state.pool.lease_of(room)
    reservation = stage.waiting(Start)[0].reservation
    assert len(lease.pages) == 3
    assert reservation.pages == lease.pages[:2]


def test_prefill_keeps_its_source_pages_until_the_receipt_is_acknowledged() -> None:
    stage = Stage()
    room = stage.verifying()
    stage.verify(room)
    assert stage.p.state.pool.counts().leased == 2
    stage.deliver(Ack)
    assert stage.p.state.pool.counts().leased == 0


def test_no_receipt_leaves_before_the_last_write_has_landed() -> None:
    stage = Stage()
    room = stage.computing(prompt=12)
    assert len(stage.p.writes) == 2
    assert not stage.waiting(Receipt)
    stage.land(room)
    assert len(stage.waiting(Receipt)) == 1


def test_the_receipt_is_sent_again_until_it_is_acknowledged() -> None:
    stage = Stage()
    room = stage.sent()
    stage.take(Receipt)
    for _ in range(3):
        stage.fire("resend", room)
        receipt = stage.take(Receipt)
    stage.arrives(receipt)
    stage.verify(room)
    stage.take(Ack)
    stage.fire("resend", room)
    stage.flush()
    assert stage.phases(room)[1] == "over"
    assert only_dropped(stage.fire("resend", room))


def test_a_receipt_that_comes_after_the_end_is_acknowledged() -> None:
    stage = Stage()
    room = stage.verifying()
    stage.verify(room)
    stage.take(Ack)
    stage.flush()
    stage.generate(room, 2)
    stage.flush()
    stage.fire("resend", room)
    stage.at_rest()


@pytest.mark.parametrize(
    "kind", [Offer, Reservation, Start, Receipt, Ack, Committed, Tokens, Finished]
)  # fmt: skip
def test_a_message_that_comes_twice_at_once_changes_nothing(kind: type) -> None:
    once, twice = Stage(), Stage()
    for stage in (once, twice):
        room = stage.submit()
        for _ in range(30):
            while stage.post:
                envelope = stage.post.pop(0)
                stage.arrives(envelope)
                if stage is twice and isinstance(envelope.body, kind):
                    stage.arrives(envelope)
            if room in stage.p.computable():
                stage.compute(room)
            elif stage.p.writes:
                stage.land(room)
            elif room in stage.d.verifying:
                stage.verify(room)
            elif room in stage.d.rows:
                stage.generate(room)
        stage.at_rest()
    assert twice.client == once.client
    assert len(twice.effects(Run)) == 1


@pytest.mark.parametrize("kind", [Offer, Reservation, Start, Receipt, Ack, Committed, Tokens])
def test_a_message_that_comes_again_after_the_end_changes_nothing(kind: type) -> None:
    stage = Stage()
    room = stage.submit()
    seen = []
    for _ in range(30):
        while stage.post:
            seen.append(stage.post[0])
            stage.arrives(stage.post.pop(0))
        if room in stage.p.computable():
            stage.compute(room)
        elif stage.p.writes:
            stage.land(room)
        elif room in stage.d.verifying:
            stage.verify(room)
        elif room in stage.d.rows:
            stage.generate(room)
    client = list(stage.client)
    for envelope in seen:
        if isinstance(envelope.body, kind):
            stage.arrives(envelope)
    stage.at_rest()
    assert stage.client == client


def test_lost_tokens_end_the_stream_with_an_error_and_never_with_a_gap() -> None:
    stage = Stage()
    room = stage.decoding(max_new=3)
    stage.generate(room)
    stage.take(Tokens)
    stage.generate(room)
    stage.at_rest()
    assert not [effect for effect in stage.client if isinstance(effect, Emit)]
    assert stage.refusal().error.status == 500
    assert "token 0 was due" in stage.refusal().error.message


def test_only_the_decode_leg_may_commit_or_answer() -> None:
    stage = Stage()
    room = stage.sent()
    for body in (Committed(room), Tokens(room, 0, (1,)), Finished(room, "stop", 8, 0)):
        forged = Envelope(stage.p.ref, ROUTER, body)
        assert only_dropped(stage.arrives(forged))
    assert stage.client == []


@pytest.mark.parametrize("kind", [Rejected, Failed])
def test_a_worker_without_a_part_in_the_room_cannot_end_it(kind: type) -> None:
    stage = Stage()
    stranger = WorkerRef("p2", 1)
    room = stage.decoding()
    stage.tell_router(WorkerUp(stranger, "prefill", Capacity(36, 4, 3), "there"))
    assert only_dropped(stage.arrives(Envelope(stranger, ROUTER, kind(room, internal("no")))))
