"""From a call's events to the steps of an answer: text deltas with stop strings cut, then one outcome."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from anyio.lowlevel import checkpoint

from pagefence.engine.api.ports import Call, TextStream
from pagefence.engine.api.problems import log_failure
from pagefence.engine.api.stops import StopFilter
from pagefence.protocol import errors
from pagefence.protocol.effects import Begin, Emit, Refuse
from pagefence.protocol.messages import ErrorInfo, FinishReason, Logprob


@dataclass(frozen=True, slots=True)
class Opened:
    """The hand-off is committed; nothing went out before this (I3)."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A token with its log-probability. `offset`: where its text begins, in characters of the uncut answer."""

    id: int
    offset: int
    logprob: Logprob


@dataclass(frozen=True, slots=True)
class Delta:
    """Text for the client. `tokens` are those that came since the last delta, if their likelihood was asked for."""

    text: str
    tokens: tuple[Scored, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """The good outcome. `token_ids` is everything that was generated, a cut stop string's tokens included."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    token_ids: tuple[int, ...] = ()
    cached_tokens: int = 0


Step = Opened | Delta | Done | ErrorInfo


async def steps(
    call: Call,
    text: TextStream,
    stops: tuple[str, ...],
    prompt_tokens: int,
    release: Callable[[], None],
    scored: bool = False,
) -> AsyncGenerator[Step, None]:
    """Deltas in order, then one Done or one ErrorInfo, whatever happens behind (I5). A stop string releases at once.

    `scored`: every generated token is in the `tokens` of one delta; they wait for the text that they belong to.
    """
    try:
        async with aclosing(_steps(call, text, StopFilter(stops), prompt_tokens, release, scored)) as inner:
            async for step in inner:
                yield step
    except Exception as error:
        log_failure(error)
        yield errors.internal("the server failed to answer")


async def _steps(
    call: Call, text: TextStream, cut: StopFilter, prompt_tokens: int, release: Callable[[], None], scored: bool
) -> AsyncGenerator[Step, None]:
    tokens: list[int] = []
    waiting: list[Scored] = []
    begun, cached, read = False, 0, 0
    async for event in call.events():
        # A long queue of events, with a client that takes nothing any more, would otherwise never let others run.
        await checkpoint()
        if isinstance(event, Refuse):
            yield event.error
            return
        if isinstance(event, Begin):
            begun, cached = True, event.cached_tokens
            yield Opened()
        elif not begun:
            break  # text before the commit is text that nobody has checked (I4)
        elif isinstance(event, Emit):
            likely: Iterable[Logprob | None] = event.logprobs if scored else itertools.repeat(None)
            for token, logprob in zip(event.token_ids, likely, strict=scored):
                tokens.append(token)
                if logprob is not None:
                    waiting.append(Scored(token, read, logprob))
                became = text.push([token])
                read += len(became)
                out = cut.push(became)
                if cut.stopped:
                    release()
                if out or (cut.stopped and waiting):
                    yield Delta(out, tuple(waiting))
                    waiting.clear()
                if cut.stopped:
                    yield Done("stop", prompt_tokens, len(tokens), tuple(tokens), cached)
                    return
        else:
            out = cut.push(text.finish())
            reason: FinishReason = "stop" if cut.stopped else event.reason
            out += cut.finish()
            if out or waiting:
                yield Delta(out, tuple(waiting))
            yield Done(reason, event.prompt_tokens, event.completion_tokens, tuple(tokens), cached)
            return
    yield errors.internal("the answer had no proper beginning or no outcome")
