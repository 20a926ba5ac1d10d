"""What a client may ask for, field by field. Anything else is refused by name, never dropped in silence."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from pagefence.engine.api.problems import bad_value, missing, unknown_parameter, unsupported_parameter

MAX_STOPS = 4
MAX_STOP_CHARACTERS = 1000

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(gt=0, le=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Bias = Annotated[float, Meta(ge=-100, le=100)]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What both endpoints take. null means the default, as it does for OpenAI."""

    model: str
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    logit_bias: dict[str, Bias] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None  # as vLLM names it; for answers that do not stream
    # Accepted and without effect here: names that a client gives itself or its requests.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None


class CompletionRequest(Common, frozen=True, kw_only=True):
    prompt: str | list[int | str]


class Part(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None


class Message(msgspec.Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]


class ChatRequest(Common, frozen=True, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1)]
    max_completion_tokens: Count | None = None


class TokenizeRequest(msgspec.Struct, frozen=True):
    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1)] | None = None


# Known to OpenAI, vLLM or SGLang and not supported here; the listed values, and null, ask for nothing and are accepted.
_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "n": (1,),
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
_UNSUPPORTED_COMPLETION: dict[str, tuple[object, ...]] = _UNSUPPORTED | {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (),
}
_UNSUPPORTED_CHAT: dict[str, tuple[object, ...]] = _UNSUPPORTED | {
    "audio": (),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logprobs": (False,),
    "modalities": (["text"],),
    "parallel_tool_calls": (False, True),
    "prediction": (),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
# The fields of a message or a part that clients copy back from earlier answers.
_UNSUPPORTED_MESSAGE: dict[str, tuple[object, ...]] = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "name": (),
    "refusal": (),
    "tool_call_id": (),
    "tool_calls": ([],),
}
_PATH = re.compile(r" - at `\$\.?([^`]*)`")

T = TypeVar("T", bound=msgspec.Struct)


def completion_request(raw: dict[str, object]) -> CompletionRequest:
    request = _convert(_supported(raw, CompletionRequest, _UNSUPPORTED_COMPLETION), CompletionRequest)
    _check_common(request)
    return request


def chat_request(raw: dict[str, object]) -> ChatRequest:
    request = _convert(_plain_messages(_supported(raw, ChatRequest, _UNSUPPORTED_CHAT)), ChatRequest)
    _check_common(request)
    limits = {request.max_tokens, request.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise bad_value("'max_tokens' and 'max_completion_tokens' differ; send one of them.", "max_tokens")
    return request


def tokenize_request(raw: dict[str, object]) -> TokenizeRequest:
    request = _convert(_plain_messages(_supported(raw, TokenizeRequest, {})), TokenizeRequest)
    if (request.prompt is None) == (request.messages is None):
        raise bad_value("Send either 'prompt' or 'messages'.", "prompt")
    return request


def stops_of(request: Common) -> tuple[str, ...]:
    if request.stop is None:
        return ()
    return (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)


def plain_messages(messages: list[Message]) -> list[dict[str, str]]:
    """For the chat template: texts as they came, `developer` under its older name."""
    return [
        {"role": "system" if message.role == "developer" else message.role, "content": _text(message, index)}
        for index, message in enumerate(messages)
    ]


def _text(message: Message, index: int) -> str:
    if isinstance(message.content, str):
        return message.content
    texts: list[str] = []
    for number, part in enumerate(message.content):
        where = f"messages[{index}].content[{number}]"
        if part.type != "text":
            raise unsupported_parameter(f"{where}.type", "Only text parts are.")
        if part.text is None:
            raise missing(f"{where}.text")
        texts.append(part.text)
    return "".join(texts)


def _check_common(request: Common) -> None:
    stops = stops_of(request)
    if len(stops) > MAX_STOPS:
        raise bad_value(f"At most {MAX_STOPS} stop strings.", "stop")
    if any(not 1 <= len(stop) <= MAX_STOP_CHARACTERS for stop in stops):
        raise bad_value(f"A stop string has 1 to {MAX_STOP_CHARACTERS} characters.", "stop")
    if request.stream_options is None:
        return
    if not request.stream:
        raise bad_value("'stream_options' is only allowed when 'stream' is true.", "stream_options")
    if request.stream_options.include_obfuscation:
        raise unsupported_parameter("stream_options.include_obfuscation")


def _supported(
    raw: dict[str, object], struct: type[msgspec.Struct], neutral: dict[str, tuple[object, ...]], where: str = ""
) -> dict[str, object]:
    """`raw` without neutral values; whatever else is not a field of `struct` is refused by its name."""
    for name, value in raw.items():
        if name in struct.__struct_fields__:
            continue
        if name not in neutral:
            raise unknown_parameter(where + name)
        if value is not None and not any(_same(value, accepted) for accepted in neutral[name]):
            raise unsupported_parameter(where + name)
    known = {name: value for name, value in raw.items() if name in struct.__struct_fields__}
    options = known.get("stream_options")
    if isinstance(options, dict):
        _supported(options, StreamOptions, {}, "stream_options.")
    return known


def _plain_messages(raw: dict[str, object]) -> dict[str, object]:
    """The same care for every message and part."""
    messages = raw.get("messages")
    if not isinstance(messages, list):
        return raw
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        _supported(message, Message, _UNSUPPORTED_MESSAGE, f"messages[{index}].")
        content = message.get("content")
        for number, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict) and part.get("type") == "text":
                _supported(part, Part, {}, f"messages[{index}].content[{number}].")
    return raw


def _same(value: object, accepted: object) -> bool:
    """Equal, and not true for 1."""
    return value == accepted and isinstance(value, bool) == isinstance(accepted, bool)


def _convert(raw: dict[str, object], struct: type[T]) -> T:
    for field in msgspec.structs.fields(struct):
        if field.required and raw.get(field.name) is None:
            raise missing(field.name)
    try:
        return msgspec.convert(raw, struct)
    except msgspec.ValidationError as error:
        text = str(error)
        path = _PATH.search(text)
        raise bad_value(f"{_PATH.sub('', text)}.", path[1] if path else None) from None
