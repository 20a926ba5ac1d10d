"""A small hostile world: a router, two prefill and two decode workers, and everything that can go wrong, by a seed.

Channels delay and lose; a repeated message comes as late as it likes; writes land late; clients hang up; workers
crash, are reaped and come back. After every step the rules are checked, and at the end, in a fair epilogue,
everything must come to rest.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random

from pagefence.protocol import prefill, router
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Compute, Effect, Emit, Restart, Run, Send, SetTimer
from pagefence.protocol.invariants import Outcomes, Violation, check_rest, check_router
from pagefence.protocol.messages import (
    Capacity,
    ClientGone,
    ComputeFailed,
    Drained,
    Envelope,
    FrameBroken,
    PeerUp,
    Reaped,
    Room,
    Start,
    Submit,
    Timer,
    WorkerGone,
    WorkerRef,
    WorkerUp,
)
from pagefence.protocol.router import RouterConfig, RouterState

from .memory import Write
from .processes import DecodeProcess, PrefillProcess, Process, token

PAGE = 4
CONTEXT = 24
DECODE_PAGES = 14
ROUTER = WorkerRef("router", 77)
PATIENCE = 3_000

Event = tuple[float, Callable[[], None]]


class World:
    """`run()` plays the seed to its end and raises Violation on the first broken rule."""

    def __init__(
        self,
        seed: int,
        decisions: Decisions | None = None,
        prefill_pages: int = 9,
        requests: int = 14,
        steps: int = 300,
    ) -> None:
        self.random = Random(seed)
        self.trouble = self.random.choice((0.1, 0.3, 1.0))
        self.decisions = decisions or Decisions()
        self.prefill_pages = prefill_pages
        self.to_submit, self.steps = requests, steps
        self.hostile = True
        self.router = RouterState(ROUTER, RouterConfig(CONTEXT, max_in_flight=7))
        self.processes: dict[str, Process] = {}
        self.epochs: Counter[str] = Counter()
        self.channels: dict[tuple[WorkerRef, str, int], deque[Envelope]] = {}
        self.echoes = 0
        self.sent: list[Envelope] = []
        self.timers: list[tuple[WorkerRef, Timer]] = []
        self.outcomes = Outcomes()
        self.prompts: dict[Room, tuple[int, ...]] = {}
        self.room_of: dict[int, Room] = {}
        self.seen: Counter[str] = Counter()
        for name in ("p1", "p2", "d1", "d2"):
            self.restart(name)

    def run(self) -> World:
        """Hostile first, then fair until nothing is left to happen."""
        for _ in range(self.steps):
            events = self._events()
            if not events:
                break
            self._happen(events + self._timers() + self._mishaps())
        self.hostile = False
        for _ in range(PATIENCE):
            events = self._events() or self._timers() + self._reapings()
            if not events:
                break
            self._happen(events)
        else:
            raise Violation("I5", "the world does not come to rest")
        prefills = [p.state for p in self.processes.values() if isinstance(p, PrefillProcess)]
        decodes = [p.state for p in self.processes.values() if isinstance(p, DecodeProcess)]
        check_rest(self.router, prefills, decodes, self.outcomes)
        return self

    # --- what can happen ------------------------------------------------------------------------------------------

    def _happen(self, events: list[Event]) -> None:
        if events:
            self.random.choices([do for _, do in events], [weight for weight, _ in events])[0]()

    def _events(self) -> list[Event]:
        """The ordinary course of things."""
        events: list[Event] = []
        for (_, name, echo), channel in self.channels.items():
            process = self.processes.get(name)
            if channel and not (process and process.crashed):
                events.append((0.3 if echo else 3, partial(self._deliver, channel)))
        for process in self.processes.values():
            if isinstance(process, PrefillProcess):
                events += [(1, partial(self._land, process, w)) for w in _first_of_each_room(process.writes)]
            if process.crashed:
                continue
            if isinstance(process, PrefillProcess):
                events += [(2, partial(self._compute, process, r)) for r in process.computable()]
            else:
                events += [(2, partial(self._verify, process, r)) for r in process.verifying]
                events += [(1, partial(self._generate, process, r)) for r in process.rows]
        if self.to_submit:
            events.append((0.5, self._submit))
        events += [(1, partial(self.restart, n)) for n in self.epochs if n not in self.processes]
        return events

    def _timers(self) -> list[Event]:
        live = [t for t in self.timers if not self._crashed(t[0])]
        early = {"deadline": 0.02, "hand-off": 0.05, "drain": 0.2, "resend": 0.2}
        return [(early[t[1].kind] * self.trouble if self.hostile else 1, partial(self._fire, t)) for t in live]

    def _reapings(self) -> list[Event]:
        crashed = [p for p in self.processes.values() if p.crashed]
        return [(0.5, partial(self.reap, p.ref)) for p in crashed]

    def _mishaps(self) -> list[Event]:
        trouble = self.trouble
        events: list[Event] = [(0.04 * trouble, partial(self._hang_up, t)) for t in self.outcomes.open]
        for process in self.processes.values():
            if process.crashed:
                continue
            events.append((0.04 * trouble, partial(self._crash, process)))
            if isinstance(process, PrefillProcess):
                events += [(0.02 * trouble, partial(self._compute_fails, process, r)) for r in process.jobs]
            else:
                events += [(0.1 * trouble, partial(self._bit_flip, process, r)) for r in process.rows]
        return events + self._reapings()

    # --- how it happens -------------------------------------------------------------------------------------------

    def _deliver(self, channel: deque[Envelope]) -> None:
        envelope = channel.popleft()
        body, name = envelope.body, envelope.receiver.name
        news = isinstance(body, PeerUp | Reaped)
        if self.hostile and not news and self.random.random() < 0.05 * self.trouble:
            self.seen[f"{type(body).__name__} was lost"] += 1
            return
        if self.hostile and self.random.random() < 0.08:
            self.echoes += 1
            self.channels[envelope.sender, name, self.echoes] = deque([envelope])
        if name == ROUTER.name:
            self._tell_router(envelope)
        elif name in self.processes:
            self._tell(self.processes[name], envelope)

    def _fire(self, timer: tuple[WorkerRef, Timer]) -> None:
        self.timers.remove(timer)
        ref, message = timer
        process = self.processes.get(ref.name)
        if ref == ROUTER:
            self._tell_router(message)
        elif process is not None and process.ref == ref:
            self._tell(process, message)

    def _submit(self) -> None:
        self.to_submit -= 1
        ticket = self.to_submit
        size = self.random.randint(1, CONTEXT + 1)
        # Three texts and two tenants: some prompts begin as an earlier one did, of the same tenant or the other.
        prompt = tuple(range(ticket % 3 * 100, ticket % 3 * 100 + size))
        ask = Submit(ticket, f"n{ticket}", f"tenant{ticket % 2}", prompt, self.random.randint(1, 8))
        self.outcomes = self.outcomes.submitted(ticket)
        self._tell_router(ask)

    def _hang_up(self, ticket: int) -> None:
        self.outcomes = self.outcomes.gone(ticket)
        self._tell_router(ClientGone(ticket))

    def _land(self, process: PrefillProcess, write: Write) -> None:
        process.writes.remove(write)
        process.check_source(write)
        target = self.processes.get(write.reservation.decode.name)
        if isinstance(target, DecodeProcess) and target.ref == write.reservation.decode:
            if target.is_quarantined(write.reservation.room):
                self.seen["a write landed in quarantine"] += 1
            target.check_landing(write)
            for ref, cell in write.cells():
                if target.memory.last.get(ref.index, cell.room) != cell.room:
                    self.seen["a page was reused by another room"] += 1
                target.memory.put(ref, cell)
        if not process.crashed:
            self._tell(process, process.landed(write))

    def _compute(self, process: PrefillProcess, room: Room) -> None:
        self._tell(process, process.compute(room))

    def _verify(self, process: DecodeProcess, room: Room) -> None:
        self._tell(process, process.verify(room))

    def _generate(self, process: DecodeProcess, room: Room) -> None:
        process.check_read(room, self.prompts[room])
        self._tell(process, process.generate(room))

    def _compute_fails(self, process: PrefillProcess, room: Room) -> None:
        self._tell(process, ComputeFailed(room, "no luck"))

    def _bit_flip(self, process: DecodeProcess, room: Room) -> None:
        page = process.rows[room].pages[0]
        self._tell(process, FrameBroken(room, page, 0, "garbage", self.random.random() < 0.5))

    def _crash(self, process: Process) -> None:
        process.crashed = True
        self.seen["a worker crashed"] += 1

    def reap(self, ref: WorkerRef) -> None:
        """The process is gone, and with it its writes in flight and its memory; messages it sent still travel."""
        process = self.processes.get(ref.name)
        if process is None or process.ref != ref:
            return
        del self.processes[ref.name]
        self._tell_router(WorkerGone(ref))

    def restart(self, name: str) -> None:
        """A new incarnation under the old name."""
        self.epochs[name] += 1
        ref = WorkerRef(name, self.epochs[name])
        process: Process
        if name.startswith("p"):
            process = PrefillProcess.start(ref, ROUTER, self.prefill_pages, PAGE, self.decisions)
        else:
            process = DecodeProcess.start(ref, ROUTER, DECODE_PAGES, PAGE, self.decisions)
        self.processes[name] = process
        capacity = Capacity(process.state.pool.capacity, PAGE, 3)
        self._tell_router(WorkerUp(ref, "prefill" if name.startswith("p") else "decode", capacity, "here"))

    # --- stepping and carrying out --------------------------------------------------------------------------------

    def _tell_router(self, message: router.Input) -> None:
        self.router, effects = router.Machine(self.decisions).step(self.router, message)
        self.outcomes = self.outcomes.saw(effects)
        for ticket, room in self.router.rooms.items():
            self.room_of[ticket] = room
            self.prompts[room] = self.router.requests[room].submit.token_ids
        for effect in effects:
            if isinstance(effect, Restart):
                self.seen["a silent worker was recycled"] += 1
                self.reap(effect.worker)
            elif isinstance(effect, Emit):
                self._check_stream(effect)
            else:
                self._carry_out(ROUTER, effect)
        check_router(self.router)

    def _tell(self, process: Process, message: object) -> None:
        start = message.body if isinstance(message, Envelope) and isinstance(message.body, Start) else None
        late = start is not None and process.state.phase(start.room) == prefill.Phase.OVER
        effects = process.step(message)  # type: ignore[arg-type]
        for effect in effects:
            process.carry_out(effect)
            if isinstance(effect, Compute) and effect.cached:
                self.seen["a prefix was shared"] += 1
            if isinstance(effect, Run) and isinstance(process, DecodeProcess):
                process.check_read(effect.room, self.prompts[effect.room])
            self._carry_out(process.ref, effect)
            if late and isinstance(effect, Send) and isinstance(effect.body, Drained):
                self.seen["an abort overtook a start"] += 1
        process.check()
        if process.state.pool.counts().quarantined:
            self.seen["pages were in quarantine"] += 1

    def _carry_out(self, sender: WorkerRef, effect: Effect) -> None:
        if isinstance(effect, Send):
            envelope = Envelope(sender, effect.to, effect.body)
            self.sent.append(envelope)
            self.channels.setdefault((sender, effect.to.name, 0), deque()).append(envelope)
        elif isinstance(effect, SetTimer):
            self.timers.append((sender, Timer(effect.room, effect.kind)))

    def _check_stream(self, effect: Emit) -> None:
        room, sent = self.room_of[effect.ticket], self.outcomes.emitted[effect.ticket]
        if sent != tuple(token(room, i) for i in range(len(sent))):
            raise Violation("I10", f"the client of {room} got {sent}")

    def _crashed(self, ref: WorkerRef) -> bool:
        process = self.processes.get(ref.name)
        return process is not None and process.ref == ref and process.crashed


def _first_of_each_room(writes: list[Write]) -> list[Write]:
    return list({write.reservation.room: write for write in reversed(writes)}.values())
