"""A write that was not acknowledged may land at any later time: its room ends, and nothing says that it is drained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.protocol import errors
from pagefence.protocol.effects import Compute, Dropped, Restart, Send, StopCompute, Zero
from pagefence.protocol.messages import (
    ChunkComputed,
    Drained,
    Failed,
    Landed,
    PeerUp,
    Reaped,
    Receipt,
    Room,
    WorkerRef,
    WriteFailed,
)
from pagefence.protocol.prefill import Phase

from .prefill_alone import D1, D2, ROOM, ROOMS, ROUTER, Alone, abort
from .processes import DecodeProcess
from .stage import ROUTER as STAGE_ROUTER
from .stage import Stage, only_dropped

FAILED = Send(ROUTER, Failed(ROOM, errors.internal("prefill could not write to decode")))


# --- the prefill machine by itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [4, 6])
def test_the_room_ends_for_its_client_and_its_source_stays_held(stop: int) -> None:
    alone = Alone()
    alone.computing(tokens=6)
    alone.tell(ChunkComputed(ROOM, stop, 40 if stop == 6 else None))
    assert alone.tell(WriteFailed(ROOM, stop)) == (FAILED, StopCompute(ROOM))
    assert (alone.state.phase(ROOM), alone.counts()) == (Phase.DRAINING, (4, 2))


def test_an_abort_of_it_is_answered_by_nothing_as_long_as_decode_lives() -> None:
    alone = Alone()
    alone.in_flight()
    alone.tell(WriteFailed(ROOM, 6))
    for _ in range(3):
        assert only_dropped(alone.hears(D1, abort()))
    assert alone.counts() == (4, 2)


def test_it_is_over_without_a_word_when_decode_is_reaped() -> None:
    alone = Alone()
    alone.in_flight()
    alone.tell(WriteFailed(ROOM, 6))
    assert alone.hears(ROUTER, Reaped(D1)) == ()
    assert (alone.state.phase(ROOM), alone.counts()) == (Phase.OVER, (6, 0))


def test_the_death_of_another_decode_proves_nothing() -> None:
    alone = Alone()
    alone.in_flight()
    alone.tell(WriteFailed(ROOM, 6))
    alone.hears(ROUTER, Reaped(D2))
    assert (alone.state.phase(ROOM), alone.counts()) == (Phase.DRAINING, (4, 2))


def test_a_successor_of_decode_alone_is_no_proof() -> None:
    alone = Alone()
    alone.in_flight()
    alone.tell(WriteFailed(ROOM, 6))
    alone.hears(ROUTER, PeerUp(WorkerRef("d1", 2), "decode", "there"))
    assert (alone.state.phase(ROOM), alone.counts()) == (Phase.DRAINING, (4, 2))


def test_what_lands_after_a_failed_write_does_not_make_up_for_it() -> None:
    alone = Alone()
    alone.in_flight(tokens=6)
    alone.tell(WriteFailed(ROOM, 4))
    assert alone.tell(Landed(ROOM, 6, (b"two",))) == ()
    request = alone.state.requests[ROOM]
    assert (request.landed, request.in_doubt, request.in_flight) == (0, 6, False)
    assert alone.counts() == (4, 2)


def test_what_landed_before_stays_landed() -> None:
    alone = Alone()
    alone.in_flight(tokens=6)
    alone.tell(Landed(ROOM, 4, (b"one",)))
    alone.tell(WriteFailed(ROOM, 6))
    request = alone.state.requests[ROOM]
    assert (request.landed, request.in_doubt) == (4, 6)


def test_a_write_that_fails_after_the_abort_keeps_the_room_draining() -> None:
    alone = Alone()
    alone.draining()
    assert alone.tell(Landed(ROOM, 4, (b"one",))) == ()
    assert alone.tell(WriteFailed(ROOM, 6)) == ()
    assert (alone.state.phase(ROOM), alone.counts()) == (Phase.DRAINING, (4, 2))
    alone.hears(ROUTER, Reaped(D1))
    assert (alone.state.phase(ROOM), alone.counts()) == (Phase.OVER, (6, 0))


def test_with_decode_gone_a_write_that_fails_is_over_at_once_but_not_the_one_behind_it() -> None:
    alone = Alone()
    alone.in_flight(tokens=6)
    alone.hears(ROUTER, Reaped(D1))
    assert alone.tell(WriteFailed(ROOM, 4)) == ()
    assert alone.counts() == (4, 2), "the write behind it still reads its source"
    alone.tell(WriteFailed(ROOM, 6))
    assert (alone.state.phase(ROOM), alone.counts()) == (Phase.OVER, (6, 0))


def test_reaping_lets_go_of_no_source_that_a_write_in_flight_still_reads() -> None:
    alone = Alone()
    alone.in_flight(tokens=6)
    alone.tell(WriteFailed(ROOM, 4))
    alone.hears(ROUTER, Reaped(D1))
    assert (alone.state.phase(ROOM), alone.counts()) == (Phase.DRAINING, (4, 2))
    alone.tell(Landed(ROOM, 6, (b"two",)))
    assert (alone.state.phase(ROOM), alone.counts()) == (Phase.OVER, (6, 0))


def test_a_prompt_that_waited_for_the_pages_begins_when_they_are_let_go() -> None:
    alone = Alone(pages=2)
    alone.in_flight(ROOMS[0], tokens=8)
    alone.computing(ROOMS[1], tokens=8, decode=D2)
    alone.tell(WriteFailed(ROOMS[0], 8))
    assert alone.waiting() == [ROOMS[1]]
    zero, compute = alone.hears(ROUTER, Reaped(D1))
    assert isinstance(zero, Zero)
    assert isinstance(compute, Compute)
    assert compute.admitted.owner == ROOMS[1]


def test_other_rooms_go_on() -> None:
    alone = Alone()
    alone.in_flight(ROOMS[0])
    alone.in_flight(ROOMS[1])
    alone.tell(WriteFailed(ROOMS[0], 6))
    receipt, _ = alone.tell(Landed(ROOMS[1], 6, (b"one", b"two")))
    assert isinstance(receipt, Send)
    assert isinstance(receipt.body, Receipt)


@pytest.mark.parametrize("room", ROOMS[:4])
def test_where_nothing_is_in_flight_the_word_is_dropped(room: Room) -> None:
    alone = Alone(pages=2)
    alone.sent(ROOMS[0], tokens=8)
    alone.computing(ROOMS[1], tokens=8)
    alone.hears(ROUTER, abort(ROOMS[2]))
    phases = [alone.state.phase(room).value for room in ROOMS[:4]]
    assert phases == ["sent", "waiting", "over", "new"]
    before = alone.state
    (dropped,) = alone.tell(WriteFailed(room, 8))
    assert isinstance(dropped, Dropped)
    assert alone.state is before


@given(
    st.lists(st.sampled_from([Landed, WriteFailed]), min_size=1, max_size=4),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_nothing_is_drained_or_proven_unless_all_has_landed_or_decode_is_reaped(
    answers: list[type], aborted: int, reaped: int
) -> None:
    """Any answers to any number of writes, with an abort and a reaping before, among or after them, or never."""
    size = 4 * len(answers)
    alone = Alone()
    alone.computing(tokens=size)
    for stop in range(4, size + 1, 4):
        alone.tell(ChunkComputed(ROOM, stop, 40 if stop == size else None))
    said = list[object]()
    for i in range(len(answers) + 1):
        if i == aborted:
            alone.hears(ROUTER, abort())
            said += alone.effects
        if i == reaped:
            alone.hears(ROUTER, Reaped(D1))
            said += alone.effects
        if i < len(answers):
            stop = 4 * (i + 1)
            alone.tell(Landed(ROOM, stop, (b"",)) if answers[i] is Landed else WriteFailed(ROOM, stop))
            said += alone.effects
        doubt = WriteFailed in answers[: i + 1]
        is_reaped, answered = reaped <= i, i + 1 >= len(answers)
        told = [e.body for e in said if isinstance(e, Send) and isinstance(e.body, Drained | Receipt)]
        assert not told or (answered and (is_reaped or not doubt))
        held = alone.counts()[1] > 0
        assert held or (answered and (is_reaped or (not doubt and aborted <= i)))
    doubt, ended = WriteFailed in answers, aborted <= len(answers)
    assert (alone.counts()[1] == 0) == (reaped <= len(answers) or (ended and not doubt))


# --- the whole protocol -------------------------------------------------------------------------------------------


def in_doubt() -> tuple[Stage, Room]:
    """Both chunks were written; the second write failed."""
    stage = Stage()
    room = stage.computing()
    first, second = stage.p.writes
    stage.d.receive(first, stage.p.now.source)
    stage.tell(stage.p, stage.p.landed(first))
    stage.tell(stage.p, stage.p.write_failed(second))
    return stage, room


def land_late(stage: Stage) -> None:
    """All that failed lands after all."""
    for page in stage.p.now.late:
        stage.d.receive(page, stage.p.now.source)


def test_the_client_gets_an_error_and_decode_waits_in_quarantine_whatever_it_reminds_prefill_of() -> None:
    stage, room = in_doubt()
    stage.flush()
    assert (stage.refusal().error.status, stage.refusal().error.message) == (500, "prefill could not write to decode")
    stage.fire("drain", room)
    stage.flush()
    land_late(stage)
    assert stage.d.is_quarantined(room)
    assert (stage.p.state.pool.counts().leased, stage.effects(Drained)) == (2, [])


def test_decode_has_the_writer_recycled_and_its_reaping_frees_the_pages() -> None:
    stage, room = in_doubt()
    stage.flush()
    stage.fire("drain", room)
    stage.fire("drain", room)
    stage.flush()
    assert [effect.worker for effect in stage.effects(Restart)] == [stage.p.ref]
    stage.reap(stage.p)
    stage.at_rest()


def test_the_reaping_of_decode_frees_the_source_also_under_a_successor() -> None:
    stage, room = in_doubt()
    stage.flush()
    stage.reap(stage.d)
    stage.d = DecodeProcess.start(WorkerRef("d", 2), STAGE_ROUTER, 14, 4, stage.decisions)
    stage.come_up(stage.d)
    stage.flush()
    assert stage.phases(room)[1] == "over"
    stage.generate(stage.decoding(ticket=1), 2)
    stage.at_rest()
