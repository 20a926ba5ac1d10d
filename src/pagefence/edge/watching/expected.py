"""What is known of an answer before it comes: from the request, and from what admission counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from pagefence.edge.call import Call, Operation
from pagefence.edge.demand import Admitted
from pagefence.edge.watching.chunks import strings
from pagefence.edge.watching.grams import Words

_WRITTEN = frozenset({"prompt", "suffix", "instructions", "tools", "functions", "documents"})
_NEW_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@dataclass(frozen=True, slots=True)
class Expected:
    """
    choices           how many the answer has, each with an index below it; None: not known, or it has none
    prompt_tokens     exactly, or None
    at_least, at_most bounds of the prompt's tokens where they were not counted; None: no upper bound
    asked_new_tokens  that each choice may have, if the request said so
    own               hashes of the prompt's own texts, which the answer may hold
    own_sentinels     live sentinels that stand in the prompt, or are the tenant's
    cached_at_most    tokens that this tenant can have put into a prefix cache; None: not known
    history_complete  whether that is sure: nothing of the tenant's was forgotten or sent elsewhere
    """

    request_id: str
    tenant_tag: str
    operation: Operation
    stream: bool
    choices: int | None = 1
    prompt_tokens: int | None = None
    at_least: int = 0
    at_most: int | None = None
    asked_new_tokens: int | None = None
    own: Words = field(default_factory=lambda: np.empty(0, np.uint64))
    own_sentinels: frozenset[int] = frozenset()
    cached_at_most: int | None = None
    history_complete: bool = False

    @property
    def least_tokens(self) -> int:
        return self.at_least if self.prompt_tokens is None else self.prompt_tokens

    @property
    def most_tokens(self) -> int | None:
        return self.at_most if self.prompt_tokens is None else self.prompt_tokens


def of_admitted(admitted: Admitted, at_least: int = 0, **known: Any) -> Expected:
    """What admission and the request say; `known`: the rest, which the book knows."""
    call = admitted.call
    return Expected(
        request_id=call.request_id,
        tenant_tag=call.tenant.tag,
        operation=call.operation,
        stream=call.stream,
        choices=choices(call),
        prompt_tokens=admitted.prompt_tokens,
        at_least=at_least,
        at_most=admitted.at_most,
        asked_new_tokens=asked_new_tokens(call.body),
        **known,
    )


def choices(call: Call) -> int | None:
    if call.operation not in (Operation.CHAT, Operation.COMPLETION):
        return None
    number = call.body.get("n")
    prompt = call.body.get("prompt") if call.operation is Operation.COMPLETION else None
    prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
    return prompts * (number if isinstance(number, int) and number > 0 else 1)


def asked_new_tokens(body: Mapping[str, Any]) -> int | None:
    for name in _NEW_TOKENS:
        if type(value := body.get(name)) is int:
            return value
    return None


def prompt_texts(call: Call) -> tuple[list[bytes], list[bytes]]:
    """What the tenant wrote, and what the assistant had said before. Token ids are no text."""
    theirs, said = list[str](), list[str]()
    body = call.body
    for name in _WRITTEN & body.keys():
        theirs += _all(body[name])
    for message in _messages(body):
        into, content = said if message.get("role") == "assistant" else theirs, message.get("content")
        if isinstance(content, str) and len(message) == 2:  # a role and a text: nearly every message
            into.append(content)
        else:
            into.extend(_all(message))
    if isinstance(body.get("input"), str) or call.operation is Operation.EMBEDDING:
        theirs += _all(body.get("input"))
    return [_bytes(text) for text in theirs], [_bytes(text) for text in said]


def _messages(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("messages", "input"):
        value = body.get(name)
        if isinstance(value, list):
            yield from (item for item in value if isinstance(item, dict))


def _all(value: object) -> list[str]:
    """Texts of prompts and messages; a tool's description with its schema is one text."""
    if isinstance(value, dict) and not {"content", "text", "output", "arguments", "tool_calls"} & value.keys():
        return [msgspec.json.encode(value).decode()]
    if isinstance(value, dict):
        return [
            text
            for inner in ("content", "tool_calls", "text", "output", "arguments")
            for text in _deep(value.get(inner))
        ]
    if isinstance(value, list):
        ids = bool(value) and type(value[0]) is int  # the policy lets only one kind stand in a list
        return [] if ids else [text for inner in value for text in _all(inner)]
    return [value] if isinstance(value, str) and value else []


def _deep(value: object) -> list[str]:
    return list(strings(value))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
