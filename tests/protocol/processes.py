"""The simulated world's workers (`pagefence.sim.processes`) in the hands of a test: the same steps, taken in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, TypeVar

from immutables import Map

from pagefence.pool.pages import PagePool, PageRef
from pagefence.protocol import decode, decode_state, prefill
from pagefence.protocol.admission import Topology
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeState
from pagefence.protocol.effects import Effect, Effects
from pagefence.protocol.invariants import Violation, check_decode, check_prefill
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
    WriteFailed,
)
from pagefence.protocol.prefill import PrefillState
from pagefence.sim import processes as sim
from pagefence.sim.bounds import Bounds, answer
from pagefence.sim.memory import Cell, Memory, Write, read

KEY, LAYERS = sim.KEY, sim.LAYERS
CHUNK = 6
ROWS = 3


def ready(_: Topology) -> tuple[str, ...]:
    """Whatever the pools hold."""
    return ()


def no_limit(_: Submit, __: Topology) -> ErrorInfo | None:
    """Whatever is asked."""
    return None


OPEN = Decisions(not_ready=ready, router_limit=no_limit)


def bounds(pages: int, page_size: int) -> Bounds:
    """A worker's sizes."""
    return Bounds("stage", (), 1, 1, pages, pages, page_size, CHUNK, ROWS, prefix_cache=True)


def token(room: Room, index: int) -> int:
    """The token at `index` of the room's answer; it names its room, so that a stray one shows."""
    return answer(room.counter, index)


def _no_release_by_timer(message: object, before: PagePool, after: PagePool) -> None:
    if isinstance(message, Timer) and len(after.free) > len(before.free):
        raise Violation("I2", f"the timer {message.kind} of {message.room} released pages")


P = TypeVar("P", bound=sim.Process)


class _Held(Generic[P]):
    """A process as it is `now`. What a test sets is set there."""

    def __init__(self, process: P, decisions: Decisions) -> None:
        self.now = process
        self.decisions = decisions

    @property
    def ref(self) -> WorkerRef:
        """Which incarnation it is."""
        return self.now.ref

    @property
    def crashed(self) -> bool:
        """It takes no more steps."""
        return self.now.crashed

    @crashed.setter
    def crashed(self, crashed: bool) -> None:
        self.now = replace(self.now, crashed=crashed)


class PrefillProcess(_Held[sim.PrefillProcess]):
    """A prefill worker."""

    @classmethod
    def start(cls, ref: WorkerRef, router: WorkerRef, pages: int, page_size: int, d: Decisions) -> PrefillProcess:
        """A fresh incarnation."""
        return cls(sim.start_prefill(ref, router, bounds(pages, page_size)), d)

    @property
    def state(self) -> PrefillState:
        """The machine's."""
        return self.now.state

    @state.setter
    def state(self, state: PrefillState) -> None:
        self.now = replace(self.now, state=state)

    @property
    def writes(self) -> tuple[Write, ...]:
        """Launched and not yet landed."""
        return self.now.writes

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
        self.now = sim.prefill_performs(self.now, effect, self.decisions)

    def computable(self) -> list[Room]:
        """Rooms with tokens left to compute."""
        return [room for room, job in self.now.jobs.items() if job.done < job.order.admitted.tokens]

    def compute(self, room: Room) -> ChunkComputed:
        """One forward pass."""
        tenant = self.now.jobs[room].order.admitted.isolation_key
        self.now, message = sim.compute(self.now, room, CHUNK, tenant, room.counter)
        return message

    def landed(self, write: Write) -> Landed:
        """A write is complete: the driver's word for it."""
        sim.require_source(self.now, write)
        self.now, message = sim.landed(self.now, write)
        return message

    def write_failed(self, write: Write) -> WriteFailed:
        """A write was not acknowledged; its pages are on the way all the same."""
        self.now, message = sim.write_failed(self.now, write)
        return message


class DecodeProcess(_Held[sim.DecodeProcess]):
    """A decode worker. Its memory belongs to this incarnation alone."""

    @classmethod
    def start(cls, ref: WorkerRef, router: WorkerRef, pages: int, page_size: int, d: Decisions) -> DecodeProcess:
        """A fresh incarnation with a fresh segment."""
        return cls(sim.start_decode(ref, router, bounds(pages, page_size)), d)

    @property
    def state(self) -> DecodeState:
        """The machine's."""
        return self.now.state

    @state.setter
    def state(self, state: DecodeState) -> None:
        self.now = replace(self.now, state=state)

    @property
    def verifying(self) -> Map[Room, tuple[PageRef, ...]]:
        """Pages to be looked at before a commit."""
        return self.now.verifying

    @property
    def rows(self) -> Map[Room, sim.Row]:
        """The decode batch."""
        return self.now.rows

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
        """What the engine would do."""
        self.now = sim.decode_performs(self.now, effect, self.decisions)

    def receive(self, write: Write, source: Memory) -> None:
        """A write lands: I2, then its bytes."""
        sim.require_own_pages(self.now, write)
        self.now = sim.copy_in(self.now, write, source)

    def read(self, page: PageRef) -> Cell:
        """What lies in a page."""
        return read(self.now.memory, page)

    def put(self, page: PageRef, cell: Cell) -> None:
        """Overwrite a page, whoever has it now."""
        self.now = replace(self.now, memory=self.now.memory.set(page.index, cell))

    def verify(self, room: Room) -> FrameBroken | PagesDigested:
        """Look at the frames, then digest the bytes."""
        self.now, message = sim.verify(self.now, room, self.decisions)
        return message

    def generate(self, room: Room) -> Generated:
        """One decode step of one row."""
        self.now, message = sim.generate(self.now, room, room.counter)
        return message

    def check_read(self, room: Room, prompt: tuple[int, ...]) -> None:
        """I1: every page that attention reads was written for this room, in this tenancy, from this prompt."""
        run = self.rows[room].run
        sim.require_own_bytes(self.now, run, prompt)
        broken = sim.broken_frame(self.now, room, run.pages)
        if broken is not None:
            raise Violation("I1", f"{room} reads page {broken.page} (position {broken.position}) of {broken.found}")

    def is_quarantined(self, room: Room) -> bool:
        """True while the room waits for its drain."""
        return self.state.phase(room) is decode_state.Phase.QUARANTINED


Process = PrefillProcess | DecodeProcess
