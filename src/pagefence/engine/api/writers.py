"""From steps to OpenAI's bodies, whole or in chunks: a writer for each of the two endpoints."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from pagefence.engine.api.answer import Delta, Done, Scored
from pagefence.engine.api.shapes import (
    AssistantMessage,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprobs,
    ChosenToken,
    Completion,
    LikelyToken,
    TextChoice,
    TextLogprobs,
    Usage,
)
from pagefence.protocol.messages import FinishReason

Spell = Callable[[int], bytes]
"""The bytes of a token, a control token's name included."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished choice: its deltas, and what they came to."""

    deltas: Sequence[Delta]
    done: Done

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def tokens(self) -> tuple[Scored, ...]:
        return tuple(token for delta in self.deltas for token in delta.tokens)


@dataclass(frozen=True, slots=True)
class Form:
    """How one answer is to be written. `echo` is the prompt's text when the client wants it before the answer."""

    model: str
    spell: Spell
    scored: bool = False
    token_ids: bool = False
    echo: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    def ids(self, done: Done) -> tuple[int, ...] | UnsetType:
        return done.token_ids if self.token_ids else UNSET


class Writer(Protocol):
    """Bodies of one answer. All of them repeat its id, which is random and nothing to do with the room (I9)."""

    def whole(self, choices: Sequence[Choice], usage: Usage) -> msgspec.Struct:
        """The answer of a request that did not stream."""
        ...

    def first(self, index: int) -> msgspec.Struct | None:
        """What a stream of this choice opens with, before anything was generated."""
        ...

    def delta(self, index: int, delta: Delta) -> msgspec.Struct: ...

    def last(self, index: int, reason: FinishReason) -> msgspec.Struct: ...

    def usage(self, usage: Usage) -> msgspec.Struct: ...


class TextWriter:
    """/v1/completions. Offsets of tokens count from the beginning of the answer: nothing is echoed before them."""

    def __init__(self, form: Form) -> None:
        self._form, self._id = form, f"cmpl-{secrets.token_hex(16)}"

    def whole(self, choices: Sequence[Choice], usage: Usage) -> Completion:
        form = self._form
        return self._body(
            [
                TextChoice(i, form.echo + c.text, self._scores(c.tokens), c.done.reason, form.ids(c.done))
                for i, c in enumerate(choices)
            ],
            usage,
        )

    def first(self, index: int) -> Completion | None:
        return self._body([TextChoice(index, self._form.echo)]) if self._form.echo else None

    def delta(self, index: int, delta: Delta) -> Completion:
        return self._body([TextChoice(index, delta.text, self._scores(delta.tokens))])

    def last(self, index: int, reason: FinishReason) -> Completion:
        return self._body([TextChoice(index, "", None, reason)])

    def usage(self, usage: Usage) -> Completion:
        return self._body([], usage)

    def _body(self, choices: list[TextChoice], usage: Usage | UnsetType = UNSET) -> Completion:
        return Completion(self._id, "text_completion", self._form.created, self._form.model, choices, usage)

    def _scores(self, tokens: Sequence[Scored]) -> TextLogprobs | None:
        if not self._form.scored:
            return None
        return TextLogprobs(
            [self._name(token.id) for token in tokens],
            [token.logprob.value for token in tokens],
            [self._likeliest(token) for token in tokens],
            [token.offset for token in tokens],
        )

    def _likeliest(self, token: Scored) -> dict[str, float]:
        """The token itself is among them, as for OpenAI. Of two that read the same the likelier stays."""
        best: dict[str, float] = {}
        pairs = (*token.logprob.top, (token.id, token.logprob.value))
        for i, value in sorted(pairs, key=lambda pair: pair[1], reverse=True):
            best.setdefault(self._name(i), value)
        return best

    def _name(self, token: int) -> str:
        return readable(self._form.spell(token))


class ChatWriter:
    """/v1/chat/completions."""

    def __init__(self, form: Form) -> None:
        self._form, self._id = form, f"chatcmpl-{secrets.token_hex(16)}"

    def whole(self, choices: Sequence[Choice], usage: Usage) -> ChatCompletion:
        form = self._form
        written = [
            ChatChoice(
                i, AssistantMessage("assistant", c.text), self._scores(c.tokens), c.done.reason, form.ids(c.done)
            )
            for i, c in enumerate(choices)
        ]
        return ChatCompletion(self._id, "chat.completion", form.created, form.model, written, usage)

    def first(self, index: int) -> ChatCompletionChunk | None:
        """Chat streams open with the role."""
        return self._chunk([ChatChunkChoice(index, ChatDelta("assistant", ""))])

    def delta(self, index: int, delta: Delta) -> ChatCompletionChunk:
        return self._chunk([ChatChunkChoice(index, ChatDelta(content=delta.text), self._scores(delta.tokens))])

    def last(self, index: int, reason: FinishReason) -> ChatCompletionChunk:
        return self._chunk([ChatChunkChoice(index, ChatDelta(), None, reason)])

    def usage(self, usage: Usage) -> ChatCompletionChunk:
        return self._chunk([], usage)

    def _chunk(self, choices: list[ChatChunkChoice], usage: Usage | UnsetType = UNSET) -> ChatCompletionChunk:
        form = self._form
        return ChatCompletionChunk(self._id, "chat.completion.chunk", form.created, form.model, choices, usage)

    def _scores(self, tokens: Sequence[Scored]) -> ChatLogprobs | None:
        if not self._form.scored:
            return None
        return ChatLogprobs([
            ChosenToken(*self._likely(token.id, token.logprob.value), self._likeliest(token)) for token in tokens
        ])  # fmt: skip

    def _likeliest(self, token: Scored) -> list[LikelyToken]:
        return [LikelyToken(*self._likely(i, value)) for i, value in token.logprob.top]

    def _likely(self, token: int, logprob: float) -> tuple[str, float, list[int]]:
        spelled = self._form.spell(token)
        return readable(spelled), logprob, list(spelled)


def readable(spelled: bytes) -> str:
    r"""A token as text. One that is only part of a character is written `bytes:\xe2\x82`, as OpenAI writes it."""
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)
