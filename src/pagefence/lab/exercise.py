"""The real engine exercised with a fault in it: two tenants, reused pages, cached prefixes, clients that hang up.

An opening crowd of more requests than the pools hold, then four at a time in seeded order. Every answer is held against
the reference (`known`), so a wrong token shows whoever it belongs to; what came of it is an `Exercised`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import msgspec

from pagefence.fleet.answer import decode_json, mapping, read_piece
from pagefence.fleet.embedded import Recipe, Running, embedded
from pagefence.lab.exercised import Exercised, Rest, Seen, count
from pagefence.lab.fault import Fault
from pagefence.lab.known import DTYPE, Known, body, headers, reference

AT_ONCE, CROWD, AGAIN_AFTER = 4, 12, 2
REST_S, RETRY_S = 8.0, 0.3
# How long a client waits: as many times as long as the first answer of the run took to begin, but not less than this.
# The machine may be a slow one or have other things to do, and a client that waits for nothing should not wait long.
PATIENCE, PATIENCE_S, FIRST_S = 40, 20.0, 120.0
BUSY = ("quarantine", "rate_limit_exceeded")
HANG_UPS, WHOLE, SAME_SEED = 0.25, 0.4, 0.2
# Small pages and pools, so that prompts of a hundred tokens reuse pages, fill several chunks and wait for each other.
SMALL_WORLD = (
    *("--context", "384", "--prefill-pool-tokens", "512", "--decode-pool-tokens", "576"),
    *("--page-size", "32", "--chunk-tokens", "64"),
)
NO_FAULT = "no fault"
TENANTS = ("a", "b")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to make, and when its client hangs up: after so many events, or before any of them, after so many
    times what the first answer of the run took to begin. Neither: it does not.
    """

    number: int
    tenant: str
    seed: int
    stream: bool = True
    after_paces: float | None = None
    after_events: int | None = None


@dataclass(slots=True)
class _Fleet:
    """A running fleet as its clients see it, and what each tenant has sent so far."""

    client: httpx.AsyncClient
    running: Running
    model: str
    known: Sequence[Known]
    pace_s: float = FIRST_S
    sent: dict[str, list[tuple[int, ...]]] = field(default_factory=lambda: {tenant: [] for tenant in TENANTS})

    @property
    def patience_s(self) -> float:
        """How long a client waits for an answer."""
        return max(PATIENCE_S, PATIENCE * self.pace_s)

    def own_prefix(self, tenant: str, prompt: tuple[int, ...]) -> int:
        """Tokens of this prompt's beginning that its tenant has sent before; from now on, all of them."""
        own = max((_alike(prompt, other) for other in self.sent[tenant]), default=0)
        self.sent[tenant].append(prompt)
        return own


def exercise(
    fault: Fault,
    guards: str,
    tell: Callable[[str], None],
    model: str | None = None,
    kept: Path | None = None,
    seed: int = 1,
) -> Exercised:
    """Start a fleet with the fault in (`NO_FAULT`: none), exercise it, stop it.

    `kept`: the file of the reference. Raises UnknownGuard, CouldNotStart, NoReference.
    """
    fault.decisions(guards)
    known = reference(model, tell, kept)
    started = time.monotonic()
    with embedded(recipe(fault, guards, model), tell) as running:
        long = int(fault.world.get("prefill_pool_tokens") or 0) < int(fault.world.get("context") or 0)
        answers, rest = asyncio.run(_exercised(running, known, plan(known, seed, long), tell))
    return count(answers, known, rest, time.monotonic() - started)


def recipe(fault: Fault, guards: str, model: str | None = None) -> Recipe:
    """The fault's own world, or a small one where it has none."""
    flags = DTYPE if "context" in fault.world else (*DTYPE, *SMALL_WORLD)
    if fault.name == NO_FAULT:
        return Recipe(model=model, flags=flags)
    return Recipe(model=model, fault=fault.name, guards=guards, flags=flags)


def plan(known: Sequence[Known], seed: int, long: bool) -> tuple[Ask, ...]:
    """What is asked, in which order and by whom: the opening crowd first. The same for the same seed.

    In the first round anything follows anything. In the second the tenants have changed places, and the two prompts
    that share a list follow each other, so that a prefix of the one is still cached when the other comes. Who hangs up
    asks again soon.
    """
    rng = random.Random(f"exercise {seed}")
    short = [number for number, entry in enumerate(known) if entry.kind == "short"]
    lists = list(zip(short[::2], short[1::2], strict=True))
    orders = (rng.sample(short, len(short)), [n for two in rng.sample(lists, len(lists)) for n in two])
    asks: list[Ask] = []
    for turn, order in enumerate(orders):
        asks += _again([_ask(number, TENANTS[(number + turn) % 2], rng) for number in order])
    if long:
        longs = [number for number, entry in enumerate(known) if entry.kind == "long"]
        for place, number in enumerate(longs):  # late enough that the pools hold others' text
            asks.insert(len(asks) * 2 // 3 + place, Ask(number, TENANTS[number % 2], 0, stream=bool(place % 2)))
    return tuple(_some_seeds_twice(asks, rng))


def _ask(number: int, tenant: str, rng: random.Random) -> Ask:
    if rng.random() >= HANG_UPS:
        return Ask(number, tenant, 0, stream=rng.random() >= WHOLE)
    if rng.random() < 0.5:
        return Ask(number, tenant, 0, after_paces=rng.uniform(0.1, 3.0))
    return Ask(number, tenant, 0, after_events=rng.choice((1, 2, 4)))


def _again(asks: list[Ask]) -> list[Ask]:
    """After a hang-up the same once more, a little later and to the end."""
    more = list[Ask]()
    for place, ask in enumerate(asks):
        more.append(ask)
        if place >= AGAIN_AFTER and _hangs_up(asks[place - AGAIN_AFTER]):
            more.append(replace(asks[place - AGAIN_AFTER], after_paces=None, after_events=None))
    return more + [replace(ask, after_paces=None, after_events=None) for ask in asks[-AGAIN_AFTER:] if _hangs_up(ask)]


def _hangs_up(ask: Ask) -> bool:
    return ask.after_paces is not None or ask.after_events is not None


def _some_seeds_twice(asks: list[Ask], rng: random.Random) -> list[Ask]:
    """The seed has no effect on a greedy answer. It is the one field that two clients may choose alike."""
    seeds: list[int] = []
    for place in range(len(asks)):
        again = place > 0 and rng.random() < SAME_SEED
        seeds.append(seeds[-1] if again else 1 + place)
    return [replace(ask, seed=seed) for ask, seed in zip(asks, seeds, strict=True)]


async def _exercised(
    running: Running, known: Sequence[Known], asks: tuple[Ask, ...], tell: Callable[[str], None]
) -> tuple[list[Seen], Rest]:
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as client:
        before = await _workers(client, running)
        models = await client.get(_router(running) + "/v1/models", headers=headers(running.keys, "a"))
        fleet = _Fleet(client, running, models.json()["data"][0]["id"], known)
        if not running.ready:  # every request would get the same answer
            return [await _one(fleet, ask) for ask in asks[:AT_ONCE]], Rest(True)
        answers = await _crowd(fleet, asks[:CROWD], tell)
        answers += await _by_and_by(fleet, asks[CROWD:], tell)
        tell("waiting until the fleet is at rest")
        return answers, await _rest(client, running, before)


async def _crowd(fleet: _Fleet, asks: Sequence[Ask], tell: Callable[[str], None]) -> list[Seen]:
    """All at once, beside the fleet's very first request, whose client reads for a while and then hangs up."""
    tell(f"exercise: a crowd of {len(asks)}")
    number = next(n for n, entry in enumerate(fleet.known) if entry.kind == "patient")
    begun, started = asyncio.Event(), time.monotonic()
    first = asyncio.create_task(_one(fleet, Ask(number, TENANTS[0], 0, after_events=8), begun))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(begun.wait(), FIRST_S)
        fleet.pace_s = time.monotonic() - started
    return [*await asyncio.gather(*(_one(fleet, ask) for ask in asks)), await first]


async def _by_and_by(fleet: _Fleet, asks: Sequence[Ask], tell: Callable[[str], None]) -> list[Seen]:
    left, answers = deque(asks), list[Seen]()

    async def client() -> None:
        while left:
            tell(f"exercise: {len(left)} requests left")
            answers.append(await _one(fleet, left.popleft()))

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    return answers


async def _one(fleet: _Fleet, ask: Ask, begun: asyncio.Event | None = None) -> Seen:
    """One request, tried again while the fleet says that it has too much to do, as a client should."""
    until = time.monotonic() + fleet.patience_s
    while True:
        seen = await _try(fleet, ask, begun)
        busy = seen.error is not None and seen.error.code in BUSY
        if not busy or time.monotonic() > until:
            return seen
        await asyncio.sleep(RETRY_S)


async def _try(fleet: _Fleet, ask: Ask, begun: asyncio.Event | None) -> Seen:
    """To its end, or until its client has had enough. Never raises for what the fleet does."""
    entry = fleet.known[ask.number]
    own = fleet.own_prefix(ask.tenant, entry.prompt_ids)
    reading = _Reading(Seen(ask.number, ask.tenant, own=own), ask.after_events, begun)
    asked = body(fleet.model, entry.prompt_ids, len(entry.token_ids)) | {"seed": ask.seed}
    if ask.stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    else:
        asked |= {"return_token_ids": True}
    url = _router(fleet.running) + "/v1/completions"
    hang_up_s = None if ask.after_paces is None else ask.after_paces * fleet.pace_s
    try:
        async with (
            asyncio.timeout(hang_up_s or fleet.patience_s),
            fleet.client.stream("POST", url, json=asked, headers=headers(fleet.running.keys, ask.tenant)) as response,
        ):
            reading.seen = replace(reading.seen, status=response.status_code)
            if "text/event-stream" in response.headers.get("content-type", ""):
                await reading.events(response.aiter_lines())
            else:
                reading.whole(await response.aread())
    except TimeoutError:
        reading.seen = replace(reading.seen, hung_up=hang_up_s is not None, timed_out=hang_up_s is None)
    except httpx.HTTPError:
        pass  # it broke off: there is no finish
    return reading.seen


class _Reading:
    """What has come so far of one answer."""

    def __init__(self, seen: Seen, after_events: int | None, begun: asyncio.Event | None) -> None:
        self.seen = seen
        self._after, self._begun = after_events, begun

    def whole(self, raw: bytes) -> None:
        value = decode_json(raw)
        self._take(value)
        choices = mapping(value).get("choices")
        ids = mapping(choices[0]).get("token_ids") if isinstance(choices, list) and choices else None
        if isinstance(ids, list):
            self.seen = replace(self.seen, token_ids=tuple(ids), finished=self.seen.error is None)

    async def events(self, lines: AsyncIterator[str]) -> None:
        events, ended = 0, False
        async for line in lines:
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                self.seen = replace(self.seen, finished=ended)
                return
            ended = self._take(decode_json(data.encode())) or ended
            events += 1
            if self._begun is not None:
                self._begun.set()
            if self._after is not None and events >= self._after:
                self.seen = replace(self.seen, hung_up=self.seen.error is None)
                return

    def _take(self, value: object) -> bool:
        """Whether it says why the answer ends."""
        piece = read_piece(value)
        self.seen = replace(
            self.seen,
            text=self.seen.text + piece.text,
            error=self.seen.error or piece.error,
            cached=max(self.seen.cached, piece.cached_tokens or 0),
        )
        return piece.finish_reason is not None


# --- the fleet from outside ---------------------------------------------------------------------------------------


async def _workers(client: httpx.AsyncClient, running: Running) -> dict[str, dict[str, object]]:
    """What each living worker says of itself, by name."""
    said: dict[str, dict[str, object]] = {}
    try:
        router = (await client.get(_router(running) + "/server_info", timeout=5.0)).json()
        for worker in router["workers"]:
            said[worker["name"]] = (await client.get(f"{worker['url']}/server_info", timeout=5.0)).json()
    except (httpx.HTTPError, msgspec.DecodeError, ValueError, KeyError, TypeError):
        return {}
    return said


async def _rest(client: httpx.AsyncClient, running: Running, before: dict[str, dict[str, object]]) -> Rest:
    """Wait until no page is leased or quarantined, and see whether all of them are there (I6)."""
    until = time.monotonic() + REST_S
    while True:
        now = await _workers(client, running)
        problems = [f"{name} is gone" for name in before if name not in now]
        for name, said in now.items():
            problems += _held(name, mapping(said.get("pages")))
        if not problems or time.monotonic() > until:
            break
        await asyncio.sleep(0.2)
    restarts = sum(name in now and now[name].get("epoch") != said.get("epoch") for name, said in before.items())
    restarts += sum(name not in now for name in before)
    return Rest(not problems, restarts, "; ".join(problems))


def _held(name: str, pages: object) -> list[str]:
    """What is wrong with the counts of one worker at rest."""
    said = {state: n for state, n in mapping(pages).items() if isinstance(n, int)}
    states = ("free", "leased", "cached", "quarantined", "retired")
    if any(state not in said for state in (*states, "total")):
        return [f"{name} does not tell its pages"]
    problems = [f"{name}: {said[state]} {state}" for state in ("leased", "quarantined") if said[state]]
    missing = said["total"] - sum(said[state] for state in states)
    if missing:
        problems.append(f"{name}: {abs(missing)} pages {'missing' if missing > 0 else 'too many'}")
    return problems


def _router(running: Running) -> str:
    return (running.target.router or "").rstrip("/")


def _alike(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many tokens two prompts have in common at the beginning."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))
