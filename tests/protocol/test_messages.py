"""The words on the wire: what a sender leaves out says that nothing was asked, cached or found."""

from __future__ import annotations

import msgspec

from pagefence.protocol.messages import (
    ChunkComputed,
    Committed,
    Envelope,
    ErrorInfo,
    Generated,
    Logprob,
    Offer,
    PeerMessage,
    Receipt,
    Reservation,
    Room,
    Start,
    Submit,
    Tokens,
    WorkerRef,
)

ROOM, P, D, ROUTER = Room(255, 16, "n"), WorkerRef("p", 1), WorkerRef("d", 2), WorkerRef("router", 7)
RESERVATION = Reservation(ROOM, P, D, 8, 4, 2, ())


def over_the_wire(body: PeerMessage) -> PeerMessage:
    sent = msgspec.msgpack.encode(Envelope(P, D, body))
    return msgspec.msgpack.decode(sent, type=Envelope).body


def test_what_is_left_out_is_nothing() -> None:
    offer, start = Offer(ROOM, 0, P, "tenant", 8, 2), Start(ROOM, 0, "tenant", (1,), RESERVATION)
    receipt, committed = Receipt(ROOM, P, D, 8, 2, (), (), 1), Committed(ROOM)
    tokens, likely = Tokens(ROOM, 0, (1,)), Tokens(ROOM, 0, (1,), (Logprob(-0.5, ((1, -0.5),)),))
    for body in (offer, start, receipt, committed, tokens, likely):
        assert over_the_wire(body) == body
    assert offer.sampling == start.sampling == Submit(0, "n", "tenant", (1,), 1).sampling == b""
    assert (receipt.cached, receipt.mac, committed.cached_tokens) == (0, b"", 0)
    assert ChunkComputed(ROOM, 4).first_token is None
    assert Generated(ROOM, (1,)).finish is None
    assert receipt.first_logprobs == ChunkComputed(ROOM, 4).first_logprobs == ()
    assert tokens.logprobs == Generated(ROOM, (1,)).logprobs == ()
    assert Logprob(-0.5).top == ()
    error = ErrorInfo(500, "code", "message", "type")
    assert (error.param, error.rule, error.guard, error.retry_after_s) == (None, None, None, None)


def test_a_client_that_names_no_parameter_is_told_of_its_prompt() -> None:
    assert Submit(0, "n", "tenant", (1,), 1).param == "prompt"


def test_rooms_and_incarnations_read_as_they_do_in_a_log() -> None:
    assert (str(ROOM), str(D)) == ("ff-10-n", "d#2")


def test_rooms_sort_by_the_order_in_which_they_were_minted() -> None:
    rooms = [Room(7, 10, "a"), Room(7, 9, "b"), Room(6, 11, "c")]
    assert sorted(rooms) == [rooms[2], rooms[1], rooms[0]]
    assert sorted([WorkerRef("b", 1), WorkerRef("a", 2), WorkerRef("a", 1)])[0] == WorkerRef("a", 1)
