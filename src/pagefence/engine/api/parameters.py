"""What a client may ask for, field by field: read by the parser (`requests`) and by the `description`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Choices = Annotated[int, Meta(ge=1, le=8)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(gt=0, le=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Stop = Annotated[str, Meta(min_length=1, max_length=1000)]
# OpenAI's keys are ids written as strings. Digits only and few of them, or int() would take spaces, underscores, other
# scripts' digits, and any length; Python's $ alone would also let a line break pass.
TokenId = Annotated[str, Meta(pattern=r"^[0-9]{1,9}$(?!\n)")]
Bias = Annotated[float, Meta(ge=-100, le=100)]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What both endpoints take. null means the default, as it does for OpenAI."""

    model: str
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    n: Choices | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=4)] | None = None
    logit_bias: dict[TokenId, Bias] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None  # as vLLM names it; for answers that do not stream
    # Accepted and without effect here: names that a client gives itself or its requests.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None


class CompletionRequest(Common, frozen=True, kw_only=True):
    prompt: Annotated[str, Meta(min_length=1)] | Annotated[list[int | str], Meta(min_length=1)]
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    best_of: Choices | None = None


class Part(msgspec.Struct, frozen=True):
    type: Literal["text"]
    text: str


class Message(msgspec.Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]


class ChatRequest(Common, frozen=True, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


class TokenizeRequest(msgspec.Struct, frozen=True):
    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None


_Neutral = Mapping[str, tuple[object, ...]]
_COMMON: _Neutral = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "service_tier": ("auto", "default"),
    "top_k": (0, -1),
    "min_p": (0,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "priority": (0,),
}
_CHAT: _Neutral = {
    "audio": (),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "parallel_tool_calls": (False, True),
    "prediction": (),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}
# The fields of a message or a part that clients copy back from earlier answers.
_MESSAGE: _Neutral = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "name": (),
    "refusal": (),
    "tool_call_id": (),
    "tool_calls": ([],),
}

# Known to OpenAI, vLLM or SGLang and not supported here; the listed values, and null, ask for nothing and are accepted.
NEUTRAL: Mapping[type[msgspec.Struct], _Neutral] = {
    CompletionRequest: {**_COMMON, "suffix": ("",)},
    ChatRequest: {**_COMMON, **_CHAT},
    Message: _MESSAGE,
    StreamOptions: {"include_obfuscation": (False,)},
}
