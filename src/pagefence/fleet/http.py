"""A fleet over HTTP. Every call has a deadline, none raises for what the other side does, no redirect is followed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from pagefence.fleet.answer import Answer, Piece, decode_json, mapping, read_piece

T = TypeVar("T")

_LARGEST_BODY = 4 << 20
_DESCRIBE_S = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where a fleet is: the router that clients talk to, and its workers where they are declared."""

    router: str | None
    prefill: tuple[str, ...] = ()
    decode: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Keys:
    """API keys of the two tenants. They never show in a repr, a report or a log line."""

    a: str | None = field(default=None, repr=False)
    b: str | None = field(default=None, repr=False)

    def of(self, tenant: str) -> str | None:
        return self.a if tenant == "a" else self.b

    @property
    def two(self) -> bool:
        return bool(self.a) and bool(self.b) and self.a != self.b

    def redact(self, text: str) -> str:
        for name, key in (("PAGEFENCE_KEY_A", self.a), ("PAGEFENCE_KEY_B", self.b)):
            if key:
                text = text.replace(key, f"${name}")
        return text


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to ask for."""

    prompt: str
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    stream: bool = False
    ban: tuple[int, ...] = ()

    def body(self, model: str | None) -> dict[str, object]:
        body: dict[str, object] = {
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
        }
        if model is not None:
            body["model"] = model
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.ban:
            body["logit_bias"] = {str(token): -100 for token in self.ban}
        return body


@dataclass(frozen=True, slots=True)
class Reply:
    """A small JSON document, or why there is none. `body` is what was read even when the status is an error."""

    status: int | None
    body: Mapping[str, object]
    problem: str | None


class Fleet:
    """Asks one fleet. Use it as an async context manager; requests may run concurrently."""

    def __init__(self, target: Target, keys: Keys, timeout_s: float = 120.0) -> None:
        self.target = target
        self.keys = keys
        self.timeout_s = timeout_s
        self.model: str | None = None
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s, connect=min(5.0, timeout_s)),
            follow_redirects=False,
            trust_env=not _loopback(target),
            limits=httpx.Limits(max_connections=64),
        )

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, base: str, path: str, tenant: str | None = None) -> Reply:
        """GET a JSON object."""
        return await self._json("GET", base, path, None, tenant)

    async def tokenize(self, text: str, tenant: str = "a") -> tuple[int, ...] | None:
        """The token ids of `text` as the fleet counts them, or None when it does not tell."""
        body: dict[str, object] = {"prompt": text}
        if self.model is not None:
            body["model"] = self.model
        reply = await self._json("POST", self._router(), "/tokenize", body, tenant)
        tokens = reply.body.get("tokens")
        if reply.problem is not None or not isinstance(tokens, list):
            return None
        if not all(isinstance(t, int) and not isinstance(t, bool) for t in tokens):
            return None
        return tuple(tokens)

    async def complete(self, request: Request, tenant: str, timeout_s: float | None = None) -> Answer:
        """Ask for one completion and read the answer to its end, within the deadline."""
        limit = min(self.timeout_s, timeout_s or self.timeout_s)
        started = time.monotonic()
        reading = _Reading(request.stream)
        try:
            async with (
                asyncio.timeout(limit),
                self._client.stream(
                    "POST",
                    self._router() + "/v1/completions",
                    json=request.body(self.model),
                    headers=self._headers(tenant),
                ) as response,
            ):
                reading.status = response.status_code
                reading.retry_after_s = _seconds(response.headers.get("retry-after"))
                if "text/event-stream" in response.headers.get("content-type", ""):
                    await reading.events(response.aiter_lines(), started)
                else:
                    reading.whole(await _read(response), time.monotonic() - started)
        except TimeoutError:
            reading.problem = f"no complete answer within {limit:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reading.problem = _why(error)
        return reading.answer(time.monotonic() - started)

    async def _json(self, method: str, base: str, path: str, body: object, tenant: str | None) -> Reply:
        limit = min(_DESCRIBE_S, self.timeout_s)
        try:
            async with (
                asyncio.timeout(limit),
                self._client.stream(
                    method, base.rstrip("/") + path, json=body, headers=self._headers(tenant)
                ) as response,
            ):
                raw = await _read(response)
        except TimeoutError:
            return Reply(None, {}, f"did not answer within {limit:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return Reply(None, {}, _why(error))
        value = decode_json(raw)
        if response.status_code != 200:
            return Reply(response.status_code, mapping(value), f"answered HTTP {response.status_code}")
        if not isinstance(value, dict):
            return Reply(response.status_code, {}, f"answered something else than a JSON object ({raw[:40]!r})")
        return Reply(response.status_code, value, None)

    def _headers(self, tenant: str | None) -> dict[str, str]:
        key = self.keys.of(tenant) if tenant is not None else None
        return {"authorization": f"Bearer {key}"} if key else {}

    def _router(self) -> str:
        return (self.target.router or "").rstrip("/")


class _Reading:
    """Collects one answer while it is read, so that what had come is known when the rest does not."""

    def __init__(self, stream: bool) -> None:
        self.status: int | None = None
        self.problem: str | None = None
        self.retry_after_s: float | None = None
        self.stream = stream
        self.begun = False
        self.ttft_s: float | None = None
        self.pieces: list[Piece] = []

    def whole(self, raw: bytes, now: float) -> None:
        value = decode_json(raw)
        if self.status == 200:
            self.ttft_s = now
            self.begun = True
        piece = read_piece(value)
        if not piece.shaped:
            self.problem = f"the body is no completion ({raw[:60]!r})" if self.status == 200 else None
        self.pieces.append(piece)

    async def events(self, lines: AsyncIterator[str], started: float) -> None:
        ended = False
        size = 0
        async for line in lines:
            size += len(line)
            if size > _LARGEST_BODY:
                self.problem = "the stream does not end"
                return
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                ended = True
                break
            value = decode_json(data.encode())
            piece = read_piece(value)
            if not piece.shaped:
                self.problem = f"a stream event is no completion ({data[:60]!r})"
            if piece.error is None:
                self.begun = True
                if piece.text and self.ttft_s is None:
                    self.ttft_s = time.monotonic() - started
            self.pieces.append(piece)
        if not ended and not any(p.error for p in self.pieces) and self.problem is None:
            self.problem = "the stream broke off"

    def answer(self, total_s: float) -> Answer:
        error = next((p.error for p in self.pieces if p.error), None)
        finish = _last(p.finish_reason for p in self.pieces)
        if self.status == 200 and finish is None and error is None and self.problem is None:
            self.problem = "the answer has no finish reason: it may have been cut"
        return Answer(
            status=self.status,
            text="".join(p.text for p in self.pieces),
            finish_reason=finish,
            prompt_tokens=_last(p.prompt_tokens for p in self.pieces),
            completion_tokens=_last(p.completion_tokens for p in self.pieces),
            cached_tokens=_last(p.cached_tokens for p in self.pieces),
            error=error,
            problem=self.problem,
            stream=self.stream,
            begun=self.begun,
            ttft_s=self.ttft_s,
            total_s=total_s,
            retry_after_s=self.retry_after_s,
        )


def _last(values: Iterable[T | None]) -> T | None:
    """The last value that is one."""
    found = None
    for value in values:
        found = value if value is not None else found
    return found


async def _read(response: httpx.Response) -> bytes:
    """The body, or its beginning when it is larger than any sensible answer."""
    raw = bytearray()
    async for chunk in response.aiter_bytes():
        raw += chunk
        if len(raw) > _LARGEST_BODY:
            break
    return bytes(raw)


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value) if value is not None else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds < 3600 else None


def _why(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "did not answer in time"
    if isinstance(error, httpx.ConnectError | OSError):
        return "could not be reached (connection refused or name unknown)"
    return f"broke off ({type(error).__name__})"


def _loopback(target: Target) -> bool:
    hosts = {urlsplit(url).hostname for url in (target.router, *target.prefill, *target.decode) if url}
    return hosts <= {"127.0.0.1", "localhost", "::1"}
