"""Worker processes: a machine's state, and the work that its driver has under way. Immutable, like everything here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from immutables import Map

from pagefence.pool.pages import PagePool, PageRef
from pagefence.pool.slots import SlotPool
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeConfig, DecodeState
from pagefence.protocol.effects import Compute, Effect, Run, Stop, StopCompute, Verify, WriteChunk, Zero
from pagefence.protocol.invariants import Violation
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import (
    ChunkComputed,
    FrameBroken,
    Generated,
    Landed,
    PagesDigested,
    Room,
    WorkerRef,
    WriteFailed,
)
from pagefence.protocol.prefill import PrefillConfig, PrefillState
from pagefence.sim.bounds import Bounds, answer
from pagefence.sim.memory import BLANK, Cell, Memory, Write, digest, read, zero

KEY = b"a key shared by both legs"
LAYERS = 1


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt being computed: `done` tokens of it lie in its pages."""

    order: Compute
    done: int


@dataclass(frozen=True, slots=True)
class PrefillProcess:
    """`late`: pages of writes that failed, each of which may still land, or not. `crashed`: it takes no more steps, and
    until it is reaped its launched writes still land."""

    ref: WorkerRef
    state: PrefillState
    jobs: Map[Room, Job] = Map()
    writes: tuple[Write, ...] = ()
    late: tuple[Write, ...] = ()
    source: Memory = Map()
    crashed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the decode batch; `made` tokens of its answer exist."""

    run: Run
    made: int = 0


@dataclass(frozen=True, slots=True)
class DecodeProcess:
    """`memory` belongs to this incarnation alone."""

    ref: WorkerRef
    state: DecodeState
    verifying: Map[Room, tuple[PageRef, ...]] = Map()
    rows: Map[Room, Row] = Map()
    memory: Memory = Map()
    crashed: bool = False


Process = PrefillProcess | DecodeProcess


def start_prefill(ref: WorkerRef, router: WorkerRef, bounds: Bounds) -> PrefillProcess:
    """A fresh incarnation."""
    config = PrefillConfig(LAYERS, KEY, bounds.max_waiting, prefix_cache=bounds.prefix_cache)
    pool = PagePool.of(bounds.prefill_pages, bounds.page_size)
    return PrefillProcess(ref, PrefillState(Membership(ref, router), config, pool))


def start_decode(ref: WorkerRef, router: WorkerRef, bounds: Bounds) -> DecodeProcess:
    """A fresh incarnation with a fresh segment."""
    config = DecodeConfig(LAYERS, KEY, bounds.max_waiting, quarantine_share=bounds.quarantine_share)
    pool, slots = PagePool.of(bounds.decode_pages, bounds.page_size), SlotPool[Room].of(bounds.rows)
    return DecodeProcess(ref, DecodeState(Membership(ref, router), config, pool, slots))


# --- prefill ------------------------------------------------------------------------------------------------------


def prefill_performs(p: PrefillProcess, effect: Effect, d: Decisions) -> PrefillProcess:
    """What the engine does with an effect of the prefill machine."""
    if isinstance(effect, Zero):
        return replace(p, source=zero(p.source, effect.pages)) if d.zero_on_lease else p
    if isinstance(effect, Compute):
        return replace(p, jobs=p.jobs.set(effect.reservation.room, Job(effect, effect.cached)))
    if isinstance(effect, StopCompute):
        return replace(p, jobs=p.jobs.delete(effect.room)) if effect.room in p.jobs else p
    if isinstance(effect, WriteChunk):
        return _launch(p, effect)
    return p


def _launch(p: PrefillProcess, effect: WriteChunk) -> PrefillProcess:
    job = p.jobs[effect.room]
    order, total = job.order, job.order.admitted.tokens
    write = Write(order.reservation, order.pages, effect.start, effect.stop, total)
    jobs = p.jobs.delete(effect.room) if job.done == total else p.jobs
    return replace(p, jobs=jobs, writes=(*p.writes, write))


def require_prefix(p: PrefillProcess, room: Room, tenant: str) -> None:
    """I1, I7: what a forward pass attends over was computed from this prompt and for this tenant."""
    job = p.jobs[room]
    order, ids, size = job.order, job.order.admitted.token_ids, p.state.pool.page_size
    for i in range(-(-job.done // size)):
        cell, expected = read(p.source, order.pages[i]), ids[i * size : min((i + 1) * size, job.done)]
        where = f"the forward pass of {room} reads page {order.pages[i].index}"
        if cell.tokens != expected:
            raise Violation("I1", f"{where}, which holds {cell}")
        if cell.tenant != tenant:
            raise Violation("I7", f"{where}, which was computed for {cell.tenant}")


def compute(
    p: PrefillProcess, room: Room, chunk: int, tenant: str, ticket: int
) -> tuple[PrefillProcess, ChunkComputed]:
    """One forward pass."""
    job = p.jobs[room]
    order, ids, size = job.order, job.order.admitted.token_ids, p.state.pool.page_size
    done = min(job.done + chunk, len(ids))
    source = p.source.mutate()
    for i in range(job.done // size, -(-done // size)):
        ref = order.pages[i]
        source[ref.index] = Cell(room, ref.generation, ids[i * size : min((i + 1) * size, done)], tenant)
    p = replace(p, source=source.finish(), jobs=p.jobs.set(room, replace(job, done=done)))
    return p, ChunkComputed(room, done, answer(ticket, 0) if done == len(ids) else None)


def require_source(p: PrefillProcess, write: Write) -> None:
    """I1: the bytes of a write in flight come from source pages that must still be its room's."""
    lease = p.state.pool.leases.get(write.room)
    held = () if lease is None else lease.pages
    if any(write.source[i] not in held for i in write.positions()):
        raise Violation("I1", f"the source pages of {write.room} were let go while a write read them")


def landed(p: PrefillProcess, write: Write) -> tuple[PrefillProcess, Landed]:
    """The driver's word that a write is complete, with the digests of what it read."""
    digests = tuple(digest(read(p.source, write.source[i]).tokens) for i in write.complete())
    return replace(p, writes=_without(p.writes, write)), Landed(write.room, write.stop, digests)


def write_failed(p: PrefillProcess, write: Write) -> tuple[PrefillProcess, WriteFailed]:
    """The driver's word that a write was not acknowledged. Its pages are on the way all the same."""
    p = replace(p, writes=_without(p.writes, write), late=(*p.late, *write.by_page()))
    return p, WriteFailed(write.room, write.stop)


def landed_late(p: PrefillProcess, page: Write) -> PrefillProcess:
    """A page of a write that failed has landed; nobody says so."""
    return replace(p, late=_without(p.late, page))


def target_reaped(p: PrefillProcess, decode: WorkerRef) -> PrefillProcess:
    """What was late for this incarnation has no target any more."""
    late = tuple(page for page in p.late if page.reservation.decode != decode)
    return p if late == p.late else replace(p, late=late)


def _without(writes: tuple[Write, ...], write: Write) -> tuple[Write, ...]:
    at = writes.index(write)
    return (*writes[:at], *writes[at + 1 :])


# --- decode -------------------------------------------------------------------------------------------------------


def decode_performs(p: DecodeProcess, effect: Effect, d: Decisions) -> DecodeProcess:
    """What the engine does with an effect of the decode machine."""
    if isinstance(effect, Zero):
        return replace(p, memory=zero(p.memory, effect.pages)) if d.zero_on_lease else p
    if isinstance(effect, Verify):
        return replace(p, verifying=p.verifying.set(effect.room, effect.pages))
    if isinstance(effect, Run):
        memory = p.memory.mutate()
        for ref in effect.pages[effect.prompt_pages :]:
            memory[ref.index] = replace(memory.get(ref.index, BLANK), room=effect.room, generation=ref.generation)
        return replace(p, memory=memory.finish(), rows=p.rows.set(effect.room, Row(effect)))
    if isinstance(effect, Stop):
        return replace(p, rows=p.rows.delete(effect.room)) if effect.room in p.rows else p
    return p


def copy_in(p: DecodeProcess, write: Write, source: Memory) -> DecodeProcess:
    """The bytes of a write arrive, each page framed by the writer's room and generation."""
    memory = p.memory.mutate()
    for i in write.positions():
        target, cell = write.reservation.pages[i], read(source, write.source[i])
        memory[target.index] = Cell(write.room, target.generation, cell.tokens, cell.tenant)
    return replace(p, memory=memory.finish())


def require_own_pages(p: DecodeProcess, write: Write) -> None:
    """I2: the pages that a write hits are leased to the writer's room, in the same tenancy."""
    lease = p.state.pool.leases.get(write.room)
    for i in write.positions():
        ref = write.reservation.pages[i]
        if lease is None or ref not in lease.pages:
            raise Violation("I2", f"a write of {write.room} landed in page {ref.index}, which is not its own any more")


def verify(p: DecodeProcess, room: Room, d: Decisions) -> tuple[DecodeProcess, FrameBroken | PagesDigested]:
    """Look at the frames, then digest the bytes."""
    pages = p.verifying[room]
    p = replace(p, verifying=p.verifying.delete(room))
    broken = broken_frame(p, room, pages) if d.check_frames else None
    return p, broken or PagesDigested(room, tuple(digest(read(p.memory, ref).tokens) for ref in pages))


def broken_frame(p: DecodeProcess, room: Room, pages: tuple[PageRef, ...]) -> FrameBroken | None:
    """The first page whose frame is not the lease's."""
    for position, ref in enumerate(pages):
        cell = read(p.memory, ref)
        if (cell.room, cell.generation) != (room, ref.generation):
            return FrameBroken(room, ref, position, str(cell.room), cell.room is not None)
    return None


def generate(p: DecodeProcess, room: Room, ticket: int) -> tuple[DecodeProcess, Generated]:
    """One token of a row: the receipt's first, or one that attention makes over the row's pages."""
    row = p.rows[room]
    made = row.made + 1
    done = made == row.run.max_new_tokens
    token = row.run.first_token if row.made == 0 else answer(ticket, row.made)
    rows = p.rows.delete(room) if done else p.rows.set(room, replace(row, made=made))
    return replace(p, rows=rows), Generated(room, (token,), "length" if done else None)


def require_own_bytes(p: DecodeProcess, run: Run, prompt: tuple[int, ...]) -> None:
    """I1: every page that attention reads holds this prompt's tokens and nothing of anybody else's."""
    size = p.state.pool.page_size
    for i, ref in enumerate(run.pages):
        cell = read(p.memory, ref)
        expected = prompt[i * size : (i + 1) * size] if i < run.prompt_pages else ()
        if cell.tokens != expected:
            raise Violation("I1", f"{run.room} reads page {ref.index} (position {i}), which holds {cell}")


def require_nothing_foreign(p: DecodeProcess, run: Run, tenant: str) -> None:
    """I1, as a client would feel it: no page that attention reads holds what was computed for anybody else."""
    for i, ref in enumerate(run.pages):
        cell = read(p.memory, ref)
        if cell.tokens and (cell.room != run.room or cell.tenant != tenant):
            raise Violation("I1", f"{run.room} reads page {ref.index} (position {i}), which holds {cell}")
