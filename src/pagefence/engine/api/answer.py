"""From a call's events to an answer: text deltas with stop strings cut, and the JSON shapes around them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from anyio.lowlevel import checkpoint

from pagefence.engine.api.ports import Call, TextStream
from pagefence.engine.api.problems import log_failure
from pagefence.engine.api.stops import StopFilter
from pagefence.protocol import errors
from pagefence.protocol.effects import Begin, Emit, Refuse
from pagefence.protocol.messages import ErrorInfo, FinishReason

Kind = Literal["completion", "chat"]


@dataclass(frozen=True, slots=True)
class Opened:
    """The hand-off is committed; nothing went out before this (I3)."""


@dataclass(frozen=True, slots=True)
class Delta:
    """Text for the client."""

    text: str


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
    call: Call, text: TextStream, stops: tuple[str, ...], prompt_tokens: int, release: Callable[[], None]
) -> AsyncGenerator[Step, None]:
    """Deltas in order, then one Done or one ErrorInfo, whatever happens behind (I5). A stop string releases at once."""
    try:
        async with aclosing(_steps(call, text, StopFilter(stops), prompt_tokens, release)) as inner:
            async for step in inner:
                yield step
    except Exception as error:
        log_failure(error)
        yield errors.internal("the server failed to answer")


async def _steps(
    call: Call, text: TextStream, cut: StopFilter, prompt_tokens: int, release: Callable[[], None]
) -> AsyncGenerator[Step, None]:
    tokens: list[int] = []
    begun, cached = False, 0
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
            for token in event.token_ids:
                tokens.append(token)
                out = cut.push(text.push([token]))
                if cut.stopped:
                    release()
                if out:
                    yield Delta(out)
                if cut.stopped:
                    yield Done("stop", prompt_tokens, len(tokens), tuple(tokens), cached)
                    return
        else:
            out = cut.push(text.finish())
            reason: FinishReason = "stop" if cut.stopped else event.reason
            out += cut.finish()
            if out:
                yield Delta(out)
            yield Done(reason, event.prompt_tokens, event.completion_tokens, tuple(tokens), cached)
            return
    yield errors.internal("the answer had no proper beginning or no outcome")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every chunk of one answer repeats."""

    kind: Kind
    id: str
    created: int
    model: str
    token_ids: bool = False

    def whole(self, text: str, done: Done) -> dict[str, object]:
        """The answer of a request that did not stream."""
        if self.kind == "chat":
            body: dict[str, object] = {"message": {"role": "assistant", "content": text, "refusal": None}}
        else:
            body = {"text": text}
        choice: dict[str, object] = {"index": 0, **body, "logprobs": None, "finish_reason": done.reason}
        if self.token_ids:
            choice["token_ids"] = done.token_ids
        name = "chat.completion" if self.kind == "chat" else "text_completion"
        return self._head(name) | {"choices": [choice], "usage": usage(done)}

    def first(self) -> dict[str, object] | None:
        """Chat streams open with the role."""
        return self._chunk({"role": "assistant", "content": ""}) if self.kind == "chat" else None

    def delta(self, text: str) -> dict[str, object]:
        return self._chunk({"content": text} if self.kind == "chat" else text)

    def last(self, reason: FinishReason) -> dict[str, object]:
        return self._chunk({} if self.kind == "chat" else "", reason)

    def usage(self, done: Done) -> dict[str, object]:
        return self._head(self._chunk_name) | {"choices": [], "usage": usage(done)}

    def _chunk(self, content: object, reason: FinishReason | None = None) -> dict[str, object]:
        field = "delta" if self.kind == "chat" else "text"
        choice = {"index": 0, field: content, "logprobs": None, "finish_reason": reason}
        return self._head(self._chunk_name) | {"choices": [choice]}

    @property
    def _chunk_name(self) -> str:
        return "chat.completion.chunk" if self.kind == "chat" else "text_completion"

    def _head(self, name: str) -> dict[str, object]:
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}


def response_id(kind: Kind) -> str:
    """Random, and nothing to do with the room (I9)."""
    return f"{'chatcmpl' if kind == 'chat' else 'cmpl'}-{secrets.token_hex(16)}"


def usage(done: Done) -> dict[str, object]:
    """`cached_tokens`: those of the prompt that came from this tenant's own earlier prompts (I7)."""
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
    }
