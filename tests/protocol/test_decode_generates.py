"""The decode machine by itself: the tokens that it passes on, and the frames that it does not read past."""

from __future__ import annotations

import pytest

from pagefence.pool.slots import SlotState
from pagefence.protocol import errors
from pagefence.protocol.decode_state import Phase
from pagefence.protocol.effects import Dropped, Send, SetTimer, Stop
from pagefence.protocol.messages import ComputeFailed, Drained, Failed, Finished, Generated, Reaped, Tokens, WorkerRef

from .decode_alone import P1, P2, ROOM, ROUTER, Alone, abort, frame_broken, the_error

# --- generation ---------------------------------------------------------------------------------------------------


def test_tokens_are_numbered_and_the_fill_mark_follows_one_behind() -> None:
    alone = Alone()
    alone.decoding(prompt=6, max_new=5)
    assert alone.tell(Generated(ROOM, (40,))) == (Send(ROUTER, Tokens(ROOM, 0, (40,))),)
    assert alone.state.pool.lease_of(ROOM).filled == 6
    assert alone.tell(Generated(ROOM, (41, 42))) == (Send(ROUTER, Tokens(ROOM, 1, (41, 42))),)
    assert alone.state.pool.lease_of(ROOM).filled == 8
    assert alone.tell(Generated(ROOM, ())) == ()
    assert alone.state.requests[ROOM].emitted == 3


@pytest.mark.parametrize("last", [(42,), ()])
def test_the_last_tokens_come_before_the_end_and_pages_and_row_are_free(last: tuple[int, ...]) -> None:
    alone = Alone()
    alone.decoding(prompt=6, max_new=3)
    alone.tell(Generated(ROOM, (40, 41)))
    said = [Send(ROUTER, Tokens(ROOM, 2, last))] if last else []
    done = Finished(ROOM, "stop", 6, 2 + len(last))
    assert alone.tell(Generated(ROOM, last, "stop")) == (*said, Send(ROUTER, done), Stop(ROOM))
    assert alone.counts() == (12, 0, 0)
    assert alone.state.slots.count(SlotState.FREE) == 3
    assert alone.state.phase(ROOM) is Phase.OVER


@pytest.mark.parametrize(("count", "too_many"), [(3, False), (4, True)])
def test_no_more_tokens_leave_than_were_asked_for(count: int, too_many: bool) -> None:
    alone = Alone()
    alone.decoding(prompt=6, max_new=3)
    alone.tell(Generated(ROOM, tuple(range(count)), None))
    assert (alone.state.phase(ROOM) is Phase.OVER) == too_many
    if too_many:
        assert the_error(alone.effects, Failed).status == 500
        assert not [e for e in alone.effects if isinstance(e, Send) and isinstance(e.body, Tokens)]


def test_a_row_that_cannot_go_on_leaves_the_batch_and_frees_its_pages() -> None:
    alone = Alone()
    alone.decoding()
    failed = Failed(ROOM, errors.internal("not finite"))
    assert alone.tell(ComputeFailed(ROOM, "not finite")) == (Send(ROUTER, failed), Stop(ROOM))
    assert alone.counts() == (12, 0, 0)


# --- frames -------------------------------------------------------------------------------------------------------


def test_a_broken_frame_names_the_page_and_what_lies_there() -> None:
    alone = Alone()
    alone.decoding()
    page = alone.state.pool.lease_of(ROOM).pages[1]
    error = the_error(frame_broken(alone, foreign=False), Failed)
    assert (error.code, error.rule, error.guard) == ("frame_mismatch", "I1", "page-frames")
    assert f"page {page.index} (position 1, generation {page.generation}) holds somebody." in error.message


@pytest.mark.parametrize(("foreign", "suspects"), [(False, {P1}), (True, {P1, P2})])
def test_a_foreign_frame_suspects_every_writer_and_a_blank_one_its_own(foreign: bool, suspects: set[WorkerRef]) -> None:
    alone = Alone()
    alone.decoding()
    frame_broken(alone, foreign)
    assert alone.state.phase(ROOM) is Phase.QUARANTINED
    assert alone.state.pool.lease_of(ROOM).holders == suspects
    assert alone.state.requests[ROOM].distrusted == foreign


def test_a_room_whose_frames_are_broken_is_failed_and_stopped_before_prefill_is_asked_to_drain() -> None:
    alone = Alone()
    alone.decoding()
    failed, *rest = frame_broken(alone, foreign=False)
    assert isinstance(failed, Send)
    assert rest == [Stop(ROOM), Send(P1, abort(ROOM)), SetTimer(ROOM, "drain", 3.0)]


def test_a_suspect_among_many_is_cleared_by_its_death_alone() -> None:
    alone = Alone()
    alone.decoding()
    frame_broken(alone, foreign=True)
    assert isinstance(alone.hears(P1, Drained(ROOM))[0], Dropped)
    alone.hears(ROUTER, Reaped(P1))
    assert alone.state.pool.lease_of(ROOM).holders == {P2}
    assert alone.effects == (), "it stays where it is, and nobody is told twice"
    alone.hears(ROUTER, Reaped(P2))
    assert alone.counts() == (12, 0, 0)
