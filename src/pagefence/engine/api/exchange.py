"""One submitted request and its client: whole or streamed, and let go of in every way it can end (I3, I5, I10)."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass

import anyio
import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagefence.engine.api.answer import Delta, Done, Envelope, Opened, Step, steps
from pagefence.engine.api.meters import Meters
from pagefence.engine.api.ports import Gateway, TextStream
from pagefence.engine.api.prepare import Prepared
from pagefence.engine.api.problems import error_object, error_response, json_response
from pagefence.protocol import errors

_SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is needed to answer one request."""

    gateway: Gateway
    prepared: Prepared
    envelope: Envelope
    text: TextStream
    meters: Meters


class Answer(Response):
    """The response to a generation request. It submits only when it is called, so that nothing lies between the
    submission and the `finally` that lets go of it. `place` is left at its end."""

    def __init__(self, exchange: Exchange, place: AbstractContextManager[object]) -> None:
        super().__init__()
        self._exchange, self._place = exchange, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        job = self._exchange.prepared.job
        call = self._exchange.gateway.submit(job)
        release = once(call.cancel)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_hang_up, receive, release, group.cancel_scope)
                outcome = steps(call, self._exchange.text, self._exchange.prepared.stops, len(job.token_ids), release)
                async with aclosing(_metered(outcome, self._exchange.meters)) as metered:
                    write = _stream if self._exchange.prepared.stream else _whole
                    await write(self._exchange, metered, scope, receive, send)
                group.cancel_scope.cancel()
        finally:
            release()


def once(action: Callable[[], None]) -> Callable[[], None]:
    """`action`, at the first call only."""
    waiting = [action]

    def run() -> None:
        if waiting:
            waiting.pop()()

    return run


async def _hang_up(receive: Receive, release: Callable[[], None], scope: anyio.CancelScope) -> None:
    """The body is read, so the next word from the client's side is that it is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    release()
    scope.cancel()


async def _whole(exchange: Exchange, outcome: AsyncIterator[Step], scope: Scope, receive: Receive, send: Send) -> None:
    """Nothing before the outcome; an error is the whole response, also one after Begin."""
    texts: list[str] = []
    response = error_response(errors.internal("the answer had no outcome"))
    async for step in outcome:
        if isinstance(step, Delta):
            texts.append(step.text)
        elif isinstance(step, Done):
            response = json_response(exchange.envelope.whole("".join(texts), step))
        elif not isinstance(step, Opened):
            response = error_response(step)
    await response(scope, receive, send)


async def _stream(exchange: Exchange, outcome: AsyncIterator[Step], scope: Scope, receive: Receive, send: Send) -> None:
    """Headers at Begin and not before (I3); after an error event no [DONE], so that nobody takes it for an answer."""
    envelope = exchange.envelope
    opened = False

    async def event(content: object) -> None:
        data = b"data: " + msgspec.json.encode(content) + b"\n\n"
        await send({"type": "http.response.body", "body": data, "more_body": True})

    async for step in outcome:
        if isinstance(step, Opened):
            opened = True
            await send({"type": "http.response.start", "status": 200, "headers": _SSE_HEADERS})
            if (first := envelope.first()) is not None:
                await event(first)
        elif isinstance(step, Delta):
            await event(envelope.delta(step.text))
        elif isinstance(step, Done):
            await event(envelope.last(step.reason))
            if exchange.prepared.include_usage:
                await event(envelope.usage(step))
            await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})
        elif opened:
            await event(error_object(step))
        else:
            await error_response(step)(scope, receive, send)
            return
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _metered(outcome: AsyncGenerator[Step, None], meters: Meters) -> AsyncGenerator[Step, None]:
    started = time.monotonic()
    silent = True
    async with aclosing(outcome):
        async for step in outcome:
            if isinstance(step, Delta) and silent:
                silent = False
                meters.first_text(time.monotonic() - started)
            elif isinstance(step, Done):
                meters.tokens(step.prompt_tokens, step.completion_tokens)
            yield step
