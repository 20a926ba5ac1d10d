"""Who is heard, who is alive and what is over, as one worker knows it."""

from __future__ import annotations

import pytest

from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import Ack, Envelope, Offer, PeerMessage, PeerUp, Reaped, Room, Start, WorkerRef

from .stage import Stage

ME, ROUTER, PEER = WorkerRef("d", 3), WorkerRef("router", 7), WorkerRef("p", 1)
FRESH = Membership(ME, ROUTER)


def room(counter: int, epoch: int = ROUTER.epoch) -> Room:
    return Room(epoch, counter, "n")


def routers_words() -> list[PeerMessage]:
    """What only the router may say."""
    stage = Stage()
    stage.submit()
    offer = stage.waiting(Offer)[0]
    stage.flush_only_decode()
    return [offer, stage.waiting(Start)[0], PeerUp(PEER, "prefill", "here"), Reaped(PEER)]


# --- who is heard -------------------------------------------------------------------------------------------------


def test_the_router_and_living_peers_are_heard_and_nobody_else() -> None:
    members = FRESH.up(PEER)
    ack = Ack(room(0))
    assert members.refuses(Envelope(ROUTER, ME, ack)) is None
    assert members.refuses(Envelope(PEER, ME, ack)) is None
    assert FRESH.refuses(Envelope(PEER, ME, ack)) is not None
    assert members.refuses(Envelope(WorkerRef("p", 2), ME, ack)) is not None
    assert members.refuses(Envelope(WorkerRef("router", 8), ME, ack)) is not None


def test_what_was_meant_for_another_incarnation_is_refused_from_everybody() -> None:
    members = FRESH.up(PEER)
    for sender in (ROUTER, PEER):
        assert members.refuses(Envelope(sender, WorkerRef("d", 2), Ack(room(0)))) is not None


@pytest.mark.parametrize("body", routers_words(), ids=lambda body: type(body).__name__)
def test_beginnings_and_deaths_are_the_routers_to_tell(body: PeerMessage) -> None:
    members = FRESH.up(PEER)
    assert members.refuses(Envelope(ROUTER, ME, body)) is None
    assert members.refuses(Envelope(PEER, ME, body)) is not None


# --- who is alive -------------------------------------------------------------------------------------------------


def test_the_newest_incarnation_is_alive_and_the_one_before_it_is_not() -> None:
    members = FRESH.up(PEER).up(WorkerRef("p", 2))
    assert members.is_alive(WorkerRef("p", 2))
    assert not members.is_alive(PEER)


def test_the_death_of_an_older_incarnation_leaves_its_successor_alive() -> None:
    members = FRESH.up(WorkerRef("p", 2)).gone(PEER)
    assert members.is_alive(WorkerRef("p", 2))


def test_the_dead_do_not_come_back_however_many_died() -> None:
    other = WorkerRef("p2", 1)
    members = FRESH.up(PEER).up(other).gone(PEER).gone(other).up(PEER).up(other)
    assert not members.is_alive(PEER)
    assert not members.is_alive(other)


# --- what is over -------------------------------------------------------------------------------------------------


def test_a_room_is_over_once_it_ended_here_and_its_neighbours_are_not() -> None:
    members = FRESH.end(room(5))
    assert [members.is_over(room(counter)) for counter in (4, 5, 6)] == [False, True, False]


def test_every_room_below_the_floor_is_over_and_the_one_at_the_floor_is_not() -> None:
    members = FRESH.raise_floor(5)
    assert [members.is_over(room(counter)) for counter in (4, 5, 6)] == [True, False, False]


def test_rooms_of_another_router_are_over_and_leave_no_tombstone() -> None:
    for epoch in (ROUTER.epoch - 1, ROUTER.epoch + 1):
        assert FRESH.is_over(room(5, epoch))
        assert FRESH.end(room(5, epoch)) == FRESH


def test_a_tombstone_is_kept_only_where_the_floor_does_not_speak() -> None:
    members = FRESH.raise_floor(5).end(room(4)).end(room(5))
    assert set(members.over) == {5}


def test_a_rising_floor_forgets_what_lies_below_it_and_nothing_else() -> None:
    members = FRESH
    for counter in (0, 2, 3, 4):
        members = members.end(room(counter))
    once = members.raise_floor(3)
    assert (once.floor, set(once.over)) == (3, {3, 4})
    twice = once.raise_floor(4)
    assert (twice.floor, set(twice.over)) == (4, {4})


def test_the_floor_never_falls() -> None:
    members = FRESH.end(room(6)).raise_floor(5)
    assert members.raise_floor(4) == members
    assert members.raise_floor(5) == members
