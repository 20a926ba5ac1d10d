"""The choices of one request: each its own call, room and outcome (I5), and to the client one answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing

from anyio.abc import ObjectSendStream

from pagefence.engine.api.answer import Done, Opened, Step
from pagefence.engine.api.shapes import PromptTokensDetails, Usage
from pagefence.protocol.messages import ErrorInfo

Piece = tuple[int, Step]
"""A step, and the index of the choice that it belongs to."""


async def pump(index: int, steps: AsyncGenerator[Step, None], into: ObjectSendStream[Piece]) -> None:
    """Every step of one choice, in order, as fast as they are taken."""
    async with into, aclosing(steps):
        async for step in steps:
            await into.send((index, step))


async def together(pieces: AsyncIterable[Piece], count: int) -> AsyncGenerator[Piece, None]:
    """One Opened when all `count` choices are committed, and nothing before it; one error, and nothing after it.

    So a choice that is refused refuses the whole request, as long as any choice could still be refused (I3).
    """
    held: list[Piece] = []
    uncommitted = count
    async for piece in pieces:
        step = piece[1]
        if isinstance(step, ErrorInfo):
            yield piece
            return
        if isinstance(step, Opened):
            uncommitted -= 1
            if not uncommitted:
                for earlier in (piece, *held):
                    yield earlier
                held.clear()
        elif uncommitted:
            held.append(piece)
        else:
            yield piece


def usage(done: list[Done]) -> Usage:
    """Of all choices: the prompt once, what was cached for each of them, and the sum of what was generated."""
    prompt, completion = done[0].prompt_tokens, sum(choice.completion_tokens for choice in done)
    cached = min(choice.cached_tokens for choice in done)
    return Usage(prompt, completion, prompt + completion, PromptTokensDetails(cached))
