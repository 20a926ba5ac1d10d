"""What is asked of a server, and what is read off its stream. One client for all engines.

It speaks HTTP/1.1 over plain sockets and keeps the lines with the moment at which they came; they are parsed when the
measurement is over, so that the client, which shares the cores with the server, takes little of them.

Definitions, the same for every engine:

- time to first token: from before the connection is opened until the first event that carries a token;
- decode tokens/s at n streams: n requests of short prompts at once; tokens after each stream's first, over the time
  from the first token of all to the last. An engine that takes prompts one by one beside its decode steps may have
  ended the first stream before the last begins, so a time in which all n generate need not exist;
- tokens of an event: those that `usage` counted, spread evenly over the events of the answer. Engines send one event
  for a token, but for tokens that are only a part of a character.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.stats import quantile

# Ids of ordinary words of the model: no control tokens, nothing that only a part of a character stands for.
FIRST_ID, LAST_ID = 1_000, 40_000


class AskFailed(Exception):
    """The engine answered with something else than a stream of tokens; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, and what its requests have besides the common fields."""

    host: str
    port: int
    model: str
    key: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Moments of `time.perf_counter`: `events` are those that carried tokens."""

    asked: float
    events: tuple[float, ...]
    tokens: int

    @property
    def first_s(self) -> float:
        """Time to first token."""
        return self.events[0] - self.asked

    @property
    def per_event(self) -> float:
        """Tokens that one event stands for."""
        return self.tokens / len(self.events)


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Prompts:
    """Prompts of token ids that no other prompt begins with, the same for everybody with the same seed."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random(repr(seed))

    def of(self, tokens: int) -> list[int]:
        """So many token ids."""
        return [self._random.randrange(FIRST_ID, LAST_ID) for _ in range(tokens)]


async def ask(server: Server, prompt: Sequence[int], tokens: int, timeout: float = 600.0) -> Answer:
    """One greedy completion, streamed. Raises AskFailed."""
    body = {
        "model": server.model,
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **server.extra,
    }
    payload = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {server.key}\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    )
    asked = time.perf_counter()
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(server.host, server.port, limit=1 << 22)
            try:
                writer.write(head.encode() + payload)
                lines = [(time.perf_counter(), line) async for line in reader]
            finally:
                writer.close()
    except TimeoutError:
        raise AskFailed(f"no whole answer within {timeout:g} s") from None
    except OSError as error:
        raise AskFailed(f"{type(error).__name__}: {error}") from error
    return read(asked, lines)


def read(asked: float, lines: Sequence[tuple[float, bytes]]) -> Answer:
    """What came, line by line with its moment, as an answer. Raises AskFailed."""
    status = lines[0][1].split() if lines else []
    if len(status) < 2 or status[1] != b"200":
        said = b"".join(line for _, line in lines)[-300:].decode(errors="replace").strip()
        raise AskFailed(f"HTTP {status[1].decode() if len(status) > 1 else 'without a status'}: {said}")
    events: list[float] = []
    tokens = 0
    for at, line in lines:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise AskFailed(f"error in the stream: {json.dumps(event['error'])[:300]}")
        choices, usage = event.get("choices") or [], event.get("usage")
        if usage:
            tokens = int(usage["completion_tokens"])
        # An event that only says how it ended carries no token.
        if choices and (choices[0].get("text") or choices[0].get("finish_reason") is None):
            events.append(at)
    if not events or not tokens:
        raise AskFailed(f"a stream of {len(events)} events and {tokens} tokens")
    return Answer(asked, tuple(events), tokens)


async def together(server: Server, prompts: Sequence[Sequence[int]], tokens: int) -> list[Answer]:
    """All of them at once."""
    return list(await asyncio.gather(*(ask(server, prompt, tokens) for prompt in prompts)))


def decode_rate(answers: Sequence[Answer]) -> float:
    """Tokens per second, as defined above. Raises AskFailed where no time passed."""
    start, end = min(answer.events[0] for answer in answers), max(answer.events[-1] for answer in answers)
    if end <= start:
        raise AskFailed("all tokens came at once")
    return sum(answer.tokens - answer.per_event for answer in answers) / (end - start)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of the mixed load, `at` seconds after its start."""

    at: float
    prompt: int
    tokens: int


LONG_EVERY = 4
SHORT, LONG = (32, 128), (800, 1_200)
ANSWERS = (16, 64)


def arrivals(seed: int, requests: int, per_second: float) -> list[Arrival]:
    """Poisson arrivals; one prompt in four is long. The same for everybody with the same seed."""
    chance = random.Random(seed)
    at, plan = 0.0, []
    for number in range(requests):
        low, high = LONG if number % LONG_EVERY == LONG_EVERY - 1 else SHORT
        plan.append(Arrival(at, chance.randint(low, high), chance.randint(*ANSWERS)))
        at += chance.expovariate(per_second)
    return plan


@dataclass(frozen=True, slots=True)
class Mixed:
    """What a mixed load showed, in tokens/s and seconds."""

    rate: float
    first_p50: float
    first_p95: float
    between_p95: float


async def mixed(server: Server, plan: Sequence[Arrival], prompts: Prompts) -> Mixed:
    """Send each request at its time, whether or not the others are answered."""
    start = time.perf_counter()

    async def one(arrival: Arrival, prompt: list[int]) -> Answer:
        await asyncio.sleep(max(0.0, start + arrival.at - time.perf_counter()))
        return await ask(server, prompt, arrival.tokens)

    answers = await asyncio.gather(*(one(arrival, prompts.of(arrival.prompt)) for arrival in plan))
    return summary(answers)


def summary(answers: Sequence[Answer]) -> Mixed:
    """Tokens over the time from the first request to the last token, and quantiles over requests and over gaps."""
    end, start = max(answer.events[-1] for answer in answers), min(answer.asked for answer in answers)
    firsts = [answer.first_s for answer in answers]
    gaps = [b - a for answer in answers for a, b in zip(answer.events, answer.events[1:], strict=False)]
    p50, p95, between = quantile(firsts, 0.5), quantile(firsts, 0.95), quantile(gaps, 0.95)
    assert p50 is not None and p95 is not None
    return Mixed(sum(answer.tokens for answer in answers) / (end - start), p50, p95, between or 0.0)
