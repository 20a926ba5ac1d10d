"""A recorded fleet in the middle of its replay: the machines, the messages between them, and who knows what."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from pagefence.protocol import decode, prefill, router
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeState
from pagefence.protocol.effects import Effects, Emit, Send, SetTimer, WriteChunk
from pagefence.protocol.invariants import Outcomes, Violation, check_decode, check_prefill, check_router
from pagefence.protocol.messages import (
    ClientGone,
    Envelope,
    Generated,
    Landed,
    PeerMessage,
    Room,
    Submit,
    Timer,
    WorkerGone,
    WorkerRef,
    WorkerUp,
)
from pagefence.protocol.prefill import PrefillState
from pagefence.protocol.recording import Closing, Raised, Stepped, told
from pagefence.protocol.router import RouterState
from pagefence.sim import processes as proc
from pagefence.sim.answers import NotLegal, decode_answers, prefill_answers
from pagefence.sim.processes import DecodeProcess, PrefillProcess
from pagefence.sim.recordings import Recording

# How many steps of each incarnation are known, by messages and by reaping, to have come before.
Clock = dict[WorkerRef, int]


@dataclass(slots=True)
class Machine:
    """One incarnation: `at` records are taken, `taken` of them steps. `gone`: reaped, by the router's recording."""

    recording: Recording
    process: RouterState | PrefillProcess | DecodeProcess
    at: int = 0
    taken: int = 0
    gone: bool = False
    up: bool = False
    closing: bool = False
    timers: Counter[Timer] = field(default_factory=Counter)
    clock: Clock = field(default_factory=dict)

    @classmethod
    def of(cls, recording: Recording) -> Machine:
        """As it began."""
        first = recording.first
        if isinstance(first, RouterState):
            return cls(recording, first)
        if isinstance(first, PrefillState):
            return cls(recording, PrefillProcess(recording.me, first))
        return cls(recording, DecodeProcess(recording.me, first))

    @property
    def done(self) -> bool:
        """The recording is at its end."""
        return self.at == len(self.recording.after)

    @property
    def head(self) -> object:
        """The next input."""
        record = self.recording.after[self.at]
        return "the end" if isinstance(record, Closing) else record.message


@dataclass(frozen=True, slots=True)
class _Write:
    """One launched write: `by` which step of prefill it had landed, or None."""

    prefill: WorkerRef
    decode: WorkerRef
    room: Room
    stop: int
    by: int | None = None


@dataclass(frozen=True, slots=True)
class _Release:
    """Decode let the pages of a room go, at this step, knowing this."""

    step: int
    clock: Clock
    reaped: frozenset[WorkerRef]


class Fleet:
    """All machines of one recorded run. `where`: the file and step that is being looked at."""

    def __init__(self, recordings: Iterable[Recording], decisions: Decisions) -> None:
        self.machines = {recording.me: Machine.of(recording) for recording in recordings}
        self._router = router.Machine(decisions)
        self._prefill, self._decode = prefill.Machine(decisions), decode.Machine(decisions)
        self._decisions = decisions
        self.channels: defaultdict[tuple[WorkerRef, WorkerRef], deque[tuple[PeerMessage, Clock]]] = defaultdict(deque)
        self.outcomes = Outcomes()
        self.minted: dict[Room, int] = {}
        self.inputs: Counter[str] = Counter()
        self.where = ("", 0)
        self._at_closing: tuple[RouterState, Outcomes] | None = None
        self._generated: defaultdict[Room, list[int]] = defaultdict(list)
        self._writes: list[_Write] = []
        self._releases: dict[tuple[WorkerRef, Room], _Release] = {}

    @property
    def at_closing(self) -> tuple[RouterState, Outcomes]:
        """The router and its outcomes when it began to close, or else at its end."""
        (state,) = (m.process for m in self.machines.values() if isinstance(m.process, RouterState))
        return self._at_closing or (state, self.outcomes)

    def take(self, machine: Machine) -> bool:
        """Take the next step of this machine; False when its cause has not come yet. Raises NotLegal, Violation."""
        if machine.done:
            return False
        record = machine.recording.after[machine.at]
        self.where = (machine.recording.file, machine.at + 1)
        if isinstance(record, Closing):
            self._close(machine)
        else:
            try:
                if not self._has_come(machine, record.message):
                    return False
                self._step(machine, record)
            except (NotLegal, Violation):
                raise
            except Exception as error:  # a machine that meets what its table rules out
                said = type(record.message).__name__
                raise NotLegal(f"the machine cannot take {said}", "a step", repr(error)) from error
            machine.taken += 1
        machine.at += 1
        return True

    # --- causes ---------------------------------------------------------------------------------------------------

    def _has_come(self, machine: Machine, message: object) -> bool:
        """Whether the cause of this input was taken; raises NotLegal when it never will be. Takes note of it."""
        if isinstance(message, Envelope):
            return self._was_sent(machine, message)
        if isinstance(message, WorkerGone):
            return machine.closing or self._was_reaped(machine, message.worker)
        if isinstance(message, WorkerUp):
            self._came_up(message)
        return True

    def _was_sent(self, machine: Machine, envelope: Envelope) -> bool:
        what, me = f"{type(envelope.body).__name__} from {envelope.sender}", machine.recording.me
        sender = self.machines.get(envelope.sender)
        if sender is None:
            raise NotLegal(what, "a sender with a recording", envelope.sender)
        if envelope.receiver != me:
            raise NotLegal(what, f"a message to {me}", f"one to {envelope.receiver}")
        queue = self.channels[envelope.sender, me]
        if not queue:
            if sender.done:
                raise NotLegal(what, "a message that its sender sent", f"{envelope.body}, never sent")
            return False
        body, clock = queue[0]
        if body != envelope.body:
            raise NotLegal(what, f"the oldest of its channel, {body}", envelope.body)
        queue.popleft()
        _learn(machine.clock, clock)
        return True

    def _came_up(self, message: WorkerUp) -> None:
        worker = self.machines.get(message.worker)
        if worker is None:
            raise NotLegal("WorkerUp", "a worker with a recording", message.worker)
        process = worker.process
        role = "prefill" if isinstance(process, PrefillProcess) else "decode"
        if isinstance(process, RouterState) or message.role != role or worker.up or worker.gone:
            raise NotLegal("WorkerUp", f"a new {role} worker", f"{message.worker}, said to be {message.role}")
        capacity, pool = message.capacity, process.state.pool
        if (capacity.pool_tokens, capacity.page_size) != (pool.capacity, pool.page_size):
            raise NotLegal("WorkerUp", f"its own pool of {pool.capacity} tokens", capacity)
        for other in self.machines.values():
            me = other.recording.me
            if me.name == message.worker.name and me.epoch < message.worker.epoch and not other.gone:
                raise NotLegal("WorkerUp", f"{me} reaped before its successor", message.worker)
        worker.up = True

    def _was_reaped(self, machine: Machine, ref: WorkerRef) -> bool:
        worker = self.machines.get(ref)
        if worker is None:
            return True  # it died before it could record or say anything; it never came up
        if worker.gone:
            raise NotLegal("WorkerGone", "an incarnation that is not reaped yet", ref)
        if not worker.done:
            return False
        worker.gone = True
        _learn(machine.clock, worker.clock)
        return True

    def _close(self, machine: Machine) -> None:
        if not isinstance(machine.process, RouterState) or machine.closing:
            raise NotLegal("Closing", "a router that closes once", machine.recording.me)
        machine.closing = True
        self._at_closing = machine.process, self.outcomes

    # --- steps ----------------------------------------------------------------------------------------------------

    def _step(self, machine: Machine, record: Stepped | Raised) -> None:
        message, me = record.message, machine.recording.me
        machine.clock[me] = machine.at + 1
        self.inputs[type(message.body if isinstance(message, Envelope) else message).__name__] += 1
        if isinstance(message, Timer):
            if not machine.timers[message]:
                raise NotLegal("a timer that was never set", "a timer set and not yet fired", message)
            machine.timers[message] -= 1
        process = machine.process
        if isinstance(process, RouterState):
            effects = self._step_router(machine, process, record)
        elif isinstance(process, PrefillProcess):
            effects = self._step_prefill(machine, process, record)
        else:
            effects = self._step_decode(machine, process, record)
        for effect in effects:
            if isinstance(effect, SetTimer):
                machine.timers[Timer(effect.room, effect.kind)] += 1
            elif isinstance(effect, Send) and not machine.closing:
                self.channels[me, effect.to].append((effect.body, dict(machine.clock)))

    def _step_router(self, machine: Machine, state: RouterState, record: Stepped | Raised) -> Effects:
        message = record.message
        if not isinstance(message, router.Input):
            raise NotLegal(
                "no input of the router", "a message, a timer, a client, a worker, last orders", type(message).__name__
            )
        if isinstance(message, Submit):
            self.outcomes = self.outcomes.submitted(message.ticket)
        elif isinstance(message, ClientGone):
            if message.ticket not in self.outcomes.open:
                raise NotLegal("ClientGone", "a client without an outcome", f"ticket {message.ticket}")
            self.outcomes = self.outcomes.gone(message.ticket)
        after, effects = self._router.step(state, message)
        _same(record, effects)
        check_router(after)
        self._mint(message, after)
        self.outcomes = self.outcomes.saw(effects)
        for effect in effects:
            if isinstance(effect, Emit):
                self._own_tokens(state, effect)
        machine.process = after
        return effects

    def _mint(self, message: object, after: RouterState) -> None:
        """I9: a room is one request's, for ever."""
        room = after.rooms.get(message.ticket) if isinstance(message, Submit) else None
        if room is None or not isinstance(message, Submit):
            return
        if room in self.minted:
            raise Violation("I9", f"room {room} is minted twice")
        self.minted[room] = message.ticket

    def _own_tokens(self, state: RouterState, effect: Emit) -> None:
        """I10: what a client gets is what decode generated for its room, in order."""
        got, room = self.outcomes.emitted[effect.ticket], state.rooms[effect.ticket]
        made = tuple(self._generated[room][: len(got)])
        if got != made:
            raise Violation("I10", f"ticket {effect.ticket} got {got}, {room} generated {made}")

    def _step_prefill(self, machine: Machine, p: PrefillProcess, record: Stepped | Raised) -> Effects:
        message, before = record.message, p.state
        if not isinstance(message, Envelope | Timer):
            p = prefill_answers(p, message)
        if isinstance(message, Landed):
            self._has_landed(machine, message)
        after, effects = self._prefill.step(before, message)  # type: ignore[arg-type]
        _same(record, effects)
        check_prefill(after)
        _not_by_timer(message, before, after)
        p = replace(p, state=after)
        for effect in effects:
            if isinstance(effect, WriteChunk):
                decode_ref = p.jobs[effect.room].order.reservation.decode
                self._writes.append(_Write(p.ref, decode_ref, effect.room, effect.stop))
            p = proc.prefill_performs(p, effect, self._decisions)
        machine.process = p
        return effects

    def _has_landed(self, machine: Machine, message: Landed) -> None:
        for i, write in enumerate(self._writes):
            if (write.prefill, write.room, write.stop) == (machine.recording.me, message.room, message.tokens):
                self._writes[i] = replace(write, by=machine.at + 1)

    def _step_decode(self, machine: Machine, p: DecodeProcess, record: Stepped | Raised) -> Effects:
        message, before = record.message, p.state
        if not isinstance(message, Envelope | Timer):
            p = decode_answers(p, message)
        after, effects = self._decode.step(before, message)  # type: ignore[arg-type]
        _same(record, effects)
        check_decode(after)
        _not_by_timer(message, before, after)
        for room in before.requests:
            if room in before.pool.leases and room not in after.pool.leases:
                release = _Release(machine.at + 1, dict(machine.clock), after.members.reaped)
                self._releases[p.ref, room] = release
        if isinstance(message, Generated):
            self._generated[message.room] += message.token_ids
        p = replace(p, state=after)
        for effect in effects:
            p = proc.decode_performs(p, effect, self._decisions)
        machine.process = p
        return effects

    # --- what no single machine shows -----------------------------------------------------------------------------

    def check_releases(self) -> None:
        """I2: decode let no page go before it could know that every write into it had landed, or its writer was reaped.

        By causes alone, so it holds whatever the clocks said. Raises Violation.
        """
        for write in self._writes:
            release = self._releases.get((write.decode, write.room))
            if release is None or write.prefill in release.reaped:
                continue
            if write.by is None or release.clock.get(write.prefill, 0) < write.by:
                self.where = (self.machines[write.decode].recording.file, release.step)
                raise Violation(
                    "I2", f"pages of {write.room} are let go; a write of {write.prefill} may not have landed"
                )


def _learn(clock: Clock, other: Clock) -> None:
    for ref, step in other.items():
        clock[ref] = max(step, clock.get(ref, 0))


def _same(record: Stepped | Raised, effects: Effects) -> None:
    if isinstance(record, Raised):
        raise NotLegal("the machine raised", "a step", record.error)
    recorded, mine = record.effects, told(effects)
    if recorded == mine:
        return
    for i, effect in enumerate(effects):
        if i >= len(recorded) or recorded[i] != mine[i]:
            raise NotLegal(f"effect {i + 1} of {type(record.message).__name__}", effect, _shown(recorded[i : i + 1]))
    raise NotLegal("effects", f"{len(mine)} of them", _shown(recorded[len(mine) :]))


def _shown(effects: tuple[bytes, ...]) -> str:
    return ", ".join(str(msgspec.msgpack.decode(effect)) for effect in effects) or "none"


def _not_by_timer(message: object, before: PrefillState | DecodeState, after: PrefillState | DecodeState) -> None:
    """I2: no timer releases pages."""
    if isinstance(message, Timer) and len(after.pool.free) > len(before.pool.free):
        raise Violation("I2", f"the timer {message.kind} of {message.room} released pages")
