"""The bodies that the API answers with, as types: what is sent, and what the description says is sent."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from pagefence.protocol.messages import FinishReason

# --- errors -------------------------------------------------------------------------------------------------------


class ErrorDetail(msgspec.Struct, frozen=True):
    """OpenAI's names; `rule` and `guard` only when a guard contained a fault."""

    message: str
    type: str
    param: str | None
    code: str
    rule: str | UnsetType = UNSET
    guard: str | UnsetType = UNSET


class ErrorAnswer(msgspec.Struct, frozen=True):
    error: ErrorDetail


# --- what both kinds of answer have -------------------------------------------------------------------------------


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """`cached_tokens`: those of the prompt that came from this tenant's own earlier prompts (I7)."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """The prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


# --- completions --------------------------------------------------------------------------------------------------


class TextLogprobs(msgspec.Struct, frozen=True):
    """OpenAI's older shape: parallel lists. `text_offset` counts characters from the beginning of the answer."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(msgspec.Struct, frozen=True):
    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: FinishReason | None = None
    token_ids: tuple[int, ...] | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True):
    """A whole answer, and every chunk of a streamed one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | UnsetType = UNSET


# --- chat ---------------------------------------------------------------------------------------------------------


class LikelyToken(msgspec.Struct, frozen=True):
    """`bytes` are the token's own; in `token`, those that are no text by themselves are written as numbers."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(LikelyToken, frozen=True):
    top_logprobs: list[LikelyToken]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[ChosenToken]
    refusal: None = None


class AssistantMessage(msgspec.Struct, frozen=True):
    role: Literal["assistant"]
    content: str
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    token_ids: tuple[int, ...] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ChatDelta(msgspec.Struct, frozen=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class ChatCompletionChunk(msgspec.Struct, frozen=True):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType = UNSET


# --- everything else ----------------------------------------------------------------------------------------------


class Tokenized(msgspec.Struct, frozen=True):
    tokens: list[int]
    count: int
    max_model_len: int


class ModelCard(msgspec.Struct, frozen=True):
    """`max_model_len` is the real limit (I8): the longest prompt that the living workers hold, and one token more."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["pagefence"]
    max_model_len: int


class ModelList(msgspec.Struct, frozen=True):
    object: Literal["list"]
    data: list[ModelCard]


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"]
    ready: bool


class Readiness(msgspec.Struct, frozen=True):
    ready: bool
    reasons: tuple[str, ...]
