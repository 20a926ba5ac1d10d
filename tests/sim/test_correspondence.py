"""Each kind of step that the model does not have is refused, by its file, its number and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pagefence.pool.pages import PageRef
from pagefence.protocol import prefill, router
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Emit, End, Send, Stop
from pagefence.protocol.messages import (
    Abort,
    ChunkComputed,
    ClientGone,
    ComputeFailed,
    Drained,
    Envelope,
    FrameBroken,
    Generated,
    Landed,
    LastOrders,
    Logprob,
    PagesDigested,
    Receipt,
    Reservation,
    Room,
    Timer,
    Tokens,
    WorkerGone,
    WorkerUp,
    WriteFailed,
)
from pagefence.protocol.recording import Stepped, told
from pagefence.protocol.router import Machine
from pagefence.sim.bounds import answer
from pagefence.sim.correspondence import IllegalStep, describe
from tests.protocol.stage import ROUTER
from tests.sim.recorded import D, P, RecordedStage, raised

NOBODY = Room(7, 99, "nobody")


def answered() -> tuple[RecordedStage, Room]:
    """One request of 8 tokens (two chunks of a page each) with its answer of 2."""
    stage = RecordedStage()
    room = stage.decoding()
    stage.generate(room, 2)
    stage.at_rest()
    return stage, room


def refused(stage: RecordedStage, folder: Path, decisions: Decisions | None = None) -> IllegalStep:
    seen = stage.check(folder, decisions)
    assert seen.illegal is not None, describe(seen)
    assert not seen.legal
    assert str(seen.illegal) in describe(seen)
    return seen.illegal


# --- legal runs ---------------------------------------------------------------------------------------------------


def test_a_whole_life_is_legal_and_counted(tmp_path: Path) -> None:
    stage, _ = answered()
    aborted = stage.decoding(ticket=1)
    stage.generate(aborted)
    stage.hang_up(1)
    stage.flush()
    stage.submit(prompt=100, ticket=2)
    lost = stage.decoding(ticket=3)
    stage.generate(lost)
    stage.reap(stage.d)
    stage.flush()

    seen = stage.stop().check(tmp_path)

    assert seen.legal, describe(seen)
    assert seen.at_rest
    assert seen.outcomes == {
        "aborted": 1,
        "failed: worker_lost": 1,
        "finished": 1,
        "refused: context_length_exceeded": 1,
    }
    assert (seen.rooms, seen.crashes) == (3, 1)
    assert seen.steps == {
        str(ref): sum(isinstance(record, Stepped) for record in stage.tapes[ref]) for ref in (ROUTER, D, P)
    }
    assert seen.inputs["Generated"] == 4
    assert describe(seen).startswith("every step is one of the model")


def test_a_fleet_that_takes_nothing_new_and_finishes_what_it_has_is_legal(tmp_path: Path) -> None:
    stage = RecordedStage()
    room = stage.decoding()
    stage.tell_router(LastOrders())
    stage.submit(ticket=1)
    stage.generate(room, 2)
    stage.at_rest()
    seen = stage.stop().check(tmp_path)
    assert seen.legal, describe(seen)
    assert seen.at_rest
    assert seen.outcomes == {"finished": 1, "refused: not_ready": 1}


def test_a_fleet_that_stops_in_the_middle_is_legal_and_not_at_rest(tmp_path: Path) -> None:
    stage = RecordedStage()
    stage.computing()
    seen = stage.stop().check(tmp_path)
    assert seen.legal, describe(seen)
    assert not seen.at_rest
    assert seen.outcomes == {"open": 1}


def test_what_was_sent_to_the_dead_may_stay_unread(tmp_path: Path) -> None:
    stage = RecordedStage()
    stage.computing()
    stage.hang_up()
    stage.reap(stage.p)
    stage.flush()
    seen = stage.stop().check(tmp_path)
    assert seen.legal, describe(seen)
    assert seen.unread >= 1


@pytest.mark.parametrize("ends", ["writer", "target"])
def test_a_write_that_failed_is_legal_also_the_last_one_of_a_prompt(tmp_path: Path, ends: str) -> None:
    stage = RecordedStage()
    room = stage.computing()
    first, last = stage.p.writes
    stage.tell(stage.p, stage.p.landed(first))
    stage.tell(stage.p, stage.p.write_failed(last))
    stage.flush()
    stage.fire("drain", room)
    stage.flush()
    stage.reap(stage.p if ends == "writer" else stage.d)
    stage.flush()
    seen = stage.stop().check(tmp_path)
    assert seen.legal, describe(seen)
    assert seen.at_rest
    assert (seen.inputs["WriteFailed"], seen.outcomes) == (1, {"refused: internal_error": 1})


# --- messages -----------------------------------------------------------------------------------------------------


def test_a_message_that_nobody_sent(tmp_path: Path) -> None:
    stage, room = answered()
    stage.forge(D, stage.index(D, Receipt), Envelope(P, D, Drained(room)))
    illegal = refused(stage, tmp_path)
    assert (illegal.file, illegal.what) == ("d.1.trace", "Drained from p#1")
    assert "Receipt" in illegal.expected
    assert illegal.step == stage.index(D, Drained)


def test_a_message_after_all_that_was_sent(tmp_path: Path) -> None:
    stage, room = answered()
    stage.forge(D, len(stage.tapes[D]), Envelope(P, D, Drained(room)))
    assert "never sent" in refused(stage, tmp_path).found


def test_messages_of_one_channel_in_another_order(tmp_path: Path) -> None:
    stage, _ = answered()
    first, second = stage.index(ROUTER, Tokens, 0), stage.index(ROUTER, Tokens, 1)
    tape = stage.tapes[ROUTER]
    tape[first], tape[second] = tape[second], tape[first]
    assert "the oldest of its channel" in refused(stage, tmp_path).expected


def test_a_message_missed_in_the_middle(tmp_path: Path) -> None:
    stage, _ = answered()
    del stage.tapes[ROUTER][stage.index(ROUTER, Tokens, 0)]
    assert "the oldest of its channel" in refused(stage, tmp_path).expected


def test_a_message_for_another_incarnation_or_from_nobody(tmp_path: Path) -> None:
    stage, room = answered()
    stage.forge(D, 1, Envelope(P, msgspec.structs.replace(D, epoch=2), Drained(room)))
    assert refused(stage, tmp_path).expected == "a message to d#1"
    stage.tapes[D][1] = Stepped(Envelope(msgspec.structs.replace(P, epoch=9), D, Drained(room)), ())
    assert refused(stage, tmp_path).expected == "a sender with a recording"


def test_an_answer_before_its_question(tmp_path: Path) -> None:
    """Each machine alone is in order; together no order has every cause before its effect."""
    stage, _ = answered()
    tape = stage.tapes[ROUTER]
    tape.append(tape.pop(stage.index(ROUTER, WorkerUp, 1)))
    assert not stage.check(tmp_path).legal


# --- effects and exceptions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["more", "fewer", "other"])
def test_an_effect_that_differs(tmp_path: Path, change: str) -> None:
    stage, _ = answered()
    at = stage.index(P, Landed, 1)
    step = stage.tapes[P][at]
    assert isinstance(step, Stepped)
    send, timer = step.effects
    effects = {"more": (send, timer, timer), "fewer": (send,), "other": (send, send)}[change]
    stage.tapes[P][at] = msgspec.structs.replace(step, effects=effects)
    illegal = refused(stage, tmp_path)
    assert (illegal.file, illegal.step) == ("p.1.trace", at)
    assert "resend" in (illegal.found if change == "more" else illegal.expected)


def test_a_machine_that_raised(tmp_path: Path) -> None:
    stage, room = answered()
    stage.tapes[D].append(raised(Timer(room, "hand-off")))
    illegal = refused(stage, tmp_path)
    assert (illegal.what, illegal.found) == ("the machine raised", "AssertionError()")


def test_a_fault_in_a_decision_shows(tmp_path: Path) -> None:
    stage = RecordedStage(replace(Decisions(), not_ready=lambda topology: (), router_limit=lambda s, t: None))
    stage.submit(prompt=100)
    assert refused(stage, tmp_path).step == stage.index(ROUTER, object, -1)
    assert stage.check(tmp_path, stage.decisions).legal


# --- timers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ref", [ROUTER, P, D])
def test_a_timer_never_set(tmp_path: Path, ref: Any) -> None:
    stage, _ = answered()
    stage.forge(ref, 2, Timer(NOBODY, "drain"))
    assert refused(stage, tmp_path).what == "a timer that was never set"


def test_a_timer_that_fires_twice(tmp_path: Path) -> None:
    stage, room = answered()
    stage.fire("hand-off", room)
    tape = stage.tapes[D]
    assert stage.check(tmp_path).legal
    tape.append(tape[-1])
    assert refused(stage, tmp_path).what == "a timer that was never set"


# --- answers of the driver ----------------------------------------------------------------------------------------

REF = PageRef(0, 1)
ANSWERS: dict[str, tuple[Any, Callable[[Room], Any], type, str]] = {
    "landed without launch": (P, lambda room: Landed(room, 4, (b"",)), ChunkComputed, "Landed without WriteChunk"),
    "landed elsewhere": (P, lambda room: Landed(room, 5, (b"",)), Landed, "Landed at another mark"),
    "too few digests": (P, lambda room: Landed(room, 6, ()), Landed, "digests of the pages that the write"),
    "failed without launch": (P, lambda room: WriteFailed(room, 4), ChunkComputed, "WriteFailed without WriteChunk"),
    "failed elsewhere": (P, lambda room: WriteFailed(room, 5), Landed, "WriteFailed at another mark"),
    "chunk of nobody": (P, lambda room: ChunkComputed(NOBODY, 4), Landed, "ChunkComputed without Compute"),
    "chunk does not grow": (P, lambda room: ChunkComputed(room, 0), ChunkComputed, "a chunk that does not grow"),
    "chunk too long": (P, lambda room: ChunkComputed(room, 9, 1), ChunkComputed, "a chunk that does not grow"),
    "early first token": (P, lambda room: ChunkComputed(room, 4, 1), ChunkComputed, "the last chunk alone"),
    "failure of nobody": (P, lambda room: ComputeFailed(NOBODY, ""), Landed, "ComputeFailed without Compute"),
    "decode's word": (P, lambda room: Generated(room, (1,)), Landed, "no input of prefill"),
    "digest without verify": (D, lambda room: PagesDigested(room, ()), Receipt, "PagesDigested without Verify"),
    "too few pages": (D, lambda room: PagesDigested(room, (b"",)), PagesDigested, "digests of the pages to verify"),
    "token without row": (D, lambda room: Generated(room, (1,)), PagesDigested, "Generated without Run"),
    "two tokens": (D, lambda room: Generated(room, (0, 1)), Generated, "a decode step gives one token"),
    "other first token": (D, lambda room: Generated(room, (5,)), Generated, "the first token is the receipt's"),
    "other likelihood": (
        D,
        lambda room: Generated(room, (answer(0, 0),), None, (Logprob(-1.0),)),
        Generated,
        "the first log-probability is the receipt's",
    ),
    "ends too early": (D, lambda room: Generated(room, (answer(0, 0),), "length"), Generated, "the end of an answer"),
    "frame of nobody": (D, lambda room: FrameBroken(room, REF, 0, "", True), Receipt, "FrameBroken without"),
    "frame elsewhere": (D, lambda room: FrameBroken(room, REF, 9, "", True), Generated, "a broken frame of a page"),
    "row of nobody": (D, lambda room: ComputeFailed(room, ""), Receipt, "ComputeFailed without Run"),
    "prefill's word": (D, lambda room: Landed(room, 4, ()), Receipt, "no input of decode"),
    "worker's word": (ROUTER, lambda room: Landed(room, 4, ()), Tokens, "no input of the router"),
    "client unknown": (ROUTER, lambda room: ClientGone(5), Tokens, "ClientGone"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_nobody_asked_for(tmp_path: Path, name: str) -> None:
    ref, message, before, what = ANSWERS[name]
    stage, room = answered()
    at = stage.index(ref, before)
    stage.forge(ref, at, message(room))
    illegal = refused(stage, tmp_path)
    assert illegal.what.startswith(what)
    assert illegal.step == at


def test_more_tokens_than_were_asked_for(tmp_path: Path) -> None:
    stage, room = answered()
    at = stage.index(D, Generated, 1)
    stage.tapes[D][at] = Stepped(Generated(room, (1,)), ())
    assert refused(stage, tmp_path).what == "the end of an answer"


# --- workers ------------------------------------------------------------------------------------------------------


def test_a_worker_that_acts_after_it_was_reaped(tmp_path: Path) -> None:
    stage = RecordedStage()
    stage.computing()
    stage.reap(stage.p)
    stage.flush()
    assert stage.check(tmp_path).legal
    tape = stage.tapes[ROUTER]
    tape.insert(stage.index(ROUTER, Reservation), tape.pop(stage.index(ROUTER, WorkerGone)))
    illegal = refused(stage, tmp_path)
    assert illegal.what == "no cause of it comes before it"
    assert "p.1.trace" in illegal.found


def test_a_worker_without_a_recording(tmp_path: Path) -> None:
    stage, _ = answered()
    message = stage.tapes[ROUTER][1]
    assert isinstance(message, Stepped) and isinstance(message.message, WorkerUp)
    other = msgspec.structs.replace(message.message, worker=msgspec.structs.replace(P, epoch=5))
    stage.forge(ROUTER, 1, other)
    assert refused(stage, tmp_path).expected == "a worker with a recording"


def test_a_worker_that_lies_about_its_pool(tmp_path: Path) -> None:
    stage, _ = answered()
    step = stage.tapes[ROUTER][1]
    assert isinstance(step, Stepped) and isinstance(step.message, WorkerUp)
    more = msgspec.structs.replace(step.message.capacity, pool_tokens=1_000_000)
    stage.tapes[ROUTER][1] = msgspec.structs.replace(step, message=msgspec.structs.replace(step.message, capacity=more))
    assert "its own pool" in refused(stage, tmp_path).expected


def test_a_worker_reaped_twice(tmp_path: Path) -> None:
    stage = RecordedStage()
    stage.reap(stage.p)
    stage.flush()
    stage.tapes[ROUTER].append(stage.tapes[ROUTER][stage.index(ROUTER, WorkerGone)])
    assert refused(stage, tmp_path).what == "WorkerGone"


# --- rules that only the whole run shows ----------------------------------------------------------------------------


def test_that_a_writer_says_drained_after_a_failed_write_proves_nothing(tmp_path: Path) -> None:
    def drained(d: Decisions, s: Any, m: WriteFailed) -> Any:
        after, effects = prefill.write_failed(d, s, m)
        return after, (*effects, Send(s.requests[m.room].decode, Drained(m.room)))

    stage = RecordedStage(Decisions(cells={("prefill", prefill.Phase.COMPUTING, WriteFailed): drained}))
    stage.computing()
    stage.tell(stage.p, stage.p.write_failed(stage.p.writes[0]))
    stage.flush()
    illegal = refused(stage, tmp_path, stage.decisions)
    assert (illegal.file, illegal.step, illegal.what) == ("d.1.trace", stage.index(D, Drained), "rule I2 is broken")


def test_two_outcomes(tmp_path: Path) -> None:
    def twice(d: Decisions, s: Any, m: ClientGone) -> Any:
        after, effects = Machine().step(s, m)
        return after, (*effects, End(m.ticket, "stop", 0, 0))

    faulty = replace(Decisions(), cells={("router", "*", ClientGone): twice})
    stage = RecordedStage()
    stage.decoding()
    effects = told(Machine(faulty).step(stage.router, ClientGone(0))[1])
    stage.forge(ROUTER, len(stage.tapes[ROUTER]), ClientGone(0), effects)
    assert refused(stage, tmp_path).what == "effects"
    illegal = refused(stage, tmp_path, faulty)
    assert illegal.what == "rule I5 is broken"
    assert "second outcome" in illegal.found


def test_tokens_that_decode_never_generated(tmp_path: Path) -> None:
    """I10 across machines: the router is consistent in itself, and what it passes on is not what decode made."""

    def swapped(s: Any, m: Tokens) -> Any:
        after, effects = router.tokens(s, m)
        return after, tuple(replace(e, token_ids=(77,)) if isinstance(e, Emit) else e for e in effects)

    stage = RecordedStage(replace(Decisions(), cells={("router", "committed", Tokens): swapped}))
    stage.generate(stage.decoding())
    stage.flush()
    assert refused(stage, tmp_path, stage.decisions).what == "rule I10 is broken"


def test_pages_let_go_while_a_write_may_still_land(tmp_path: Path) -> None:
    """Neither machine alone is wrong, and no message: only the causes show it (I2)."""
    stage = RecordedStage(replace(Decisions(), may_release=lambda lease: True))
    stage.computing()
    stage.hang_up()
    stage.deliver(Abort, to=D)
    illegal = refused(stage, tmp_path, stage.decisions)
    assert illegal.what == "rule I2 is broken"
    assert (illegal.file, illegal.step) == ("d.1.trace", stage.index(D, Abort))


def test_pages_that_are_held_at_rest(tmp_path: Path) -> None:
    def leaks(d: Decisions, s: Any, m: Abort) -> Any:
        return s, (Stop(m.room),)

    stage = RecordedStage(replace(Decisions(), cells={("decode", "decoding", Abort): leaks}))
    room = stage.decoding()
    stage.hang_up()
    stage.flush()
    stage.fire("hand-off", room)
    illegal = refused(stage.stop(), tmp_path, stage.decisions)
    assert (illegal.file, illegal.what) == ("the fleet at rest", "rule I6 is broken")
