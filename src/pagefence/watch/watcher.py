"""The heart of a watch: which run begins when, and what is remembered of it. Clock, chance and the run are given."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace

from pagefence.probes.evidence import Kind
from pagefence.verdict.sequential import EProcess, alarm, updated
from pagefence.watch.budget import Bucket, filled, full, reserved, settled, wait_s
from pagefence.watch.config import Module, Settings, Watched
from pagefence.watch.lines import Say
from pagefence.watch.records import Phase, Ran, Record
from pagefence.watch.schedule import Slot, backoff_s, next_due, sane
from pagefence.watch.state import State

Runner = Callable[[Watched, Module, int], Awaitable[Ran]]

SCHEDULED, ASKED = "scheduled", "asked"
BUDGET, BUSY, BACKOFF = "budget", "busy", "backoff"
WAITS = (BUDGET, BUSY, BACKOFF)
_LONGEST_NAP_S = 5.0
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a run does not begin now, and after how many seconds it may."""

    why: str
    seconds: float


@dataclass(slots=True)
class Flight:
    """A run in progress: one for each target at most."""

    module: Module
    id: int
    held: int
    task: asyncio.Task[Record | None]


@dataclass(slots=True)
class Standing:
    """Where a target stands. All of it is in the file as well, but for the flight and who waits.

    asking  how many wait in `/probe` for a run to begin
    last    why its last run was begun: the schedule and those who ask take turns
    """

    watched: Watched
    bucket: Bucket
    slots: dict[str, Slot]
    saturated: int = 0
    resume: float = 0.0
    model: str = "unknown"
    flight: Flight | None = None
    waiting: dict[str, Wait] = field(default_factory=dict)
    asking: int = 0
    last: str = SCHEDULED


class Watcher:
    """Starts what is due. `tick` is one look at the clock; nothing in here sleeps."""

    def __init__(
        self,
        settings: Settings,
        state: State,
        run: Runner,
        clock: Callable[[], float],
        say: Say,
        chance: random.Random | None = None,
    ) -> None:
        self.settings, self.state, self.clock = settings, state, clock
        self._run, self._say = run, say
        self._chance = chance or random.Random()
        self.heartbeat = self.started = clock()
        self.cycles = 0
        self.trouble: str | None = None
        self.stopping = False
        self.changed = asyncio.Event()
        self.standings = {watched.name: self._placed(watched) for watched in settings.targets}
        for record in state.interrupted:
            self._tell(record)

    def _placed(self, watched: Watched) -> Standing:
        now = self.clock()
        bucket, saturated, resume, model = self.state.known(watched.name) or (
            full(watched.allowance, now),
            0,
            0.0,
            "unknown",
        )
        slots = {m.name: self.state.slot(watched.name, m.name) or Slot(None, now) for m in watched.modules}
        standing = Standing(watched, bucket, slots, saturated, resume, model)
        _in_time(standing, now)
        self.state.place(watched.name, bucket, standing.slots)
        return standing

    # The schedule

    def tick(self) -> None:
        """Begin every run that is due and may begin. Must be called inside a running event loop."""
        now = self.heartbeat = self.clock()
        self.cycles += 1
        if self.stopping:
            return
        for standing in self.standings.values():
            _in_time(standing, now)
            before, standing.waiting = standing.waiting, {}
            for module in self._due(standing, now):
                others_turn = standing.asking and standing.last == SCHEDULED
                wait = Wait(BUSY, 0.0) if others_turn else self._obstacle(standing, module, now)
                if wait is None:
                    self._begin(standing, module, SCHEDULED, now)
                    continue
                standing.waiting[module.name] = wait
                if wait.why != before.get(module.name, Wait("", 0)).why and wait.why != BUSY:
                    self._say(
                        "waits", target=standing.watched.name, module=module.name, why=wait.why, seconds=wait.seconds
                    )

    def nap_s(self) -> float:
        """How long nothing can become due: the loop may sleep so long, or until something ends."""
        now = self.clock()
        ahead = [
            slot.due - now
            for standing in self.standings.values()
            if standing.flight is None
            for slot in standing.slots.values()
            if slot.due is not None and slot.due > now
        ]
        waits = [w.seconds for s in self.standings.values() for w in s.waiting.values() if w.why != BUSY]
        return max(0.05, min([_LONGEST_NAP_S, *ahead, *waits]))

    def _due(self, standing: Standing, now: float) -> list[Module]:
        """Longest due first, so that a cheap run cannot go before a dear one for ever."""
        due = [
            (slot.due, module)
            for module in standing.watched.modules
            if (slot := standing.slots[module.name]).due is not None and slot.due <= now
        ]
        return [module for _, module in sorted(due, key=lambda pair: pair[0] or 0.0)]

    def _obstacle(self, standing: Standing, module: Module, now: float) -> Wait | None:
        """What keeps a run from beginning. One without prompts waits for no budget and for no room."""
        if standing.flight is not None:
            return Wait(BUSY, 0.0)
        if not module.tokens:
            return None
        if now < standing.resume:
            return Wait(BACKOFF, standing.resume - now)
        ahead = [w for name, w in standing.waiting.items() if w.why == BUDGET and name != module.name]
        if ahead:
            return ahead[0]
        wait = wait_s(standing.bucket, standing.watched.allowance, module.tokens, now)
        return Wait(BUDGET, wait) if wait > 0 else None

    def free(self, standing: Standing, now: float) -> float:
        """Tokens of a target's budget that are free."""
        return filled(standing.bucket, standing.watched.allowance, now).level

    # A run

    def _begin(self, standing: Standing, module: Module, reason: str, now: float) -> Flight | None:
        watched = standing.watched
        bucket = reserved(standing.bucket, watched.allowance, module.tokens, now)
        if bucket is None:
            return None
        slot = standing.slots[module.name]
        due = next_due(now, module.every_s, module.jitter, self._chance.random())
        try:
            run, seed = self.state.begin(watched.name, module.name, reason, now, bucket, module.tokens, due)
        except sqlite3.Error as error:
            # A run that nobody will remember is not begun: after a crash it would be spent twice.
            self._troubled(error)
            return None
        self.trouble = None
        standing.bucket = bucket
        standing.slots[module.name] = replace(slot, due=due)
        self._say("begins", run=run, target=watched.name, module=module.name, reason=reason, seed=seed)
        task = asyncio.create_task(self._fly(standing, module, run, seed))
        standing.flight, standing.last = Flight(module, run, module.tokens, task), reason
        return standing.flight

    async def _fly(self, standing: Standing, module: Module, run: int, seed: int) -> Record | None:
        try:
            ran = await self._run(standing.watched, module, seed)
        except asyncio.CancelledError:
            ran = _without_answer("stopped before the end", Phase.INTERRUPTED, module.tokens)
        except Exception as error:  # a bug of ours must not end the watch, nor look like a clean run
            what = f"internal error: {type(error).__name__}: {error}"
            ran = _without_answer(standing.watched.keys.redact(what), Phase.FAILED, module.tokens)
        try:
            return self._ended(standing, module, run, ran)
        finally:
            standing.flight = None
            self.changed.set()

    def _ended(self, standing: Standing, module: Module, run: int, ran: Ran) -> Record | None:
        now, watched = self.clock(), standing.watched
        bucket = settled(standing.bucket, watched.allowance, module.tokens, ran.charged, now)
        if module.prompts:
            standing.saturated = standing.saturated + 1 if ran.saturated else 0
            standing.resume = now + backoff_s(standing.saturated, module.every_s or _HOUR_S) if ran.saturated else 0.0
        standing.bucket = bucket
        record = None
        try:
            evidence = self._evidence(watched.name, ran, now)
            kept = self.settings.keep
            saturated = (standing.saturated, standing.resume)
            record = self.state.end(run, ran, now, bucket, saturated, evidence, kept)
            standing.slots[module.name] = self.state.slot(watched.name, module.name) or standing.slots[module.name]
            self.trouble = None
        except (sqlite3.Error, ValueError, OverflowError) as error:  # the last two: what no column can hold
            self._troubled(error)
        standing.model = ran.model or standing.model
        if record is not None:
            self._tell(record)
        else:  # what was found is told even when it cannot be kept
            self._say("ended", run=run, target=watched.name, verdict=ran.verdict, sentence=ran.sentence, kept=False)
        return record

    def _evidence(self, target: str, ran: Ran, now: float) -> dict[str, tuple[EProcess, float | None]]:
        """The e-processes after this run. An alarm that was given stays: later clean runs do not take it back."""
        before, after = self.state.evidence(target), {}
        for probe, (asked, lost) in ran.counts.items():
            process, since = before.get(probe, (EProcess(self.settings.null_rate), None))
            if process.null_rate != self.settings.null_rate:
                process, since = EProcess(self.settings.null_rate), None
            process = updated(process, asked, lost)
            if since is None and alarm(process, self.settings.alpha):
                since = now
                said = f"{process.hits} of {process.n} own words lost since the evidence began"
                self._say("alarm", target=target, probe=probe, what=said, log_e=process.log_e)
            after[probe] = (process, since)
        return after

    def _troubled(self, error: Exception) -> None:
        said = f"the state cannot be written: {error}"
        if said != self.trouble:
            self._say("trouble", what=said)
        self.trouble = said

    def _tell(self, record: Record) -> None:
        self._say(
            "ended",
            run=record.id,
            target=record.target,
            module=record.module,
            phase=record.phase,
            verdict=record.verdict,
            seconds=round(record.seconds, 3),
            requests=record.requests,
            tokens=record.prompt_tokens + record.new_tokens,
            charged=record.charged,
            sentence=record.sentence,
        )

    # What is asked for

    async def probe(self, watched: Watched, module: Module) -> Record | Wait | None:
        """A run now, or the one of this module that is in progress: who asks meanwhile gets the same.

        Another module's run is waited for. Wait: its target's budget or room is used up. None: nothing can be kept.
        """
        standing = self.standings[watched.name]
        standing.asking += 1
        try:
            flight = await self._turn(standing, module)
        finally:
            standing.asking -= 1
            self.changed.set()
        if self.stopping:
            return None
        if flight is None:
            now = self.clock()
            wait = self._obstacle(standing, module, now)
            if wait is not None:
                return wait
            flight = self._begin(standing, module, ASKED, now)
            if flight is None:
                return None
        return await asyncio.shield(flight.task)

    async def _turn(self, standing: Standing, module: Module) -> Flight | None:
        """Wait until a run of this module may be begun (None), or is in progress already."""
        while True:
            if standing.flight is None and standing.last == ASKED:
                self.tick()  # what is due comes before a second run that was asked for
            flight = standing.flight
            if flight is None or flight.module.name == module.name:
                return flight
            await asyncio.wait({flight.task})

    def flights(self) -> Iterator[Flight]:
        """Runs in progress."""
        return (s.flight for s in self.standings.values() if s.flight is not None)

    async def stop(self, grace_s: float) -> None:
        """Begin nothing more, let runs end for so long, then have them come back with what they found."""
        self.stopping = True
        tasks = {flight.task for flight in self.flights()}
        if not tasks:
            return
        self._say("draining", runs=len(tasks), seconds=grace_s)
        _, left = await asyncio.wait(tasks, timeout=grace_s)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def _in_time(standing: Standing, now: float) -> None:
    """Nothing is due later than its period allows: a clock that was set back must not silence a watch until then."""
    modules = standing.watched.modules
    for module in modules:
        slot = standing.slots[module.name]
        due = sane(slot.due, now, module.every_s, module.jitter)
        if due != slot.due:
            standing.slots[module.name] = replace(slot, due=due)
    longest = max((m.every_s or _HOUR_S for m in modules), default=_HOUR_S)
    standing.resume = min(standing.resume, now + backoff_s(standing.saturated, longest))


def _without_answer(sentence: str, phase: Phase, held: int) -> Ran:
    return Ran(Kind.INCONCLUSIVE, (Kind.INCONCLUSIVE,), sentence, phase, charged=held, log=sentence)
