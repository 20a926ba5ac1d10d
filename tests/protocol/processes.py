"""Worker processes of the random world: a machine, its state, and the work that its driver has under way."""

from __future__ import annotations

from dataclasses import dataclass, field

from pagefence.pool.pages import PagePool, PageRef
from pagefence.pool.slots import SlotPool
from pagefence.protocol import decode, decode_state, prefill
from pagefence.protocol.admission import Topology
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeConfig, DecodeState
from pagefence.protocol.effects import Compute, Effect, Effects, Run, Stop, StopCompute, Verify, WriteChunk, Zero
from pagefence.protocol.invariants import Violation, check_decode, check_prefill
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import (
    ChunkComputed,
    ErrorInfo,
    FrameBroken,
    Generated,
    Landed,
    PagesDigested,
    Room,
    Submit,
    Timer,
    WorkerRef,
)
from pagefence.protocol.prefill import PrefillConfig, PrefillState

from .memory import Memory, Write

KEY = b"a key shared by both legs"
LAYERS = 2
CHUNK = 6
BLANK = -1


def ready(_: Topology) -> tuple[str, ...]:
    """Whatever the pools hold."""
    return ()


def no_limit(_: Submit, __: Topology) -> ErrorInfo | None:
    """Whatever is asked."""
    return None


OPEN = Decisions(not_ready=ready, router_limit=no_limit)


def _no_release_by_timer(message: object, before: PagePool, after: PagePool) -> None:
    if isinstance(message, Timer) and len(after.free) > len(before.free):
        raise Violation("I2", f"the timer {message.kind} of {message.room} released pages")


@dataclass(slots=True)
class PrefillProcess:
    """`crashed`: it takes no more steps, and until it is reaped its launched writes still land.

    `source` is its memory: the tokens whose KV lies in each page, whoever computed it. A write carries what lies there.
    """

    ref: WorkerRef
    state: PrefillState
    decisions: Decisions
    crashed: bool = False
    jobs: dict[Room, Compute] = field(default_factory=dict)
    done: dict[Room, int] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    source: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def start(cls, ref: WorkerRef, router: WorkerRef, pages: int, page_size: int, d: Decisions) -> PrefillProcess:
        """A fresh incarnation."""
        config = PrefillConfig(LAYERS, KEY, max_waiting=2)
        return cls(ref, PrefillState(Membership(ref, router), config, PagePool.of(pages, page_size)), d)

    def step(self, message: prefill.Input) -> Effects:
        """One message through the machine."""
        before = self.state.pool
        self.state, effects = prefill.Machine(self.decisions).step(self.state, message)
        _no_release_by_timer(message, before, self.state.pool)
        return effects

    def check(self) -> None:
        """Raise Violation."""
        check_prefill(self.state)

    def carry_out(self, effect: Effect) -> None:
        """What the engine would do."""
        if isinstance(effect, Zero) and self.decisions.zero_on_lease:
            self.source.update({ref.index: () for ref in effect.pages})
        elif isinstance(effect, Compute):
            self.jobs[effect.admitted.owner] = effect  # type: ignore[index]
            self.done[effect.admitted.owner] = effect.cached  # type: ignore[index]
        elif isinstance(effect, StopCompute):
            self.jobs.pop(effect.room, None)
        elif isinstance(effect, WriteChunk):
            job = self.jobs[effect.room]
            lies = self._lies_in(job)[: effect.stop]
            tokens = lies + job.admitted.token_ids[len(lies) :]
            self.writes.append(Write(job.reservation, tokens, effect.start, effect.stop))

    def computable(self) -> list[Room]:
        """Rooms with tokens left to compute."""
        return [room for room, job in self.jobs.items() if self.done.get(room, 0) < job.admitted.tokens]

    def compute(self, room: Room) -> ChunkComputed:
        """One forward pass, which writes its tokens and nothing else."""
        job, start = self.jobs[room], self.done.get(room, 0)
        total, size = job.admitted.tokens, self.state.pool.page_size
        self.done[room] = min(start + CHUNK, total)
        for at in range(start, self.done[room]):
            page = job.pages[at // size].index
            before = (*self.source.get(page, ()), *(BLANK,) * size)[:size]
            self.source[page] = (*before[: at % size], job.admitted.token_ids[at], *before[at % size + 1 :])
        return ChunkComputed(room, self.done[room], 0 if self.done[room] == total else None)

    def _lies_in(self, job: Compute) -> tuple[int, ...]:
        size = self.state.pool.page_size
        pages = ((*self.source.get(ref.index, ()), *(BLANK,) * size)[:size] for ref in job.pages)
        return tuple(token for page in pages for token in page)

    def landed(self, write: Write) -> Landed:
        """The driver's word that a write is complete."""
        return Landed(write.reservation.room, write.stop, write.digests())

    def check_source(self, write: Write) -> None:
        """The bytes of a write in flight come from source pages that must still be its room's."""
        room = write.reservation.room
        lease = self.state.pool.leases.get(room)
        if lease is None or (room in self.jobs and lease.pages != self.jobs[room].pages):
            raise Violation("I1", f"the source pages of {room} were let go while a write read them")


@dataclass(slots=True)
class DecodeProcess:
    """`memory` belongs to this incarnation alone."""

    ref: WorkerRef
    state: DecodeState
    decisions: Decisions
    crashed: bool = False
    memory: Memory = field(default_factory=Memory)
    verifying: dict[Room, tuple[PageRef, ...]] = field(default_factory=dict)
    rows: dict[Room, Run] = field(default_factory=dict)
    made: dict[Room, int] = field(default_factory=dict)

    @classmethod
    def start(cls, ref: WorkerRef, router: WorkerRef, pages: int, page_size: int, d: Decisions) -> DecodeProcess:
        """A fresh incarnation with a fresh segment."""
        config = DecodeConfig(LAYERS, KEY, max_waiting=2, quarantine_share=0.5)
        pool, slots = PagePool.of(pages, page_size), SlotPool[Room].of(3)
        return cls(ref, DecodeState(Membership(ref, router), config, pool, slots), d)

    def step(self, message: decode.Input) -> Effects:
        """One message through the machine."""
        before = self.state.pool
        self.state, effects = decode.Machine(self.decisions).step(self.state, message)
        _no_release_by_timer(message, before, self.state.pool)
        return effects

    def check(self) -> None:
        """Raise Violation."""
        check_decode(self.state)

    def carry_out(self, effect: Effect) -> None:
        """What the engine would do, except that the world watches Run."""
        if isinstance(effect, Zero) and self.decisions.zero_on_lease:
            self.memory.zero(effect.pages)
        elif isinstance(effect, Verify):
            self.verifying[effect.room] = effect.pages
        elif isinstance(effect, Run):
            self.memory.frame(effect.room, effect.pages[effect.prompt_pages :])
            self.rows[effect.room] = effect
        elif isinstance(effect, Stop):
            del self.rows[effect.room]

    def verify(self, room: Room) -> FrameBroken | PagesDigested:
        """Look at the frames, then digest the bytes."""
        pages = self.verifying.pop(room)
        cells = [self.memory.read(ref) for ref in pages]
        for position, (ref, cell) in enumerate(zip(pages, cells, strict=True)):
            if self.decisions.check_frames and (cell.room, cell.generation) != (room, ref.generation):
                return FrameBroken(room, ref, position, str(cell.room), cell.room is not None)
        return PagesDigested(room, tuple(cell.digest for cell in cells))

    def generate(self, room: Room) -> Generated:
        """One decode step of one row; the token names its room, so that a stray one shows."""
        self.made[room] = self.made.get(room, 0) + 1
        done = self.made[room] == self.rows[room].max_new_tokens
        return Generated(room, (token(room, self.made[room] - 1),), "length" if done else None)

    def check_landing(self, write: Write) -> None:
        """I2: the page that a write hits is leased to the writer's room, in the same tenancy."""
        room = write.reservation.room
        lease = self.state.pool.leases.get(room)
        for ref, _ in write.cells():
            if lease is None or ref not in lease.pages:
                raise Violation("I2", f"a write of {room} landed in page {ref}, not its own any more")

    def check_read(self, room: Room, prompt: tuple[int, ...]) -> None:
        """I1: every page that attention reads was written for this room, in this tenancy, from this prompt."""
        run = self.rows[room]
        size = self.state.pool.page_size
        for i, ref in enumerate(run.pages):
            cell = self.memory.read(ref)
            expected = prompt[i * size : (i + 1) * size] if i < run.prompt_pages else ()
            if (cell.room, cell.generation, cell.tokens) != (room, ref.generation, expected):
                raise Violation("I1", f"{room} reads page {ref} (position {i}), which holds {cell}")

    def is_quarantined(self, room: Room) -> bool:
        """True while the room waits for its drain."""
        return self.state.phase(room) is decode_state.Phase.QUARANTINED


def token(room: Room, index: int) -> int:
    """The token at `index` of the room's answer."""
    return room.counter * 1000 + index


Process = PrefillProcess | DecodeProcess
