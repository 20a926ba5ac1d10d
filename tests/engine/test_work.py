"""What workers do when one of their parts fails: that request ends, the others and the process go on."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from pagefence.engine.cores import Cores
from pagefence.engine.decode import DecodeWork
from pagefence.engine.kv import frames
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import TransferFailed
from pagefence.engine.loop import Loop
from pagefence.engine.model.decoder import Span
from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.engine.prefill import PrefillWork
from pagefence.engine.settings import Settings, WorkerOrders
from pagefence.pool.admitted import Admitted
from pagefence.pool.pages import PagePool, PageRef
from pagefence.pool.slots import SlotPool
from pagefence.protocol import prefill
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Compute, Run, Send, SetTimer, StopCompute, WriteChunk
from pagefence.protocol.invariants import check_prefill
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import (
    ChunkComputed,
    ComputeFailed,
    Envelope,
    Failed,
    FrameBroken,
    Generated,
    Landed,
    Logprob,
    PeerUp,
    Reaped,
    Receipt,
    Reservation,
    Room,
    Start,
    WorkerRef,
    WriteFailed,
)
from pagefence.protocol.prefill import PrefillConfig, PrefillState

PREFILL, DECODE = WorkerRef("prefill-0", 1), WorkerRef("decode-0", 1)
ROOMS = (Room(1, 0, "a"), Room(1, 1, "b"))
GREEDY = msgspec.msgpack.encode(SamplingParams())
LIKELY = msgspec.msgpack.encode(SamplingParams(logprobs=1))
PAGES = ((PageRef(0, 1), PageRef(1, 1)), (PageRef(2, 1), PageRef(3, 1)))


def orders(run_dir: str = "/nowhere") -> WorkerOrders:
    return WorkerOrders(
        me=PREFILL,
        role="prefill",
        router=WorkerRef("router", 9),
        settings=Settings(model="m", model_name="m"),
        run_dir=run_dir,
        mac_key=bytes(32),
        segment_token=bytes(32),
        http_port=0,
        seat=0,
        memory_bytes=0,
    )


class Ear:
    """A loop that only listens."""

    def __init__(self, state: object = None) -> None:
        self.orders, self.state = orders(), state
        self.heard: list[object] = []

    def post_local(self, message: object) -> None:
        self.heard.append(message)


@pytest.fixture
def segment() -> Iterator[Segment]:
    with Segment.create(Layout(4, 4, 1, 1, 2, "float32")) as made:
        yield made


def decoding(
    segment: Segment, logits: torch.Tensor, decisions: Decisions, sampling: bytes = GREEDY
) -> tuple[DecodeWork, Ear]:
    """Both rooms in the batch, their first tokens told already."""
    slots, handles = SlotPool[Room].of(2).reserve(2)
    for handle, room in zip(handles, ROOMS, strict=True):
        slots = slots.fill(handle, room)
    model = SimpleNamespace(config=SimpleNamespace(eos_ids=()), forward=lambda spans, kv: logits)
    ear = Ear(SimpleNamespace(slots=slots))
    work = DecodeWork(ear, model, segment, decisions, lambda writer: None)  # type: ignore[arg-type]
    for room, handle, pages in zip(ROOMS, handles, PAGES, strict=True):
        frames.write_frames(segment, pages[:1], room)
        work.perform(Run(room, handle, pages, 1, 4, 4, 0, sampling))
    ear.heard.clear()
    return work, ear


def test_a_row_whose_logits_are_not_finite_ends_alone(segment: Segment) -> None:
    logits = torch.tensor([[float("nan"), 0.0], [0.0, 1.0]])
    work, ear = decoding(segment, logits, Decisions())
    work.do_one()
    failed, made = ear.heard
    assert isinstance(failed, ComputeFailed)
    assert failed.room == ROOMS[0]
    assert made == Generated(ROOMS[1], (1,))
    assert work.has_work()


def test_a_row_that_asked_is_told_each_tokens_log_probability_the_receipts_first(segment: Segment) -> None:
    work, ear = decoding(segment, torch.zeros(2, 2), Decisions(), LIKELY)
    first = (Logprob(-3.0),)
    slot = work._rows.pop(ROOMS[0]).slot
    work.perform(Run(ROOMS[0], slot, PAGES[0], 1, 4, 4, 0, LIKELY, first))
    assert ear.heard == [Generated(ROOMS[0], (0,), None, first)]
    work.do_one()
    for made in ear.heard[1:]:
        assert isinstance(made, Generated)
        assert [likely.value for likely in made.logprobs] == [pytest.approx(-0.6931, abs=1e-4)]
        assert [len(likely.top) for likely in made.logprobs] == [1]


def test_a_broken_frame_is_told_with_its_position_in_its_own_room(segment: Segment) -> None:
    work, ear = decoding(segment, torch.zeros(1, 2), Decisions())
    segment.zero((PAGES[1][1].index,))
    work.do_one()
    broken = next(message for message in ear.heard if isinstance(message, FrameBroken))
    assert (broken.room, broken.page, broken.position) == (ROOMS[1], PAGES[1][1], 1)


def test_what_lands_while_the_step_reads_reaches_no_client(segment: Segment) -> None:
    work, ear = decoding(segment, torch.zeros(2, 2), Decisions())

    def forward(spans: object, kv: object) -> torch.Tensor:
        frames.write_frames(segment, PAGES[0][:1], ROOMS[1])  # a foreign write that comes late
        return torch.zeros(2, 2)

    work._model.forward = forward  # type: ignore[method-assign]
    work.do_one()
    broken, made = ear.heard
    assert isinstance(broken, FrameBroken)
    assert (broken.room, broken.foreign) == (ROOMS[0], True)
    assert made == Generated(ROOMS[1], (0,))


def test_a_decode_that_died_before_it_was_mapped_costs_its_own_requests_only(segment: Segment) -> None:
    ear = Ear()
    work = PrefillWork(ear, None, segment, Decisions())  # type: ignore[arg-type]
    work.peer_up(PeerUp(DECODE, "decode", "/nowhere/decode.segment"))
    reservation = Reservation(ROOMS[0], PREFILL, DECODE, 1, 4, 1, PAGES[0][:1])
    work.perform(Compute(Admitted(ROOMS[0], "t", 1, (0,)), PAGES[0][:1], reservation, GREEDY))
    work.do_one()
    (failed,) = ear.heard
    assert isinstance(failed, ComputeFailed)
    assert not work.has_work()


def test_prefill_computes_from_where_the_cache_ends_and_writes_from_the_beginning(segment: Segment) -> None:
    ear, spans, written = Ear(), [], []

    def forward(asked: list[Span], kv: object) -> torch.Tensor:
        spans.extend(asked)
        return torch.tensor([[0.0, 1.0]])

    def write(source: Segment, pages: tuple[int, ...], target: tuple[PageRef, ...], room: Room) -> tuple[bytes, ...]:
        written.append((pages, target))
        return (b"",) * len(pages)

    work = PrefillWork(ear, SimpleNamespace(forward=forward), segment, Decisions())  # type: ignore[arg-type]
    work._transfers[DECODE] = SimpleNamespace(write=write)
    reservation = Reservation(ROOMS[0], PREFILL, DECODE, 6, 4, 1, PAGES[1])
    work.perform(Compute(Admitted(ROOMS[0], "t", 6, (9, 9, 9, 9, 1, 0)), PAGES[0], reservation, LIKELY, cached=4))
    work.do_one()
    work.perform(WriteChunk(ROOMS[0], 0, 6))
    assert spans == [Span((0, 1), 4, (1, 0))]
    assert written == [((0, 1), PAGES[1])]
    computed, landed = ear.heard
    assert isinstance(computed, ChunkComputed)
    assert (computed.computed, computed.first_token, len(computed.first_logprobs)) == (6, 1, 1)
    assert landed == Landed(ROOMS[0], 6, (b"", b""))
    assert (work.computed_tokens, work.cached_tokens) == (2, 4)


def test_a_write_that_failed_is_reported_its_connection_dropped_and_nothing_made_up_at_the_reaping(
    segment: Segment,
) -> None:
    ear = Ear()

    def write(source: Segment, pages: tuple[int, ...], target: tuple[PageRef, ...], room: Room) -> tuple[bytes, ...]:
        raise TransferFailed("no acknowledgement")

    def forward(asked: list[Span], kv: object) -> torch.Tensor:
        return torch.tensor([[0.0, 1.0]])

    work = PrefillWork(ear, SimpleNamespace(forward=forward), segment, Decisions())  # type: ignore[arg-type]
    work._transfers[DECODE] = SimpleNamespace(write=write)
    reservation = Reservation(ROOMS[0], PREFILL, DECODE, 6, 4, 1, PAGES[1])
    work.perform(Compute(Admitted(ROOMS[0], "t", 6, (9, 9, 9, 9, 1, 0)), PAGES[0], reservation, GREEDY))
    work.do_one()
    work.perform(WriteChunk(ROOMS[0], 0, 6))
    assert ear.heard[1:] == [WriteFailed(ROOMS[0], 6)]
    assert work._transfers == {}, "other rooms write over a new connection"
    work.perform(StopCompute(ROOMS[0]))  # the machine's answer, whichever chunk it was
    assert not work.has_work()
    work.peer_gone(Reaped(DECODE))
    assert len(ear.heard) == 2


def prefilling(
    segment: Segment, forward: Callable[[list[Span], object], torch.Tensor], decodes: tuple[WorkerRef, ...] = (DECODE,)
) -> tuple[PrefillWork, Ear]:
    """Both rooms in the queue, of six tokens each; `decodes` can be reached, and the second room is for the last."""
    ear = Ear()
    work = PrefillWork(ear, SimpleNamespace(forward=forward), segment, Decisions())  # type: ignore[arg-type]
    for room, pages, decode in zip(ROOMS, PAGES, (decodes[0], decodes[-1]), strict=True):
        work._transfers[decode] = SimpleNamespace(write=lambda *_: (b"", b""))
        reservation = Reservation(room, PREFILL, decode, 6, 4, 1, pages)
        tokens = (9, 9, 9, 9, 1, room.counter)
        work.perform(Compute(Admitted(room, "t", 6, tokens), pages, reservation, GREEDY))
    return work, ear


def told(ear: Ear) -> list[tuple[type, Room]]:
    return [(type(heard), heard.room) for heard in ear.heard]  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [ValueError, ZeroDivisionError, RuntimeError])
@pytest.mark.parametrize("guilty", [0, 1])
def test_of_a_pass_that_fails_the_guilty_prompt_alone_does(
    segment: Segment, error: type[Exception], guilty: int
) -> None:
    passes: list[int] = []

    def forward(spans: list[Span], kv: object) -> torch.Tensor:
        passes.append(len(spans))
        if any(span.tokens[-1] == guilty for span in spans):
            raise error("no")
        return torch.tensor([[0.0, 1.0]] * len(spans))

    work, ear = prefilling(segment, forward)
    work.do_one()
    assert passes == [2, 1, 1]
    assert told(ear) == [(ComputeFailed if at == guilty else ChunkComputed, room) for at, room in enumerate(ROOMS)]
    assert not work.has_work()
    assert work.computed_tokens == 6


def test_of_a_pass_with_logits_that_are_not_finite_their_prompt_alone_fails(segment: Segment) -> None:
    work, ear = prefilling(segment, lambda spans, kv: torch.tensor([[float("nan"), 0.0], [0.0, 1.0]]))
    work.do_one()
    assert told(ear) == [(ComputeFailed, ROOMS[0]), (ChunkComputed, ROOMS[1])]
    assert work.computed_tokens == 6


@pytest.mark.parametrize("lost", [0, 1])
def test_a_prompt_whose_decode_cannot_be_reached_fails_alone(segment: Segment, lost: int) -> None:
    decodes = (DECODE, WorkerRef("decode-1", 1))
    work, ear = prefilling(segment, lambda spans, kv: torch.tensor([[0.0, 1.0]] * len(spans)), decodes)
    work._transfers.pop(decodes[lost])
    work.do_one()
    assert told(ear) == [(ComputeFailed, ROOMS[lost]), (ChunkComputed, ROOMS[1 - lost])]


def test_to_a_decode_that_cannot_be_reached_a_pass_reaches_once(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[object] = []

    def reach(*asked: object) -> None:
        reached.append(asked)
        raise TimeoutError

    monkeypatch.setattr("pagefence.engine.prefill.reach", reach)
    work, ear = prefilling(segment, lambda spans, kv: torch.tensor([[0.0, 1.0]] * len(spans)))
    work._transfers.clear()
    work._addresses[DECODE] = "there"
    work.do_one()
    assert told(ear) == [(ComputeFailed, room) for room in ROOMS]
    assert len(reached) == 1


def test_what_is_computed_and_not_yet_written_is_not_computed_again_nor_work(segment: Segment) -> None:
    passes: list[Room] = []

    def forward(spans: list[Span], kv: object) -> torch.Tensor:
        passes.extend(ROOMS[span.tokens[-1]] for span in spans)
        return torch.tensor([[0.0, 1.0]] * len(spans))

    work, ear = prefilling(segment, forward)
    work._chunk = 8  # the second prompt's six tokens do not fit beside the first one's, nor does a page of it
    work.do_one()
    assert passes == [ROOMS[0]]
    assert work.has_work()
    work.do_one()
    assert passes == list(ROOMS)
    assert not work.has_work(), "the loop would spin until the writes have been done"
    work.do_one()
    assert passes == list(ROOMS)
    for room in ROOMS:
        work.perform(WriteChunk(room, 0, 6))
    assert told(ear) == [(what, room) for what in (ChunkComputed, Landed) for room in ROOMS]


class Driven(Ear):
    """A loop that lets the prefill machine answer: what it wants done is carried out, what it sends lies in `sent`."""

    ROUTER = WorkerRef("router", 1)
    state: PrefillState

    def __init__(self, work: Callable[[Any], PrefillWork]) -> None:
        members = Membership(PREFILL, self.ROUTER).up(DECODE)
        super().__init__(PrefillState(members, PrefillConfig(1, bytes(32)), PagePool.of(4, 4)))
        self.sent: list[object] = []
        self.work = work(self)

    def tell(self, message: Any) -> None:
        self.heard.append(message)
        self.settle()

    def settle(self) -> None:
        while self.heard:
            self.state, effects = prefill.Machine().step(self.state, self.heard.pop(0))  # type: ignore[arg-type]
            check_prefill(self.state)
            for effect in effects:
                if isinstance(effect, Send):
                    self.sent.append((effect.to, type(effect.body)))
                elif not isinstance(effect, SetTimer):
                    self.work.perform(effect)

    def start(self, room: Room, pages: tuple[PageRef, ...]) -> None:
        reservation = Reservation(room, PREFILL, DECODE, 6, 4, 1, pages)
        self.tell(Envelope(self.ROUTER, PREFILL, Start(room, 0, "t", (9, 9, 9, 9, 1, 0), reservation, GREEDY)))

    def compute(self) -> None:
        """One pass, and what comes of it."""
        self.work.do_one()
        self.settle()


def test_after_a_failed_write_its_room_says_nothing_more_and_the_next_one_writes_over_a_new_connection(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> tuple[bytes, ...]:
        raise TransferFailed("no acknowledgement")

    connections = [SimpleNamespace(write=fails), SimpleNamespace(write=lambda *_: (b"", b""), close=lambda: None)]
    monkeypatch.setattr("pagefence.engine.prefill.reach", lambda *_: connections.pop(0))
    model = SimpleNamespace(forward=lambda spans, kv: torch.tensor([[0.0, 1.0]]))
    driven = Driven(lambda loop: PrefillWork(loop, model, segment, Decisions()))  # type: ignore[arg-type]
    driven.work.peer_up(PeerUp(DECODE, "decode", "there"))
    for room, pages in zip(ROOMS, PAGES, strict=True):
        driven.start(room, pages)
        driven.compute()
    assert driven.sent == [(driven.ROUTER, Failed), (DECODE, Receipt)]
    assert not driven.work.has_work()
    assert driven.state.pool.counts().leased == 4
    driven.work.peer_gone(Reaped(DECODE))
    driven.tell(Envelope(driven.ROUTER, PREFILL, Reaped(DECODE)))
    assert driven.state.pool.counts().leased == 0
    assert len(driven.sent) == 2


def test_a_failed_write_fails_those_of_its_pass_and_decode_and_a_later_one_goes_over_a_new_connection(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> tuple[bytes, ...]:
        raise TransferFailed("no acknowledgement")

    reached: list[object] = []

    def reach(*asked: object) -> object:
        reached.append(asked)
        return SimpleNamespace(write=fails)

    monkeypatch.setattr("pagefence.engine.prefill.reach", reach)
    model = SimpleNamespace(forward=lambda spans, kv: torch.tensor([[0.0, 1.0]] * len(spans)))
    driven = Driven(lambda loop: PrefillWork(loop, model, segment, Decisions()))  # type: ignore[arg-type]
    driven.work.peer_up(PeerUp(DECODE, "decode", "there"))
    for room, pages in zip(ROOMS, PAGES, strict=True):
        driven.start(room, pages)
    driven.compute()
    assert len(reached) == 1, "a stuck peer is waited for once"
    assert driven.sent == [(driven.ROUTER, Failed)] * 2
    assert driven.state.pool.counts().leased == 4, "neither is drained: the machine counts both as launched"
    assert not driven.work.has_work()
    assert driven.work._mapped(DECODE)
    assert len(reached) == 2


def test_decode_revokes_a_reaped_writer(segment: Segment) -> None:
    revoked: list[WorkerRef] = []
    model = SimpleNamespace(config=SimpleNamespace(eos_ids=()))
    work = DecodeWork(Ear(), model, segment, Decisions(), revoked.append)  # type: ignore[arg-type]
    work.peer_gone(Reaped(PREFILL))
    assert revoked == [PREFILL]


def test_a_worker_hears_of_a_death_before_its_machine_frees_what_the_dead_could_reach() -> None:
    heard: list[str] = []

    def step(state: None, message: object) -> tuple[None, tuple[()]]:
        heard.append("machine")
        return state, ()

    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as folder:
        cores = Cores(Path(folder), 0, 2, 2, lambda threads: None)
        loop: Loop[Any] = Loop(orders(folder), step, None, cores)
        work = SimpleNamespace(peer_gone=lambda peer: heard.append("work"))
        loop._handle(work, Envelope(WorkerRef("router", 9), PREFILL, Reaped(DECODE)))
        loop.post.flush_and_close()
        loop._inbox.close()
    assert heard == ["work", "machine"]


def test_what_fails_on_the_helper_thread_ends_the_process_instead_of_leaving_a_room_to_wait() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as folder:
        cores = Cores(Path(folder), 0, 2, 2, lambda threads: None)
        loop: Loop[Any] = Loop(orders(folder), lambda state, message: (state, ()), None, cores)

        def job() -> object:
            raise ZeroDivisionError

        loop.run_beside(job)
        try:
            with pytest.raises(ZeroDivisionError):
                loop.run(SimpleNamespace(has_work=lambda: False))
        finally:
            signal.signal(signal.SIGTERM, before)
