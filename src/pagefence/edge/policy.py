"""From an object to a request that may go upstream: every name in it is known, at every depth, and of the right type.

Two things that look alike are kept apart. What is the user's own - the text, the schema of a tool, the arguments of a
call, metadata - passes whatever names it holds. Everything else is a field that some engine may act on, and stands in
`shapes.py` or does not pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from pagefence.edge.call import Operation
from pagefence.edge.fields import GUARDED, TEMPLATE_RESERVED, never, squeezed
from pagefence.edge.media import check_media
from pagefence.edge.policy_settings import Policy
from pagefence.edge.refusal import Refusal
from pagefence.edge.shapes import (
    SHAPES,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    ResponseRequest,
    Shape,
)
from pagefence.edge.surplus import settle, shown

_PATH = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_QUOTED = re.compile(r"(?<=^Invalid enum value) .*", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `([^`]+)`")


@dataclass(frozen=True, slots=True)
class Asked:
    """What admission needs to know of a request besides its text.

    new_tokens  the most for each choice; None when the client leaves it to the server
    choices     answers that are computed for each prompt: `n`, or `best_of` if that is more
    prompts     a completion may bring many at once
    """

    model: str | None
    stream: bool
    new_tokens: int | None
    choices: int
    prompts: int


@dataclass(frozen=True, slots=True)
class Clean:
    """A request that may go upstream. `taken_out` says whether the policy removed anything."""

    body: dict[str, Any]
    asked: Asked
    taken_out: bool = False


def clean(operation: Operation, body: dict[str, Any], policy: Policy) -> Clean | Refusal:
    """Check every name and type. Costs 3 us for a request that holds nothing unusual; 3 ms for 200,000 token ids."""
    expected = SHAPES[operation]
    try:
        shape = cast("Shape", msgspec.convert(body, expected))
        kept = body
    except msgspec.ValidationError:
        settled = settle(body, expected, policy)
        if isinstance(settled, Refusal):
            return settled
        known, kept = settled
        try:
            shape = cast("Shape", msgspec.convert(known, expected))
        except msgspec.ValidationError as error:
            return _mistyped(error)
    kept = _without_reserved(kept, shape) if policy.forbidden == "strip" else kept
    refusal = _check(shape, policy)
    return refusal or Clean(kept, _asked(shape), kept is not body and kept != body)


def _check(shape: Shape, policy: Policy) -> Refusal | None:
    return _one_limit(shape) or _one_kind(shape) or _plain_template(shape, policy) or check_media(shape, policy)


def _one_limit(shape: Shape) -> Refusal | None:
    """Engines disagree about which of two limits holds, so what is reserved could be less than what is made."""
    if not isinstance(shape, ChatRequest | CompletionRequest):
        return None
    if None in (shape.max_tokens, shape.max_completion_tokens) or shape.max_tokens == shape.max_completion_tokens:
        return None
    message = "'max_tokens' and 'max_completion_tokens' differ; send one of them."
    return Refusal(400, "invalid_value", message, "max_tokens")


def _one_kind(shape: Shape) -> Refusal | None:
    field = "prompt" if isinstance(shape, CompletionRequest) else "input"
    prompt = _prompt(shape)
    if not isinstance(prompt, list):
        return None
    kind = type(prompt[0])
    if list(map(type, prompt)).count(kind) < len(prompt):  # a third of what a set of them takes
        return Refusal(400, "invalid_value", "Send texts, or token ids, or lists of token ids, not both.", field)
    if kind is not int and not all(prompt):
        return Refusal(400, "invalid_value", "A prompt is empty.", field)
    return None


def _plain_template(shape: Shape, policy: Policy) -> Refusal | None:
    reserved = _reserved(shape)
    if not reserved or policy.forbidden == "strip":
        return None
    name = f"chat_template_kwargs.{reserved[0]}"
    return Refusal(400, "forbidden_parameter", f"'{name}' is the server's own and must not be sent by a client.", name)


def _without_reserved(body: dict[str, Any], shape: Shape) -> dict[str, Any]:
    reserved = _reserved(shape)
    if not reserved:
        return body
    switches = {name: value for name, value in body["chat_template_kwargs"].items() if name not in reserved}
    return {**body, "chat_template_kwargs": switches}


def _reserved(shape: Shape) -> list[str]:
    """Switches of a template that are none: an engine's own arguments, and names that it may read from there."""
    if not isinstance(shape, ChatRequest | ResponseRequest) or not shape.chat_template_kwargs:
        return []
    return [n for n in shape.chat_template_kwargs if n in TEMPLATE_RESERVED or never(n) or squeezed(n) in GUARDED]


def _prompt(shape: Shape) -> object:
    if isinstance(shape, CompletionRequest):
        return shape.prompt
    return shape.input if isinstance(shape, EmbeddingRequest) else None


def _asked(shape: Shape) -> Asked:
    prompt = _prompt(shape)
    prompts = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    if isinstance(shape, EmbeddingRequest):
        return Asked(shape.model, False, None, 1, prompts)
    stream = bool(shape.stream)
    if isinstance(shape, ResponseRequest):
        return Asked(shape.model, stream, shape.max_output_tokens, 1, 1)
    best = (shape.best_of if isinstance(shape, CompletionRequest) else None) or 1
    return Asked(shape.model, stream, shape.max_completion_tokens or shape.max_tokens, max(shape.n or 1, best), prompts)


def _mistyped(error: msgspec.ValidationError) -> Refusal:
    """In msgspec's words, which name types and places; the one value that they quote is left out."""
    text = str(error)
    found = _PATH.search(text)
    where = shown(found.group(1)) if found else None
    missing = _MISSING.match(text)
    if missing is not None:
        name = f"{where}.{missing.group(1)}" if where else missing.group(1)
        return Refusal(400, "missing_required_parameter", f"Missing required parameter: '{name}'.", name)
    detail = _QUOTED.sub("", _PATH.sub("", text))
    return Refusal(400, "invalid_value", f"Invalid value for '{where or 'the body'}': {detail}.", where)
