"""Send a race: controls alone, the crowd, then at rest what looked odd once more, the controls again, a long prompt."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from pagefence.fleet import Answer, Fleet, FleetFacts, Leave, Request
from pagefence.probes.prompt import Prompt
from pagefence.probes.race.course import LEAST_LINES, Course, course, lay_out
from pagefence.probes.race.plan import RacePlan
from pagefence.probes.race.readings import Reading, read_after, read_before
from pagefence.probes.run import Log, Outcome, Progress, ruler_for
from pagefence.probes.shot import PLAIN, HangUp, Shot

MOST_REPLAYS = 40
_PATIENCE, _PATIENCE_S = 40.0, 20.0  # times the pace of the controls; a client that waits for nothing waits briefly
_REST_S = 30.0  # for which a fleet may say that it is busy after the crowd has gone
_WAITS, _LONGEST_WAIT_S = 8, 10.0
_GIVE_UP = 8  # at least so many requests in a row without an answer, and the crowd ends
_SILENT = 3  # replays without an answer, and no more are asked
_FIRST_PACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One request of the crowd: when it was under way (seconds of our clock), and how often it was told to wait."""

    outcome: Outcome
    started: float
    ended: float
    waits: int = 0


@dataclass(slots=True)
class RaceLog:
    """What happened so far; it is there to be judged when a race is interrupted. `replays`: by shot.
    `held_before`, `held_after`: what requests held of each node while nothing was asked."""

    plan: RacePlan
    before: list[Outcome] = field(default_factory=list)
    crowd: list[Entry] = field(default_factory=list)
    replays: dict[str, Answer] = field(default_factory=dict)
    after: list[Outcome] = field(default_factory=list)
    long: Outcome | None = None
    long_after: Outcome | None = None
    held_before: list[Reading] = field(default_factory=list)
    held_after: list[Reading] = field(default_factory=list)
    pace_s: float = _FIRST_PACE_S
    stopped: str | None = None
    seconds: float = 0.0
    complete: bool = False

    @property
    def outcomes(self) -> list[Outcome]:
        """Every outcome, in the order in which they came."""
        ends = [o for o in (self.long, self.long_after) if o is not None]
        return [*self.before, *(e.outcome for e in self.crowd), *self.after, *ends]


def odd(outcome: Outcome) -> bool:
    """Whether an answer is worth asking for again, alone: it left its course, ended early, or did not come."""
    answer, shot = outcome.answer, outcome.shot
    if course(answer.text, shot.sentinel) is not Course.RIGHT:
        return True
    if answer.hung_up or answer.contained or answer.status in (401, 403, 404, 429, 503):
        return False
    return not answer.answered or short(answer, shot)


def short(answer: Answer, shot: Shot) -> bool:
    """Fewer new tokens than were asked for, of a line that has no end."""
    few = answer.completion_tokens is not None and answer.completion_tokens < shot.max_tokens
    return answer.answered and (few or answer.finish_reason not in ("length", "max_tokens"))


async def race(fleet: Fleet, facts: FleetFacts, log: RaceLog, cost: Log, progress: Progress) -> None:
    """Run all of it. What is found is in `log`, also when this is cancelled."""
    runner = _Runner(fleet, log, cost, await _writer(fleet, log.plan))
    for number, shot in enumerate(log.plan.controls):
        progress("race: controls, alone", number, len(log.plan.controls))
        log.before.append((await runner.one(shot)).outcome)
    answered = [o.answer for o in log.before if o.answer.answered]
    log.pace_s = median([a.ttft_s or a.total_s for a in answered] or [_FIRST_PACE_S])
    runner.patience_s = min(fleet.timeout_s, max(_PATIENCE_S, _PATIENCE * log.pace_s))
    log.long = (await runner.one(log.plan.long)).outcome
    if answered:
        await read_before(fleet, facts, log.held_before)
        await _crowd(runner, progress)
    else:
        log.stopped = "no control was answered, so nothing was sent beside others"
    await _afterwards(runner, progress)
    progress("race: what is held at rest", 0, 1)
    await read_after(fleet, facts, log.held_before, log.held_after)
    log.complete = True


async def _crowd(runner: _Runner, progress: Progress) -> None:
    """In order, so many in flight as the block says; no more when time is up or nothing is answered any more."""
    log, plan = runner.log, runner.log.plan
    total, started = len(plan.shots), time.monotonic()
    flight, ended = 0, asyncio.Event()

    async def send(shot: Shot, what: str) -> None:
        nonlocal flight
        try:
            log.crowd.append(await runner.one(shot))
        finally:
            flight -= 1
            ended.set()
        log.seconds = time.monotonic() - started
        progress(what, len(log.crowd), total)

    async with asyncio.TaskGroup() as group:
        for block in plan.blocks:
            what = f"race: {block.skew.name}, {block.at_once} at once"
            for shot in block.shots:
                while flight >= block.at_once:
                    ended.clear()
                    await ended.wait()
                log.stopped = _enough(log, time.monotonic() - started)
                if log.stopped is not None:
                    return
                flight += 1
                group.create_task(send(shot, what))


def _enough(log: RaceLog, seconds: float) -> str | None:
    profile = log.plan.profile
    if seconds > profile.seconds:
        return f"{profile.seconds:g} s were over"
    many = max(_GIVE_UP, profile.at_once)
    last = [e.outcome.answer for e in log.crowd if not e.outcome.answer.hung_up][-many:]
    if len(last) == many and not any(a.answered for a in last):
        return f"none of the last {len(last)} requests was answered"
    return None


async def _afterwards(runner: _Runner, progress: Progress) -> None:
    """At rest: what looked odd, asked alone; then the controls and the long prompt again."""
    log = runner.log
    runner.most_s = _REST_S
    silent = 0
    asked = [e.outcome for e in log.crowd if odd(e.outcome)][:MOST_REPLAYS]
    for number, outcome in enumerate(asked):
        progress("race: at rest, what looked odd is asked alone", number, len(asked))
        if silent < _SILENT:
            answer = await runner.again(outcome)
            silent += not answer.answered
            log.replays[outcome.shot.id] = answer
    for number, shot in enumerate(log.plan.after):
        progress("race: controls, at rest", number, len(log.plan.after))
        if sum(not o.answer.answered for o in log.after) < _SILENT:
            log.after.append((await runner.one(shot)).outcome)
    log.long_after = (await runner.one(log.plan.long_after)).outcome


Write = Callable[[Shot], Prompt]


async def _writer(fleet: Fleet, plan: RacePlan) -> Write:
    """Prompts of about the wanted length: exact ones would need as many requests again, for counting."""
    shot = plan.controls[0]
    ruler = await ruler_for(fleet, shot.tenant, shot.nonce, shot.sentinel, PLAIN)
    few, many = [await ruler.count(lay_out(shot.nonce, shot.sentinel, n)) for n in (2, 12)]
    line = max(1.0, (many - few) / 10) if few is not None and many is not None else 8.0
    base = max(0.0, few - 2 * line) if few is not None else 12.0

    def write(shot: Shot) -> Prompt:
        lines = max(LEAST_LINES, int((shot.tokens - base) / line))
        return Prompt(lay_out(shot.nonce, shot.sentinel, lines), round(base + lines * line), False)

    return write


class _Runner:
    """Sends one request at a time of the caller's, waits where the fleet says so, and keeps account."""

    def __init__(self, fleet: Fleet, log: RaceLog, cost: Log, write: Write) -> None:
        self.fleet, self.log, self.cost, self.write = fleet, log, cost, write
        self.patience_s = fleet.timeout_s
        self.most_s = 0.0  # beyond _WAITS: how long to go on when told to wait
        self.jitter = random.Random(0)

    async def one(self, shot: Shot) -> Entry:
        prompt = self.write(shot)
        request = Request(prompt.text, shot.max_tokens, 0.0, shot.seed, shot.stream)
        started = time.monotonic()
        answer, waits = await self._ask(request, shot, _leave(shot.hang_up, self.log.pace_s))
        outcome = Outcome(shot, prompt, answer, request.body(self.fleet.model))
        return Entry(outcome, started, time.monotonic(), waits)

    async def again(self, outcome: Outcome) -> Answer:
        """The very same request, to its end, with nobody beside it."""
        shot = outcome.shot
        request = Request(outcome.prompt.text, shot.max_tokens, 0.0, shot.seed, shot.stream)
        return (await self._ask(request, shot, None))[0]

    async def _ask(self, request: Request, shot: Shot, leave: Leave | None) -> tuple[Answer, int]:
        until, waits = time.monotonic() + self.most_s, 0
        while True:
            answer = await self.fleet.complete(request, shot.tenant, self.patience_s, leave)
            busy = answer.status in (429, 503) and not answer.contained
            if not busy or (waits >= _WAITS and time.monotonic() >= until):
                self.cost.spend(shot, answer)
                return answer, waits
            waits += 1
            said = 0.2 * waits if answer.retry_after_s is None else answer.retry_after_s
            await asyncio.sleep(min(_LONGEST_WAIT_S, max(0.1, said)) * self.jitter.uniform(0.75, 1.25))


def _leave(hang_up: HangUp | None, pace_s: float) -> Leave | None:
    if hang_up is None:
        return None
    after_s = None if hang_up.paces is None else hang_up.paces * pace_s
    return Leave(hang_up.events, hang_up.at_end, after_s)
