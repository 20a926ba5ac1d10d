"""Carry out a plan: write the prompts, send the shots wave by wave, repeat what degenerated."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pagefence.fleet import Answer, Fleet, Request
from pagefence.fleet.counters import Window
from pagefence.probes.prompt import Counter as Count
from pagefence.probes.prompt import Manner, Prompt, Ruler, fitted, lay_out, write
from pagefence.probes.sentinel import Sentinel, recalled, repeated, scan
from pagefence.probes.shot import Plan, Purpose, Shot, Wave
from pagefence.probes.windows import Watcher

RECALL_NEEDED = 0.75  # of the controls in one manner
_RETRIES = 4
_FIRST_PAUSE_S, _LONGEST_WAIT_S = 0.5, 10.0
_REFUSAL_S = 60.0  # what is refused needs no compute, so it has a shorter deadline, until something over is answered
UNCOUNTED = "not asked: the fleet did not count its tokens for us (/tokenize)"
_PATIENCE = 3  # so many silent or saturated answers in a row for one purpose, and the rest of its shots are not asked


@dataclass(frozen=True, slots=True)
class Outcome:
    """One shot and what came back.

    `first` is the answer that was repeated because it degenerated or lost its words; `first_prompt` what it answered,
    where the second try had other words.
    """

    shot: Shot
    prompt: Prompt
    answer: Answer
    body: Mapping[str, object]
    ban: tuple[int, ...] = ()
    first: Answer | None = None
    first_prompt: Prompt | None = None

    @property
    def recalled(self) -> bool:
        """Own recall: the answer holds the words of its own prompt."""
        return recalled(self.answer.text, self.shot.sentinel)

    @property
    def answers(self) -> tuple[Answer, ...]:
        return (self.answer,) if self.first is None else (self.first, self.answer)


@dataclass(slots=True)
class Log:
    """What happened so far; it is there to be reported when a run is interrupted."""

    plan: Plan | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    prompt_tokens: int = 0
    new_tokens: int = 0
    requests: int = 0
    complete: bool = False
    skipped: set[str] = field(default_factory=set)
    lost: Counter[Purpose] = field(default_factory=Counter)
    answers_over: bool = False
    instead: Mapping[Manner, Manner] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)

    @property
    def asked(self) -> Plan | None:
        """The plan without the waves that were not needed."""
        if self.plan is None:
            return None
        return replace(self.plan, waves=tuple(w for w in self.plan.waves if not self.skipped & {s.id for s in w.shots}))

    def spend(self, shot: Shot, answer: Answer) -> None:
        self.requests += 1
        if answer.status is None or (answer.status in (429, 503) and not answer.contained):
            self.lost[shot.purpose] += 1
        else:
            self.lost[shot.purpose] = 0
            self.answers_over |= answer.answered and not shot.within
        self.prompt_tokens += answer.prompt_tokens or 0
        self.new_tokens += answer.completion_tokens or 0


Progress = Callable[[str, int, int], None]


async def execute(fleet: Fleet, plan: Plan, log: Log, progress: Progress, watcher: Watcher | None = None) -> None:
    """Run every wave; the next one begins when the last shot of this one has its answer.

    `watcher` reads the fleet's counters around each wave; without one they are not read.
    """
    log.plan = plan
    if not plan.waves:
        log.complete = True
        return
    first = plan.waves[0].shots[0]
    ruler = await ruler_for(fleet, first.tenant, first.nonce, first.sentinel, first.manner)
    for wave in plan.waves:
        if wave.unproven and not _unproven(plan, log):
            log.skipped.update(shot.id for shot in wave.shots)
            continue
        progress(wave.title, len(log.outcomes), _total(plan, log))
        begun = len(log.outcomes)
        if watcher is not None and wave.counted:
            await watcher.begin()
        await _wave(fleet, plan, wave, log, progress, ruler)
        if any(shot.purpose is Purpose.CONTROL for shot in wave.shots):
            log.instead = settled([o for o in log.outcomes if o.shot.purpose is Purpose.CONTROL])
        if watcher is not None and wave.counted:
            answers = [a for o in log.outcomes[begun:] for a in o.answers]
            log.windows.append(await watcher.end(wave, sum(a.answered for a in answers)))
        elif watcher is not None:
            watcher.forget()
    log.complete = True


async def _wave(fleet: Fleet, plan: Plan, wave: Wave, log: Log, progress: Progress, ruler: Ruler) -> None:
    room = _Room(wave.room)

    async def one(shot: Shot) -> None:
        shot = replace(shot, manner=log.instead.get(shot.manner, shot.manner))
        prompt = await write(ruler, shot.nonce, shot.sentinel, shot.tokens, shot.manner)
        if prompt is None:
            answer = Answer(None, problem=UNCOUNTED, stream=shot.stream)
            log.outcomes.append(Outcome(shot, Prompt("", shot.tokens, False), answer, {}))
            return
        async with room.of(shot.tokens + shot.max_tokens):
            outcome = await _shoot(fleet, plan, shot, prompt, log)
            spare = shot.with_spare
            if spare is not None and _worth_repeating(plan, outcome):
                outcome = await _again(fleet, ruler, spare, outcome, log)
        log.outcomes.append(outcome)
        progress(wave.title, len(log.outcomes), _total(plan, log))

    async with asyncio.TaskGroup() as group:
        for shot in wave.shots:
            group.create_task(one(shot))


def settled(controls: Sequence[Outcome]) -> dict[Manner, Manner]:
    """What to use instead of each manner in which this model gave nothing back: the one that it copied best.

    Empty when all are good enough, and when none is: then there is nothing to choose.
    """
    held: dict[Manner, list[bool]] = {}
    for outcome in controls:
        held.setdefault(outcome.shot.manner, []).append(outcome.answer.answered and outcome.recalled)
    rate = {manner: sum(mine) / len(mine) for manner, mine in held.items()}
    best = max(rate, key=lambda manner: rate[manner], default=None)
    if best is None or rate[best] < RECALL_NEEDED:
        return {}
    return {manner: best for manner, good in rate.items() if good < RECALL_NEEDED}


def _total(plan: Plan, log: Log) -> int:
    return max(len(plan.expected), len(log.outcomes))


def _unproven(plan: Plan, log: Log) -> bool:
    """Whether the fleet answers what it cannot hold, and nobody's words have shown in it yet."""
    readers = [o for o in log.outcomes if o.shot.purpose is Purpose.READ_OVER]
    if not any(o.answer.answered for o in readers):
        return False
    seen = (s for o in readers for a in o.answers for s in scan(a.text, plan.sentinels, o.shot.sentinel))
    return not any(s.proof for s in seen)


async def ask_once(fleet: Fleet, ruler: Ruler, shot: Shot, log: Log) -> Outcome:
    """One shot outside of any plan, not repeated whatever came. It is in the log as every other."""
    prompt = await write(ruler, shot.nonce, shot.sentinel, shot.tokens, shot.manner)
    if prompt is None:
        answer = Answer(None, problem=UNCOUNTED, stream=shot.stream)
        return Outcome(shot, Prompt("", shot.tokens, False), answer, {})
    request = Request(prompt.text, shot.max_tokens, shot.temperature, shot.seed, shot.stream)
    outcome = Outcome(shot, prompt, await _ask(fleet, request, shot, log), request.body(fleet.model))
    log.outcomes.append(outcome)
    return outcome


async def ruler_for(fleet: Fleet, tenant: str, nonce: str, sentinel: Sentinel, manner: Manner) -> Ruler:
    """The fleet's own tokenizer, or a fit to the usage of two short answers; those hold the nonce backwards."""
    count = _counter(fleet, tenant)
    if await count("one two") is not None:
        return Ruler(count, True)
    measured = []
    for lines in (2, 12):
        text = lay_out(nonce[::-1], sentinel, lines, 0, manner)
        answer = await fleet.complete(Request(text, 1), tenant)
        if answer.prompt_tokens is None:
            return Ruler(count, False)
        measured.append((text, answer.prompt_tokens))
    return Ruler(fitted(*measured), False)


def _counter(fleet: Fleet, tenant: str) -> Count:
    async def count(text: str) -> int | None:
        tokens = await fleet.tokenize(text, tenant)
        return None if tokens is None else len(tokens)

    return count


async def _shoot(fleet: Fleet, plan: Plan, shot: Shot, prompt: Prompt, log: Log) -> Outcome:
    request = Request(prompt.text, shot.max_tokens, shot.temperature, shot.seed, shot.stream, extra=shot.extra)
    if _given_up(log, shot):
        answer = Answer(
            None, problem=f"not asked: {_PATIENCE} others ({shot.purpose}) had no answer", stream=shot.stream
        )
        return Outcome(shot, prompt, answer, request.body(fleet.model))
    answer = await _ask(fleet, request, shot, log)
    outcome = Outcome(shot, prompt, answer, request.body(fleet.model))
    if shot.spare is not None or not _worth_repeating(plan, outcome):
        return outcome
    ban = await _to_ban(fleet, shot, answer.text)
    again = replace(request, ban=ban, temperature=0.0, seed=request.seed ^ 1)
    second = await _ask(fleet, again, shot, log)
    if ban and second.status == 400:  # this fleet takes no logit_bias
        again = replace(again, ban=())
        second = await _ask(fleet, again, shot, log)
    return replace(outcome, answer=second, body=again.body(fleet.model), ban=ban, first=answer)


def _given_up(log: Log, shot: Shot) -> bool:
    """Whether others of its kind had no answer; prompts over the limit are one kind, whoever asks them."""
    if shot.within:
        return log.lost[shot.purpose] >= _PATIENCE
    return log.lost[Purpose.OVER] + log.lost[Purpose.READ_OVER] >= _PATIENCE


async def _again(fleet: Fleet, ruler: Ruler, spare: Shot, lost: Outcome, log: Log) -> Outcome:
    """A legal reader that lost its words, once more with other words of the same length."""
    prompt = await write(ruler, spare.nonce, spare.sentinel, spare.tokens, spare.manner)
    if prompt is None:
        answer = Answer(None, problem=UNCOUNTED, stream=spare.stream)
        return Outcome(spare, Prompt("", spare.tokens, False), answer, {}, first=lost.answer, first_prompt=lost.prompt)
    request = Request(prompt.text, spare.max_tokens, seed=spare.seed, stream=spare.stream)
    answer = await _ask(fleet, request, spare, log)
    return Outcome(spare, prompt, answer, request.body(fleet.model), first=lost.answer, first_prompt=lost.prompt)


def _worth_repeating(plan: Plan, outcome: Outcome) -> bool:
    """An answer that lost its own words and shows nobody else's yet gets one more try, greedy."""
    shot, answer = outcome.shot, outcome.answer
    if not shot.recalls or not answer.answered or outcome.recalled:
        return False
    return not any(s.proof for s in scan(answer.text, plan.sentinels, shot.sentinel))


async def _to_ban(fleet: Fleet, shot: Shot, text: str) -> tuple[int, ...]:
    """The tokens to do without in the second try: what the answer degenerated into.

    Over a limit also what it began with: there every answer begins with the same token, the continuation of a
    placeholder, and that token goes on to interrupt the words that would show. A run of marks may be one token or many,
    so runs of the mark are banned with it.
    """
    unit = repeated(text)
    if unit is None and not shot.within:
        unit = next(iter(re.findall(r"[A-Za-z]+|\d|[^\w\s]", text)), None)
    if unit is None:
        return ()
    runs = [" " + unit, unit] if unit.isalnum() else [" " + unit, *(unit * n for n in (1, 2, 3, 4, 8, 16, 32))]
    found = [await fleet.tokenize(run, shot.tenant) for run in runs]
    return tuple(sorted({tokens[0] for tokens in found if tokens is not None and len(tokens) == 1}))


async def _ask(fleet: Fleet, request: Request, shot: Shot, log: Log) -> Answer:
    free = not shot.within and not log.answers_over
    answer = await patiently(fleet, request, shot.tenant, _REFUSAL_S if free else None)
    log.spend(shot, answer)
    return answer


async def patiently(fleet: Fleet, request: Request, tenant: str, deadline: float | None) -> Answer:
    """Ask; where the fleet is saturated, wait as it says and ask again a few times.

    A 429 without `Retry-After` is waited for with pauses of our own; a 503 without it may last, so it is not.
    """
    pause = _FIRST_PAUSE_S
    for _ in range(_RETRIES):
        answer = await fleet.complete(request, tenant, deadline)
        saturated = answer.status in (429, 503) and not answer.contained
        if not saturated or (answer.status == 503 and answer.retry_after_s is None):
            return answer
        await asyncio.sleep(min(_LONGEST_WAIT_S, max(0.1, answer.retry_after_s or pause)))
        pause *= 2
    return await fleet.complete(request, tenant, deadline)


class _Room:
    """Lets shots run together as long as their tokens fit; one that never fits runs alone."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.taken = 0
        self.changed = asyncio.Condition()

    def of(self, tokens: int) -> _Place:
        return _Place(self, tokens)


class _Place:
    def __init__(self, room: _Room, tokens: int) -> None:
        self.room = room
        self.tokens = tokens

    async def __aenter__(self) -> None:
        room = self.room
        async with room.changed:
            await room.changed.wait_for(lambda: room.taken == 0 or room.taken + self.tokens <= room.tokens)
            room.taken += self.tokens

    async def __aexit__(self, *_: object) -> None:
        async with self.room.changed:
            self.room.taken -= self.tokens
            self.room.changed.notify_all()
