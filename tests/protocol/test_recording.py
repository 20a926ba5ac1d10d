"""The recording of one machine: its bytes as they are fixed, what is read back from them, and what is refused."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from pagefence.pool.pages import PagePool
from pagefence.pool.slots import SlotPool
from pagefence.protocol import recording
from pagefence.protocol.decode_state import DecodeConfig, DecodeState
from pagefence.protocol.effects import Emit, Stop, StopCompute
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import Generated, Logprob, Room, Timer, WorkerRef
from pagefence.protocol.prefill import PrefillConfig, PrefillState
from pagefence.protocol.recording import (
    BadRecording,
    Closing,
    Contents,
    DecodeBegan,
    Ended,
    PrefillBegan,
    Raised,
    Record,
    RouterBegan,
    State,
    Stepped,
)
from pagefence.protocol.router import RouterConfig, RouterState

ROUTER, ME = WorkerRef("router", 7), WorkerRef("p", 31)
ROOM, OTHER = Room(7, 0, "n0"), Room(7, 1, "n1")
MEMBERS = Membership(ME, ROUTER)
ROUTER_CONFIG, PREFILL_CONFIG, DECODE_CONFIG = RouterConfig(24), PrefillConfig(2, b"key"), DecodeConfig(2, b"key")
STEP = Stepped(Timer(ROOM, "drain"), recording.told((Stop(ROOM), StopCompute(ROOM))))
TAPE: tuple[Record, ...] = (
    RouterBegan(recording.FORMAT, ROUTER, ROUTER_CONFIG),
    STEP,
    Raised(Timer(OTHER, "deadline"), "AssertionError()"),
    Closing(),
)


def written(*tape: Record) -> bytes:
    return b"".join(recording.frame(i, record) for i, record in enumerate(tape))


class Stranger(msgspec.Struct, frozen=True, tag=True):
    """A record of no kind that is known."""


# --- what is written ----------------------------------------------------------------------------------------------


def test_format_2_is_these_bytes() -> None:
    """Whoever changes them changes FORMAT, or old recordings are misread."""
    assert recording.FORMAT == 2
    first = "0000000e c6fcf21b 81a474797065a7436c6f73696e67 f9ef076a"
    second = "0000000c 904ef452 81a474797065a5456e646564 08df009f"
    assert written(Closing(), Ended()) == bytes.fromhex(first + second)


def test_a_file_is_named_after_the_incarnation_with_its_epoch_in_hex() -> None:
    assert recording.file_name(ME) == "p.1f.trace"


@pytest.mark.parametrize(
    ("state", "first"),
    [
        (RouterState(ROUTER, ROUTER_CONFIG), RouterBegan(2, ROUTER, ROUTER_CONFIG)),
        (
            PrefillState(MEMBERS, PREFILL_CONFIG, PagePool.of(6, 4)),
            PrefillBegan(2, ME, ROUTER, PREFILL_CONFIG, pages=6, page_size=4),
        ),
        (
            DecodeState(MEMBERS, DECODE_CONFIG, PagePool.of(6, 4), SlotPool[Room].of(3)),
            DecodeBegan(2, ME, ROUTER, DECODE_CONFIG, pages=6, page_size=4, rows=3),
        ),
    ],
    ids=["router", "prefill", "decode"],
)
def test_the_first_record_says_all_that_the_first_state_is_made_of(state: State, first: recording.Began) -> None:
    assert recording.began(state) == first
    assert recording.first_state(first) == state


def test_effects_are_told_one_by_one_with_their_kind_and_what_they_say() -> None:
    stop, stop_compute, stop_other = recording.told((Stop(ROOM), StopCompute(ROOM), Stop(OTHER)))
    assert (stop,) == recording.told([Stop(ROOM)])
    assert stop != stop_compute, "the same words, another kind"
    assert stop != stop_other, "the same kind, other words"


# --- what is read back --------------------------------------------------------------------------------------------


def test_what_was_written_is_read_back_whether_or_not_the_process_ended_in_order() -> None:
    assert recording.read(b"") == Contents((), torn=False)
    assert recording.read(written(*TAPE)) == Contents(TAPE, torn=False)
    assert recording.read(written(*TAPE, Ended())) == Contents((*TAPE, Ended()), torn=False)


def test_log_probabilities_are_read_back_to_the_last_bit() -> None:
    likely = (Logprob(-0.1, ((1, -0.1), (2, -1 / 3))),)
    step = Stepped(Generated(ROOM, (1,), None, likely), recording.told((Emit(0, (1,), likely),)))
    assert recording.read(written(TAPE[0], step)).records == (TAPE[0], step)


def test_a_recording_that_breaks_off_anywhere_is_read_up_to_the_last_whole_record() -> None:
    whole = [len(written(*TAPE[:count])) for count in range(len(TAPE) + 1)]
    data = written(*TAPE)
    for cut in range(len(data)):
        count = sum(end <= cut for end in whole) - 1
        assert recording.read(data[:cut]) == Contents(TAPE[:count], torn=cut not in whole), cut


# --- what is refused ----------------------------------------------------------------------------------------------


def test_one_wrong_bit_is_noticed_wherever_it_lies() -> None:
    data = written(Closing(), STEP, Ended())
    for at in range(len(data)):
        with pytest.raises(BadRecording, match=r"record \d"):
            recording.read(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_the_damage_is_named_by_its_record_and_by_where_it_lies_in_it() -> None:
    data, second = written(Closing(), Ended()), len(written(Closing()))
    with pytest.raises(BadRecording, match=rf"record 1 \(byte {second}\) does not begin as one"):
        recording.read(data[:second] + b"\xff" + data[second + 1 :])
    with pytest.raises(BadRecording, match="the content of record 1 is damaged"):
        recording.read(data[:-1] + b"\xff")


def test_a_beginning_that_is_whole_but_damaged_is_no_torn_record() -> None:
    head = written(Closing())[:8]
    assert recording.read(head).torn
    with pytest.raises(BadRecording, match="record 0"):
        recording.read(head[:-1] + bytes([head[-1] ^ 1]))


def test_a_record_in_the_place_of_another_is_refused() -> None:
    with pytest.raises(BadRecording, match="record 0"):
        recording.read(recording.frame(1, Closing()))


@pytest.mark.parametrize("more", [b"\0", recording.frame(2, Ended())])
def test_nothing_follows_the_end(more: bytes) -> None:
    with pytest.raises(BadRecording, match=f"{len(more)} bytes follow the end"):
        recording.read(written(Closing(), Ended()) + more)


def test_a_whole_record_of_no_known_kind_is_refused() -> None:
    with pytest.raises(BadRecording, match="record 1 is of no known kind"):
        recording.read(written(Closing(), cast(Record, Stranger())))
