"""A fleet over HTTP. Every call has a deadline, none raises for what the other side does, no redirect is followed."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import random
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from pagefence.fleet.answer import Answer, Piece, decode_json, mapping, read_piece, shape
from pagefence.fleet.lines import lines
from pagefence.fleet.target import Keys, Target
from pagefence.mistakes import Usage

T = TypeVar("T")

_LARGEST_BODY = 4 << 20
_FIGURES_S = 10.0
_AT_ONCE = 400  # nodes with an open connection: below the usual limit of open files
# Our own core is what is scarce: with more nodes at a time each only waits longer, and seems slow. One that has not
# told everything after a moment waits beside the others, so a silent node holds nobody up.
_TURNS, _TURN_S = 32, 0.25
_FIRST_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to ask for. `extra`: more fields of the body, for what a client should not set."""

    prompt: str
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    stream: bool = False
    ban: tuple[int, ...] = ()
    extra: tuple[tuple[str, object], ...] = ()

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
        return body | dict(self.extra)


@dataclass(frozen=True, slots=True)
class Leave:
    """When our client goes away in the middle of an answer: after so many events of a stream, when it is told why the
    answer ends (`at_end`; what follows is not read), or after so many seconds, whatever has come by then."""

    events: int | None = None
    at_end: bool = False
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A small document as text and, where it is a JSON object, parsed; or why there is none (`problem`).

    `text` and `body` are what was read even when the status is an error. `not_json` says why `body` is empty.
    """

    status: int | None
    body: Mapping[str, object]
    problem: str | None
    text: str = ""
    not_json: str | None = None

    @property
    def json_problem(self) -> str | None:
        """Why there is no JSON object to read figures from, if there is none."""
        return self.problem or self.not_json

    @property
    def serves(self) -> bool | None:
        """Whether the path is served to who asked. None where the answer leaves it open: silence, overload, an error of
        the server, or a redirect, which a client would follow."""
        return {200: True, 401: False, 403: False, 404: False}.get(self.status or 0)


class Fleet:
    """Asks one fleet. Use it as an async context manager; requests may run concurrently."""

    def __init__(self, target: Target, keys: Keys, timeout_s: float = 120.0) -> None:
        self.target = target
        self.keys = keys
        self.timeout_s = timeout_s
        self.model: str | None = None
        self.token_field = "prompt"
        self._trusts = target.tls.context() if _uses_tls(target) else _usual_trust()
        self._trust_env = target.proxy is None and not _loopback(target)
        self._client = self._connect(_AT_ONCE)
        self._visited: dict[str, httpx.AsyncClient] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._turns = asyncio.Semaphore(_TURNS)

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    def _connect(self, connections: int) -> httpx.AsyncClient:
        try:
            return httpx.AsyncClient(
                timeout=httpx.Timeout(self.timeout_s, connect=min(5.0, self.timeout_s)),
                follow_redirects=False,
                verify=self._trusts,
                proxy=self.target.proxy,
                trust_env=self._trust_env,
                limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
                headers={"accept-encoding": "identity"},  # a few bytes can unfold to more than the memory holds
            )
        except (httpx.InvalidURL, ValueError, ImportError):  # their words would quote the password of a proxy
            where = "`proxy`" if self.target.proxy is not None else "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or NO_PROXY"
            raise Usage(f"{where} names no proxy that can be used; write http://HOST:PORT") from None

    @contextlib.asynccontextmanager
    async def visit(self, base: str) -> AsyncIterator[float]:
        """One node's turn to be asked: yields the moment of `time.monotonic` by which it must have told everything.

        The time-out runs from the turn, not from when the node was queued. Inside, `get` of this node uses connections
        of its own: a pool for all looks through every connection at each request [1,000 nodes: 25 s of a core].
        """
        async with self._at_once, self._turn(), self._connect(4) as client:
            self._visited[base] = client
            try:
                yield time.monotonic() + min(_FIGURES_S, self.timeout_s)
            finally:
                self._visited.pop(base, None)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        await self._turns.acquire()
        loop, over = asyncio.get_running_loop(), False
        timer: asyncio.TimerHandle

        def end() -> None:
            nonlocal over
            if not over:
                over = True
                self._turns.release()

        def make_room() -> None:
            nonlocal timer
            if loop.time() - timer.when() > _TURN_S:
                # This comes late, so it is us who are slow, not the node: one more at a time would make it worse.
                timer = loop.call_later(_TURN_S, make_room)
            else:
                end()

        timer = loop.call_later(_TURN_S, make_room)
        try:
            yield
        finally:
            timer.cancel()
            end()

    async def get(self, base: str, path: str, tenant: str | None = None, until: float | None = None) -> Reply:
        """GET a document, again after a pause where nobody answered or the node is overloaded.

        `until`: the moment of `time.monotonic` by which the answer must be there, whatever else is being asked.
        """
        return await self._patiently("GET", base, path, None, tenant, until)

    async def _patiently(
        self, method: str, base: str, path: str, body: object, tenant: str | None, until: float | None = None
    ) -> Reply:
        until = time.monotonic() + min(_FIGURES_S, self.timeout_s) if until is None else until
        pause = _FIRST_PAUSE_S
        for left in range(self.target.retries, -1, -1):
            reply = await self._ask(method, base, path, body, tenant, until)
            again = reply.status in (None, 429, 502, 503, 504) and left
            wait = pause * random.uniform(0.5, 1.5)
            if not again or time.monotonic() + wait >= until:
                break
            await asyncio.sleep(wait)
            pause *= 2
        return reply

    async def tokenize(self, text: str, tenant: str = "a") -> tuple[int, ...] | None:
        """The token ids of `text` as the fleet counts them, or None when it does not tell."""
        body: dict[str, object] = {self.token_field: text}
        if self.model is not None:
            body["model"] = self.model
        reply = await self._patiently("POST", self._router(), "/tokenize", body, tenant)
        tokens = reply.body.get("tokens")
        if reply.json_problem is not None or not isinstance(tokens, list):
            return None
        if not all(isinstance(t, int) and not isinstance(t, bool) for t in tokens):
            return None
        return tuple(tokens)

    async def complete(
        self, request: Request, tenant: str, timeout_s: float | None = None, leave: Leave | None = None
    ) -> Answer:
        """Ask for one completion and read the answer to its end, within the deadline, or until we `leave`."""
        limit = min(self.timeout_s, timeout_s or self.timeout_s)
        leaves_s = leave.after_s if leave is not None else None
        started = time.monotonic()
        reading = _Reading(request.stream, leave)
        try:
            async with (
                asyncio.timeout(limit if leaves_s is None else min(limit, leaves_s)),
                self._client.stream(
                    "POST",
                    self._router() + "/v1/completions",
                    json=request.body(self.model),
                    headers=self._headers(tenant),
                ) as response,
            ):
                reading.status = response.status_code
                reading.retry_after_s = _seconds(response.headers.get("retry-after"))
                if _packed(response):
                    reading.problem = _packed(response)
                elif "text/event-stream" in response.headers.get("content-type", ""):
                    await reading.events(lines(response.aiter_bytes(), _LARGEST_BODY), started)
                else:
                    raw = await _read(response)
                    reading.whole(raw, time.monotonic() - started)
                    reading.problem = _too_large(raw) or reading.problem
        except TimeoutError:
            reading.hung_up = leaves_s is not None and leaves_s <= limit
            reading.timed_out = not reading.hung_up
            reading.problem = None if reading.hung_up else f"no complete answer within {limit:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reading.problem = _why(error)
            reading.timed_out = isinstance(error, httpx.ReadTimeout)
        return reading.answer(time.monotonic() - started)

    async def _ask(self, method: str, base: str, path: str, body: object, tenant: str | None, until: float) -> Reply:
        limit = max(0.0, until - time.monotonic())
        try:
            client = self._visited.get(base, self._client)
            async with asyncio.timeout(limit):
                request = client.stream(method, base.rstrip("/") + path, json=body, headers=self._headers(tenant))
                async with request as response:
                    packed = _packed(response)
                    raw = b"" if packed else await _read(response)
                    if packed or _too_large(raw):
                        # The beginning of a document may look whole: one of many lines, cut between two of them.
                        return Reply(response.status_code, {}, packed or _too_large(raw))
        except TimeoutError:
            return Reply(None, {}, f"did not answer within {self._patience(limit):g} s")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return Reply(None, {}, _why(error) + self._perhaps(base, error))
        return _reply(response, raw)

    def _perhaps(self, base: str, error: Exception) -> str:
        """TLS 1.3 refuses a client without a certificate after the handshake, and the connection just ends."""
        cut = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError)
        if not cut or not base.startswith("https:") or self.target.tls.certificate is not None:
            return ""
        return "; it may want a client certificate (--client-cert FILE, --client-key FILE)"

    def _patience(self, limit: float) -> float:
        return round(max(limit, min(_FIGURES_S, self.timeout_s)), 1)

    def _headers(self, tenant: str | None) -> dict[str, str]:
        key = self.keys.of(tenant) if tenant is not None else None
        return {"authorization": f"Bearer {key}"} if key else {}

    def _router(self) -> str:
        return (self.target.router or "").rstrip("/")


class _Reading:
    """Collects one answer while it is read, so that what had come is known when the rest does not."""

    def __init__(self, stream: bool, leave: Leave | None = None) -> None:
        self.leave = leave or Leave()
        self.hung_up = False
        self.status: int | None = None
        self.problem: str | None = None
        self.retry_after_s: float | None = None
        self.timed_out = False
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
            self.problem = f"the body is no completion ({shape(raw)})" if self.status == 200 else None
        self.pieces.append(piece)

    async def events(self, lines: AsyncIterator[bytes | None], started: float) -> None:
        ended = failed = False
        async for line in lines:
            if line is None:
                self.problem = "the stream does not end"
                return
            if not line.startswith(b"data:"):
                continue
            # An engine may cut a letter in two: the words around it still count.
            data = line[5:].strip().decode("utf-8", "replace").encode()
            if data == b"[DONE]":
                ended = True
                break
            value = decode_json(data)
            piece = read_piece(value)
            if not piece.shaped:
                self.problem = f"a stream event is no completion ({shape(data)})"
            failed = failed or piece.error is not None
            if not failed:
                # What follows an error is no answer: SGLang sends the usage of its placeholder prompt [seen on 0.5.23].
                self.begun = True
                if piece.text and self.ttft_s is None:
                    self.ttft_s = time.monotonic() - started
            self.pieces.append(piece)
            if not failed and self._leaves(piece):
                self.hung_up = True
                return
        if not ended and not any(p.error for p in self.pieces) and self.problem is None:
            self.problem = "the stream broke off"

    def _leaves(self, piece: Piece) -> bool:
        wanted = self.leave
        enough = wanted.events is not None and len(self.pieces) >= wanted.events
        return enough or (wanted.at_end and piece.finish_reason is not None)

    def answer(self, total_s: float) -> Answer:
        error = next((p.error for p in self.pieces if p.error), None)
        finish = _last(p.finish_reason for p in self.pieces)
        if self.hung_up:
            self.problem = "we hung up"
        if self.status == 200 and finish is None and error is None and self.problem is None:
            self.problem = "the answer has no finish reason: it may have been cut"
        return Answer(
            status=self.status,
            text="".join(p.text for p in self.pieces),
            finish_reason=finish,
            prompt_tokens=_last(p.prompt_tokens for p in self.pieces),
            completion_tokens=_last(p.completion_tokens for p in self.pieces),
            cached_tokens=_last(p.cached_tokens for p in self.pieces),
            total_tokens=_last(p.total_tokens for p in self.pieces),
            error=error,
            problem=self.problem,
            stream=self.stream,
            begun=self.begun,
            ttft_s=self.ttft_s,
            total_s=total_s,
            retry_after_s=self.retry_after_s,
            timed_out=self.timed_out,
            at=time.time() - total_s,
            hung_up=self.hung_up,
        )


def _reply(response: httpx.Response, raw: bytes) -> Reply:
    if len(raw) > _LARGEST_BODY:
        return Reply(response.status_code, {}, f"answered more than {_LARGEST_BODY >> 20} MiB")
    value, status = decode_json(raw), response.status_code
    text = raw.decode("utf-8", "replace")
    not_json = None if isinstance(value, dict) else f"answered something else than a JSON object ({raw[:40]!r})"
    return Reply(status, mapping(value), _refusal(response), text, not_json)


def _refusal(response: httpx.Response) -> str | None:
    status = response.status_code
    if status == 200:
        return None
    said = f"answered HTTP {status}"
    if status in (401, 403):
        return f"{said}: it wants a key, and got none or another (PAGEFENCE_KEY_ADMIN, else PAGEFENCE_KEY_A)"
    if 300 <= status < 400:
        return f"{said}: a redirect to {response.headers.get('location', 'nowhere')[:100]!r}, which is not followed"
    return said


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


def _too_large(raw: bytes) -> str | None:
    return f"answered more than {_LARGEST_BODY >> 20} MiB" if len(raw) > _LARGEST_BODY else None


def _packed(response: httpx.Response) -> str | None:
    """Why an answer is not read that was compressed unasked."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    return None if coding in ("", "identity") else f"answered in the coding {coding[:40]!r}, which was not asked for"


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value) if value is not None else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds < 3600 else None


def _why(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "did not answer in time"
    if isinstance(error, httpx.ProxyError):
        return f"could not be reached: the proxy said {str(error)[:100]!r}"
    said = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in said:
        why = said.partition("verify failed:")[2].partition("(_ssl")[0].strip()[:150]
        return f"has a certificate that is not trusted: {why} (--ca FILE names an authority of your own)"
    causes = tuple(_causes(error))
    if isinstance(error, httpx.ConnectError | OSError):
        return f"could not be reached ({next(filter(None, map(_obstacle, causes)), 'no connection')})"
    if any(isinstance(cause, ConnectionResetError) for cause in causes):
        return "closed the connection without an answer (a TLS port has to be named with https://)"
    return f"broke off ({type(error).__name__})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it stands for, from the outermost to the system's own. Of several addresses, the first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        group = seen.exceptions if isinstance(seen, BaseExceptionGroup) else ()
        seen = group[0] if group else seen.__cause__ or seen.__context__


def _obstacle(error: BaseException) -> str | None:
    """What kept a connection from being made, in words, or None where this error does not know."""
    if isinstance(error, socket.gaierror):
        return "the name is unknown"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {(error.reason or str(error)).replace('_', ' ').lower()[:60]}; a plain port is http://"
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else None


@cache
def _usual_trust() -> ssl.SSLContext:
    """The authorities that the system trusts: read once, which takes longer than a small fleet. Raises Usage."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:  # of which those of OpenSSL are
        why = error.strerror or error
        raise Usage(f"cannot read the authorities that SSL_CERT_FILE or SSL_CERT_DIR name: {why}") from None


def _uses_tls(target: Target) -> bool:
    return target.tls.ca is not None or target.tls.certificate is not None


def _loopback(target: Target) -> bool:
    return all(_here(urlsplit(url).hostname or "") for url in (target.router, *target.named) if url)


def _here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
