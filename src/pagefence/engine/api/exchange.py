"""One request and its client: whole or streamed, and let go of in every way it can end (I3, I5, I10)."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass

import anyio
import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagefence.engine.api.answer import Delta, Done, Opened, Step, steps
from pagefence.engine.api.choices import Piece, pump, together, usage
from pagefence.engine.api.meters import Meters
from pagefence.engine.api.ports import Gateway, Job, TextStream
from pagefence.engine.api.prepare import Prepared
from pagefence.engine.api.problems import error_answer, error_response, json_response
from pagefence.engine.api.writers import Choice, Writer
from pagefence.protocol import errors
from pagefence.protocol.messages import ErrorInfo

_SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
Release = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is needed to answer one request. `new_text` makes the incremental decoder of one choice."""

    gateway: Gateway
    prepared: Prepared
    writer: Writer
    new_text: Callable[[], TextStream]
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
        prepared = self._exchange.prepared
        sender, receiver = anyio.create_memory_object_stream[Piece]()
        releases: list[Release] = []
        try:
            # Submitted one right after the other, and read side by side.
            choices = [self._submit(job, releases) for job in prepared.jobs]
            with receiver:
                async with anyio.create_task_group() as group:
                    group.start_soon(_hang_up, receive, releases, group.cancel_scope)
                    for index, choice in enumerate(choices):
                        group.start_soon(pump, index, choice, sender.clone())
                    sender.close()
                    outcome = together(receiver, len(choices))
                    async with aclosing(_metered(outcome, self._exchange.meters)) as metered:
                        write = _stream if prepared.stream else _whole
                        await write(self._exchange, metered, scope, receive, send)
                    group.cancel_scope.cancel()
        finally:
            sender.close()
            _let_go(releases)

    def _submit(self, job: Job, releases: list[Release]) -> AsyncGenerator[Step, None]:
        call = self._exchange.gateway.submit(job)
        releases.append(release := once(call.cancel))
        prepared, text = self._exchange.prepared, self._exchange.new_text()
        return steps(call, text, prepared.stops, len(job.token_ids), release, prepared.scored)


def once(action: Callable[[], None]) -> Release:
    """`action`, at the first call only."""
    waiting = [action]

    def run() -> None:
        if waiting:
            waiting.pop()()

    return run


def _let_go(releases: list[Release]) -> None:
    for release in releases:
        release()


async def _hang_up(receive: Receive, releases: list[Release], scope: anyio.CancelScope) -> None:
    """The body is read, so the next word from the client's side is that it is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    _let_go(releases)
    scope.cancel()


async def _whole(exchange: Exchange, outcome: AsyncIterator[Piece], scope: Scope, receive: Receive, send: Send) -> None:
    """Nothing before the last outcome; an error is the whole response, also one after Begin."""
    deltas: list[list[Delta]] = [[] for _ in exchange.prepared.jobs]
    done: dict[int, Done] = {}
    response = error_response(errors.internal("the answer had no outcome"))
    async for index, step in outcome:
        if isinstance(step, Delta):
            deltas[index].append(step)
        elif isinstance(step, Done):
            done[index] = step
        elif isinstance(step, ErrorInfo):
            response = error_response(step)
    if len(done) == len(deltas):
        choices = [Choice(deltas[index], done[index]) for index in sorted(done)]
        response = json_response(exchange.writer.whole(choices, usage([choice.done for choice in choices])))
    await response(scope, receive, send)


async def _stream(
    exchange: Exchange, outcome: AsyncIterator[Piece], scope: Scope, receive: Receive, send: Send
) -> None:
    """Headers at Begin and not before (I3); after an error event no [DONE], so that nobody takes it for an answer."""
    prepared, writer = exchange.prepared, exchange.writer
    opened = False
    done: list[Done] = []

    async def event(content: msgspec.Struct) -> None:
        data = b"data: " + msgspec.json.encode(content) + b"\n\n"
        await send({"type": "http.response.body", "body": data, "more_body": True})

    async for index, step in outcome:
        if isinstance(step, Opened):
            opened = True
            await send({"type": "http.response.start", "status": 200, "headers": _SSE_HEADERS})
            for choice in range(len(prepared.jobs)):
                if (first := writer.first(choice)) is not None:
                    await event(first)
        elif isinstance(step, Delta):
            await event(writer.delta(index, step))
        elif isinstance(step, Done):
            await event(writer.last(index, step.reason))
            done.append(step)
        elif opened:
            await event(error_answer(step))
        else:
            await error_response(step)(scope, receive, send)
            return
    if len(done) == len(prepared.jobs):
        if prepared.include_usage:
            await event(writer.usage(usage(done)))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _metered(outcome: AsyncGenerator[Piece, None], meters: Meters) -> AsyncGenerator[Piece, None]:
    started = time.monotonic()
    silent = True
    async with aclosing(outcome):
        async for index, step in outcome:
            if isinstance(step, Delta) and silent:
                silent = False
                meters.first_text(time.monotonic() - started)
            elif isinstance(step, Done):
                meters.tokens(0 if index else step.prompt_tokens, step.completion_tokens)
            yield index, step
