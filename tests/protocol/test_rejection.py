"""Rejection is terminal (I3): nothing held, nothing moved, both legs told, the original error once."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from pagefence.protocol import errors
from pagefence.protocol.effects import Compute, Emit, Restart, WriteChunk
from pagefence.protocol.messages import Drained, Offer, Rejected, Reservation, Start

from .processes import OPEN
from .stage import ROUTER, Stage


def test_the_router_refuses_what_no_worker_can_hold_before_it_asks_anyone() -> None:
    stage = Stage()
    stage.submit(prompt=24)
    stage.submit(prompt=20, max_new=5, ticket=1)
    errors_seen = [(effect.error.status, effect.error.code, effect.error.param) for effect in stage.client]  # type: ignore[union-attr]
    assert errors_seen == [(400, "context_length_exceeded", "messages")] * 2
    assert stage.post == []


def test_a_fleet_whose_pool_does_not_cover_the_context_takes_nothing_and_says_why() -> None:
    stage = Stage(context=24, prefill_pages=7)
    stage.submit(prompt=1)
    error = stage.refusal().error
    assert (error.status, error.code) == (503, "not_ready")
    assert "pool of 28 tokens is smaller than 24 x headroom 1.25 = 30" in error.message


def test_decode_rejects_and_nothing_is_started_or_held() -> None:
    stage = Stage(OPEN, decode_pages=2)
    room = stage.submit(prompt=8, max_new=2)
    stage.deliver(Offer)
    assert stage.d.state.pool.counts().leased == 0
    stage.at_rest()
    assert (stage.refusal().error.status, stage.refusal().error.param) == (400, "messages")
    assert stage.effects(Compute) == []
    assert stage.phases(room) == ("over", "over", "over")


def test_prefill_rejects_both_legs_learn_and_decode_frees_at_once() -> None:
    stage = Stage(OPEN, prefill_pages=2)
    room = stage.reserved(prompt=12)
    assert stage.d.state.pool.counts().leased == 4
    stage.deliver(Start)
    stage.deliver(Rejected, to=stage.d.ref)
    assert stage.d.state.pool.counts().free == 14
    stage.at_rest()
    error = stage.refusal().error
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")
    assert "maximum context length is 8 tokens" in error.message
    assert stage.effects(WriteChunk) == []
    assert len(stage.client) == 1
    assert stage.phases(room) == ("over", "over", "over")


@pytest.mark.parametrize("lost_at", ["router", "decode"])
def test_a_lost_rejection_is_made_good_by_abort_or_timer(lost_at: str) -> None:
    stage = Stage(OPEN, prefill_pages=2)
    room = stage.reserved(prompt=12)
    stage.deliver(Start)
    stage.take(Rejected, to=ROUTER if lost_at == "router" else stage.d.ref)
    stage.flush()
    if lost_at == "router":
        stage.fire("deadline", room)
    stage.at_rest()
    assert stage.refusal().error.status == (504 if lost_at == "router" else 400)
    assert stage.effects(Restart) == []


def test_a_rejection_that_comes_twice_gives_one_outcome() -> None:
    stage = Stage(OPEN, prefill_pages=2)
    stage.reserved(prompt=12)
    stage.deliver(Start)
    stage.post += list(stage.post)
    stage.at_rest()
    assert len(stage.client) == 1


def test_a_rejected_room_is_not_admitted_by_a_second_start_or_offer() -> None:
    stage = Stage(OPEN, prefill_pages=2)
    stage.submit(prompt=12)
    offer = stage.deliver(Offer)
    stage.deliver(Reservation)
    start = stage.deliver(Start)
    stage.flush()
    stage.arrives(offer)
    stage.arrives(start)
    assert [type(body) for body in (envelope.body for envelope in stage.post)] == [Drained]
    stage.at_rest()


@pytest.mark.parametrize("pages", ["fewer", "of another size"])
def test_prefill_writes_nothing_into_a_reservation_of_another_shape(pages: str) -> None:
    stage = Stage()
    stage.reserved(prompt=8)
    envelope = stage.take(Start)
    start = envelope.body
    assert isinstance(start, Start)
    reservation = start.reservation
    if pages == "fewer":
        wrong = msgspec.structs.replace(reservation, pages=reservation.pages[:1])
    else:
        wrong = msgspec.structs.replace(reservation, page_size=8)
    stage.arrives(msgspec.structs.replace(envelope, body=msgspec.structs.replace(start, reservation=wrong)))
    assert stage.effects(Compute) == []
    stage.at_rest()
    assert stage.refusal().error.status == 500


def test_prefill_rejects_a_prompt_that_is_not_the_reserved_one() -> None:
    stage = Stage()
    stage.reserved(prompt=8)
    envelope = stage.take(Start)
    start = envelope.body
    assert isinstance(start, Start)
    stage.arrives(
        msgspec.structs.replace(envelope, body=msgspec.structs.replace(start, token_ids=start.token_ids[:-1]))
    )
    stage.at_rest()
    assert stage.effects(Compute) == []
    assert stage.refusal().error.status == 500


def test_too_many_waiting_is_the_fleets_fault_and_says_when_to_come_back() -> None:
    stage = Stage(decode_pages=8)
    for ticket in range(4):
        stage.submit(prompt=20, max_new=4, ticket=ticket)
    while stage.waiting(Offer):
        stage.deliver(Offer)
    assert len(stage.d.state.waiting) == 2
    stage.deliver(Rejected)
    error = stage.refusal().error
    assert (error.status, error.retry_after_s) == (429, errors.RETRY_AFTER_S)


def test_the_router_takes_no_more_in_flight_than_it_was_told() -> None:
    stage = Stage()
    stage.router = replace(stage.router, config=replace(stage.router.config, max_in_flight=1))
    stage.submit(ticket=0)
    stage.submit(ticket=1)
    assert stage.refusal().error.status == 429


def test_too_much_in_quarantine_is_answered_503() -> None:
    stage = Stage(decode_pages=8)
    room = stage.computing(prompt=16, max_new=8)
    stage.hang_up()
    stage.flush()
    assert stage.d.is_quarantined(room)
    stage.submit(prompt=4, ticket=1)
    stage.flush()
    assert (stage.refusal().error.status, stage.refusal().error.code) == (503, "quarantine")
    stage.land(room)
    stage.at_rest()


def test_a_waiting_room_is_admitted_when_pages_come_back() -> None:
    stage = Stage(decode_pages=8)
    first = stage.decoding(prompt=20, max_new=4, ticket=0)
    second = stage.submit(prompt=20, max_new=4, ticket=1)
    stage.flush()
    assert stage.phases(second)[2] == "waiting"
    stage.generate(first, 4)
    assert stage.phases(second)[2] == "reserved"
    stage.flush()
    stage.compute(second)
    stage.land(second)
    stage.flush()
    stage.verify(second)
    stage.flush()
    stage.generate(second, 4)
    stage.at_rest()
    assert [effect for effect in stage.client if isinstance(effect, Emit) and effect.ticket == 1]


def test_a_waiting_prompt_is_computed_when_prefill_has_pages_again() -> None:
    stage = Stage(decode_pages=20, prefill_pages=8)
    first = stage.computing(prompt=20, ticket=0)
    second = stage.computing(prompt=20, ticket=1)
    assert stage.phases(second)[1] == "waiting"
    stage.land(first)
    stage.flush()
    stage.verify(first)
    stage.flush()
    assert stage.phases(second)[1] == "computing"
    assert stage.phases(first)[2] == "decoding"
