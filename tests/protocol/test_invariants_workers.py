"""The checks of the workers' states, one by one: a single thing is wrong, and the message says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import Lease, PagePool
from pagefence.pool.slots import Handle
from pagefence.protocol import prefill
from pagefence.protocol.decode_state import DecodeState, Request
from pagefence.protocol.invariants import Violation, check_decode, check_prefill, check_rest
from pagefence.protocol.messages import Room, WorkerRef
from pagefence.protocol.prefill import PrefillState

from .scenes import DECODE, PREFILL
from .stage import Stage

change = msgspec.structs.replace
STRANGER = Room(7, 99, "stranger")


def says(check: Callable[..., object], *states: Any) -> str:
    """The whole message of the violation."""
    with pytest.raises(Violation) as caught:
        check(*states)
    return str(caught.value)


def decode_in(phase: str) -> tuple[DecodeState, Room, Request]:
    stage, room = DECODE[phase]()
    return stage.d.state, room, stage.d.state.requests[room]


def with_request(s: DecodeState, room: Room, **fields: Any) -> DecodeState:
    return replace(s, requests=s.requests.set(room, replace(s.requests[room], **fields)))


def with_lease(s: Any, room: Room, **fields: Any) -> Any:
    lease = replace(s.pool.lease_of(room), **fields)
    return replace(s, pool=replace(s.pool, leases=s.pool.leases.set(room, lease)))


# --- sound states pass --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", DECODE)
def test_every_phase_of_decode_is_sound(phase: str) -> None:
    check_decode(DECODE[phase]()[0].d.state)


@pytest.mark.parametrize("phase", PREFILL)
def test_every_phase_of_prefill_is_sound(phase: str) -> None:
    check_prefill(PREFILL[phase]()[0].p.state)


# --- decode: queue and rows ---------------------------------------------------------------------------------------


def test_a_room_waits_once() -> None:
    s, room, _ = decode_in("waiting")
    assert says(check_decode, replace(s, waiting=(room, room))).startswith("I5 one outcome: a room waits twice")


def test_the_queue_holds_all_that_wait_and_only_those() -> None:
    s, room, _ = decode_in("waiting")
    assert says(check_decode, replace(s, waiting=())).startswith("I3 rejection is terminal: queue")
    assert says(check_decode, replace(s, waiting=(room, STRANGER))).startswith("I3 rejection is terminal: queue")


def test_two_rooms_do_not_share_a_row() -> None:
    stage = Stage(decode_pages=20)
    first, second = stage.decoding(ticket=0), stage.decoding(ticket=1)
    s = stage.d.state
    assert "I1 ownership: two rooms share a row" in says(
        check_decode, with_request(s, second, slot=s.requests[first].slot)
    )


@pytest.mark.parametrize("filled", [False, True])
def test_a_row_that_is_taken_belongs_to_a_room(filled: bool) -> None:
    s, room, _ = decode_in("decoding")
    slots, (row,) = s.slots.reserve()
    slots = slots.fill(row, room) if filled else slots
    assert says(check_decode, replace(s, slots=slots)) == "I6 conservation: 2 rows taken, 1 owned"


@pytest.mark.parametrize("phase", ["reserved", "verifying", "decoding"])
def test_a_room_that_may_decode_has_a_row(phase: str) -> None:
    s, room, request = decode_in(phase)
    assert request.slot is not None
    without = replace(with_request(s, room, slot=None), slots=s.slots.release(request.slot))
    assert says(check_decode, without).startswith("I4 exact hand-off: 7-0-n0 is " + phase + ", row None")


@pytest.mark.parametrize("phase", ["waiting", "quarantined"])
def test_a_room_that_has_left_or_not_arrived_has_no_row(phase: str) -> None:
    s, room, _ = decode_in(phase)
    slots, (row,) = s.slots.reserve()
    assert f"is {phase}, row Handle" in says(check_decode, replace(with_request(s, room, slot=row), slots=slots))


def test_the_row_of_a_room_is_of_its_own_tenancy() -> None:
    s, room, request = decode_in("decoding")
    assert request.slot is not None
    older = Handle(request.slot.index, request.slot.generation - 2)
    assert "holds a row of another tenancy" in says(check_decode, with_request(s, room, slot=older))


@pytest.mark.parametrize("phase", ["reserved", "verifying", "decoding"])
def test_the_row_is_valid_exactly_while_its_room_decodes(phase: str) -> None:
    s, room, request = decode_in(phase)
    assert request.slot is not None
    slots = s.slots.release(request.slot)
    slots, (row,) = slots.reserve()
    slots = slots if phase == "decoding" else slots.fill(row, room)
    message = says(check_decode, replace(with_request(s, room, slot=row), slots=slots))
    assert message.startswith(f"I4 exact hand-off: 7-0-n0 is {phase}, its row ")


def test_a_valid_row_names_its_room() -> None:
    s, room, request = decode_in("decoding")
    assert request.slot is not None
    slots, (row,) = s.slots.release(request.slot).reserve()
    wrong = replace(with_request(s, room, slot=row), slots=slots.fill(row, STRANGER))
    assert says(check_decode, wrong).startswith("I1 ownership: the row of 7-0-n0 names 7-63-stranger")


# --- decode: leases -----------------------------------------------------------------------------------------------


def test_a_room_is_filed_with_its_own_offer() -> None:
    s, room, request = decode_in("reserved")
    wrong = with_request(s, room, offer=change(request.offer, room=STRANGER))
    assert "I9 identity: 7-0-n0 is filed with the offer of 7-63-stranger" in says(check_decode, wrong)


def test_the_lease_is_under_the_isolation_key_of_the_offer() -> None:
    s, room, request = decode_in("reserved")
    wrong = with_request(s, room, offer=change(request.offer, isolation_key="another"))
    assert says(check_decode, wrong).startswith("I7")


@pytest.mark.parametrize("phase", ["reserved", "verifying", "decoding", "quarantined"])
def test_pages_are_in_quarantine_exactly_while_their_room_is(phase: str) -> None:
    s, room, _ = decode_in(phase)
    assert says(check_decode, with_lease(s, room, quarantined=phase != "quarantined")).startswith(
        "I6 conservation: 7-0"
    )


def cached(pool: PagePool, tenant: str, text: tuple[int, ...]) -> PagePool:
    """The pool after a request of this tenant whose pages stayed."""
    pool, _ = pool.lease(Admitted("earlier", tenant, len(text), text))
    return pool.fill("earlier", len(text)).release("earlier", text)


def test_decode_shares_no_page() -> None:
    s, room, request = decode_in("reserved")
    text = tuple(range(4))
    pool = cached(PagePool.of(14, 4), "tenant0", text)
    shared = pool.cached_prefix("tenant0", text)
    pool, lease = pool.lease(request.admitted, frozenset({request.offer.prefill}), shared)
    assert request.reservation is not None
    sound = change(request.reservation, pages=lease.pages[:2])
    wrong = replace(with_request(s, room, reservation=sound), pool=pool)
    assert says(check_decode, wrong).startswith("I1 ownership: 7-0-n0: decode shares no page")


def test_a_page_that_two_tenants_share_breaks_the_isolation_key_on_both_workers() -> None:
    text = tuple(range(4))
    pool = cached(PagePool.of(14, 4), "tenant0", text)
    pool, _ = pool.lease(Admitted("another", "tenant1", 8), shared=pool.cached_prefix("tenant0", text))
    assert says(check_decode, replace(decode_in("reserved")[0], pool=pool)).startswith("I7")
    assert says(check_prefill, replace(prefill_in("computing")[0], pool=pool)).startswith("I7")


def test_the_rows_themselves_are_checked() -> None:
    s, _, _ = decode_in("reserved")
    occupied = replace(s.slots.slots[-1], generation=1)
    with pytest.raises(AssertionError):
        check_decode(replace(s, slots=replace(s.slots, slots=(*s.slots.slots[:-1], occupied))))


def test_who_holds_pages_has_a_reservation() -> None:
    s, room, _ = decode_in("reserved")
    assert "holds pages and has no reservation" in says(check_decode, with_request(s, room, reservation=None))


def test_the_reservation_is_for_the_pages_and_the_length_of_the_prompt() -> None:
    s, room, request = decode_in("reserved")
    assert request.reservation is not None
    fewer = change(request.reservation, pages=request.reservation.pages[:-1])
    longer = change(request.reservation, prompt_tokens=9)
    assert says(check_decode, with_request(s, room, reservation=fewer)).startswith("I1 ownership: 7-0-n0: reserved")
    assert says(check_decode, with_request(s, room, reservation=longer)).startswith(
        "I4 exact hand-off: 7-0-n0: reserved"
    )


@pytest.mark.parametrize("phase", ["reserved", "verifying"])
def test_prefill_is_a_holder_while_it_may_write(phase: str) -> None:
    s, room, _ = decode_in(phase)
    assert says(check_decode, with_lease(s, room, holders=frozenset())).startswith("I2")


def test_a_quarantine_waits_for_somebody_and_only_for_the_living() -> None:
    s, room, request = decode_in("quarantined")
    assert says(check_decode, with_lease(s, room, holders=frozenset())).startswith("I6 conservation: 7-0-n0: quarant")
    gone = replace(s, members=s.members.gone(request.offer.prefill))
    assert says(check_decode, gone).startswith("I2 no foreign write: 7-0-n0: waits for")
    check_decode(with_lease(s, room, holders=frozenset({request.offer.prefill, "a local reader"})))


def test_the_receipt_of_a_decoding_room_is_for_all_its_prompt_tokens() -> None:
    s, room, request = decode_in("decoding")
    assert request.receipt is not None
    for receipt in (None, change(request.receipt, tokens=7), change(request.receipt, tokens=9)):
        assert says(check_decode, with_request(s, room, receipt=receipt)).startswith("I4")


@pytest.mark.parametrize(("emitted", "filled"), [(0, 8), (1, 8), (2, 9), (4, 11)])
def test_the_fill_mark_is_one_token_behind_what_was_emitted(emitted: int, filled: int) -> None:
    stage = Stage()
    room = stage.decoding(prompt=8, max_new=8)
    s = with_request(stage.d.state, room, emitted=emitted)
    check_decode(with_lease(s, room, filled=filled))
    for wrong in (filled - 1, filled + 1):
        assert "I1 ownership: 7-0-n0: fill mark" in says(check_decode, with_lease(s, room, filled=wrong))


# --- prefill ------------------------------------------------------------------------------------------------------


def prefill_in(phase: str) -> tuple[PrefillState, Room, prefill.Request]:
    stage, room = PREFILL[phase]()
    return stage.p.state, room, stage.p.state.requests[room]


def with_prompt(s: PrefillState, room: Room, **fields: Any) -> PrefillState:
    return replace(s, requests=s.requests.set(room, replace(s.requests[room], **fields)))


def test_prefill_loses_no_page_either() -> None:
    s, _, _ = prefill_in("computing")
    assert says(check_prefill, replace(s, pool=replace(s.pool, free=s.pool.free[1:]))).startswith("I6")


def test_prefills_queue_holds_all_that_wait_once_and_only_those() -> None:
    s, room, _ = prefill_in("waiting")
    assert "waits twice" in says(check_prefill, replace(s, waiting=(room, room)))
    assert says(check_prefill, replace(s, waiting=())).startswith("I3 rejection is terminal: queue")


def test_a_room_is_filed_with_its_own_start_and_reservation() -> None:
    s, room, request = prefill_in("computing")
    other_start = change(request.start, room=STRANGER)
    other_reservation = change(request.start, reservation=change(request.start.reservation, room=STRANGER))
    for start in (other_start, other_reservation):
        assert says(check_prefill, with_prompt(s, room, start=start)).startswith("I9")


@pytest.mark.parametrize("marks", [{"landed": 9}, {"launched": 9}, {"computed": 9}, {"landed": 8, "launched": 4}])
def test_no_mark_runs_ahead_of_the_one_before_it(marks: dict[str, int]) -> None:
    s, room, _ = prefill_in("computing")
    assert says(check_prefill, with_prompt(s, room, **marks)).startswith("I6 conservation: 7-0-n0: landed")


@pytest.mark.parametrize("marks", [{"landed": 8, "launched": 8}, {"launched": 6, "in_doubt": 7}])
def test_what_is_in_doubt_was_launched_and_has_not_landed(marks: dict[str, int]) -> None:
    s, room, _ = prefill_in("draining")
    assert says(check_prefill, with_prompt(s, room, **{"in_doubt": 8, **marks})).startswith(
        "I2 no foreign write: 7-0-n0: landed, in doubt, launched = "
    )


def test_a_room_with_a_write_in_doubt_is_draining() -> None:
    s, room, _ = prefill_in("computing")
    assert says(check_prefill, with_prompt(s, room, in_doubt=6)).startswith("I2 no foreign write: 7-0-n0 is computing")


def test_a_room_in_doubt_waits_only_for_the_living_unless_a_write_is_in_flight() -> None:
    s, room, request = prefill_in("draining")
    dead = replace(s, members=s.members.gone(request.decode))
    check_prefill(with_prompt(dead, room, in_doubt=6))
    check_prefill(with_prompt(s, room, in_doubt=8))
    assert says(check_prefill, with_prompt(dead, room, in_doubt=8)).startswith("I6 conservation: 7-0-n0: waits for d#1")


def test_a_receipt_is_there_exactly_when_it_was_sent() -> None:
    s, room, request = prefill_in("sent")
    assert says(check_prefill, with_prompt(s, room, receipt=None)).startswith("I4")
    computing, other, _ = prefill_in("computing")
    assert says(check_prefill, with_prompt(computing, other, receipt=request.receipt)).startswith("I4")


def test_a_receipt_goes_out_after_the_last_landing() -> None:
    s, room, _ = prefill_in("sent")
    assert says(check_prefill, with_prompt(s, room, landed=7)).startswith("I2")


def test_the_receipt_says_what_was_computed_and_what_was_cached() -> None:
    s, room, request = prefill_in("sent")
    assert request.receipt is not None
    receipt = request.receipt
    for wrong in (change(receipt, cached=4), change(receipt, tokens=7), change(receipt, cached=4, tokens=12)):
        assert says(check_prefill, with_prompt(s, room, receipt=wrong)).startswith(
            "I6 conservation: 7-0-n0: 8 computed"
        )


def test_source_pages_are_the_tenants_own_and_filled_as_far_as_computed() -> None:
    s, room, request = prefill_in("computing")
    foreign = change(request.start, isolation_key="another")
    assert says(check_prefill, with_prompt(s, room, start=foreign)).startswith("I7")
    assert says(check_prefill, with_lease(s, room, filled=7)).startswith("I1 ownership: 7-0-n0: filled 7, computed 8")
    assert says(check_prefill, with_prompt(s, room, cached=4)).startswith("I6 conservation: 7-0-n0: 4 cached")


def test_something_of_every_prompt_is_computed() -> None:
    s, room, request = prefill_in("computing")
    text = request.admitted.token_ids
    pool = cached(PagePool.of(9, 4), "tenant0", text)
    pages = tuple(page.page for page in pool.cached_prefix("tenant0", text))
    lease = Lease(room, "tenant0", pages, filled=8, holders=frozenset({request.decode}), shared=2)
    pool = replace(pool, leases=pool.leases.set(room, lease))
    wrong = replace(with_prompt(s, room, cached=8, computed=8), pool=pool)
    assert says(check_prefill, wrong).startswith("I6 conservation: 7-0-n0: the whole prompt")


# --- rest ---------------------------------------------------------------------------------------------------------


def test_nothing_is_at_rest_while_a_page_a_row_or_a_place_in_a_queue_is_held() -> None:
    stage, _ = DECODE["over"]()
    router, p, d = stage.router, stage.p.state, stage.d.state
    check_rest(router, [p], [d])
    slots, (row,) = d.slots.reserve()
    pool, _ = d.pool.lease(Admitted("x", "tenant", 4))
    for wrong in (
        replace(d, slots=slots),
        replace(d, slots=slots.fill(row, STRANGER)),
        replace(d, slots=slots.fill(row, STRANGER).reserve()[0]),
        replace(d, pool=pool),
        replace(d, pool=pool.quarantine("x")),
        replace(d, waiting=(STRANGER,)),
        replace(d, requests=decode_in("waiting")[0].requests),
    ):
        assert says(check_rest, router, [p], [wrong]).startswith("I6")
    for wrong_too in (replace(p, waiting=(STRANGER,)), replace(p, requests=prefill_in("waiting")[0].requests)):
        assert says(check_rest, router, [wrong_too], [d]).startswith("I6")


def test_a_dead_writer_is_no_reason_to_call_another_room_unsound() -> None:
    s, _, _ = decode_in("decoding")
    check_decode(replace(s, members=s.members.gone(WorkerRef("p", 1))))
