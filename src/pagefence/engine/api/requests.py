"""From a JSON object to a request. What is not one of its `parameters` is refused by name, never dropped in silence."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from pagefence.engine.api.parameters import (
    NEUTRAL,
    ChatRequest,
    Common,
    CompletionRequest,
    Message,
    Part,
    StreamOptions,
    TokenizeRequest,
)
from pagefence.engine.api.problems import bad_value, missing, unknown_parameter, unsupported_parameter

_PATH = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`")

T = TypeVar("T", bound=msgspec.Struct)


def completion_request(raw: dict[str, object]) -> CompletionRequest:
    request = _convert(_supported(raw, CompletionRequest), CompletionRequest)
    _check_common(request)
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise unsupported_parameter("best_of", "It can only be 'n': every choice is returned.")
    if request.echo and request.logprobs is not None:
        raise unsupported_parameter(
            "echo", "With 'logprobs' it would need those of the prompt, which are not computed."
        )
    return request


def chat_request(raw: dict[str, object]) -> ChatRequest:
    request = _convert(_plain_messages(_supported(raw, ChatRequest)), ChatRequest)
    _check_common(request)
    if request.top_logprobs and not request.logprobs:
        raise bad_value("'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs")
    limits = {request.max_tokens, request.max_completion_tokens} - {None}
    if len(limits) > 1:
        raise bad_value("'max_tokens' and 'max_completion_tokens' differ; send one of them.", "max_tokens")
    return request


def tokenize_request(raw: dict[str, object]) -> TokenizeRequest:
    request = _convert(_plain_messages(_supported(raw, TokenizeRequest)), TokenizeRequest)
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
        {"role": "system" if message.role == "developer" else message.role, "content": _text(message.content)}
        for message in messages
    ]


def _text(content: str | list[Part]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _check_common(request: Common) -> None:
    if request.stream_options is not None and not request.stream:
        raise bad_value("'stream_options' is only allowed when 'stream' is true.", "stream_options")


def _supported(raw: dict[str, object], struct: type[msgspec.Struct], where: str = "") -> dict[str, object]:
    """`raw` without neutral values; whatever else is not a field of `struct` is refused by its name."""
    neutral = NEUTRAL.get(struct, {})
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
        _supported(options, StreamOptions, "stream_options.")
    return known


def _plain_messages(raw: dict[str, object]) -> dict[str, object]:
    """The same care for every message and part."""
    messages = raw.get("messages")
    if not isinstance(messages, list):
        return raw
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        _supported(message, Message, f"messages[{index}].")
        content = message.get("content")
        for number, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict):
                _plain_part(part, f"messages[{index}].content[{number}].")
    return raw


def _plain_part(part: dict[str, object], where: str) -> None:
    kind = part.get("type")
    if isinstance(kind, str) and kind != "text":
        raise unsupported_parameter(where + "type", "Only text parts are.")
    _supported(part, Part, where)
    if kind == "text" and part.get("text") is None:
        raise missing(where + "text")


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
