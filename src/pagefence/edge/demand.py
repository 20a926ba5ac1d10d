"""What a call asks an engine to hold: its prompts, and room for new tokens. Pure; nothing is counted here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagefence.edge.call import Call, Operation
from pagefence.edge.refusal import Refusal

_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "summary_text", "refusal"})
_IMAGE_PARTS = frozenset({"image_url", "input_image"})
_PLAIN_FIELDS = frozenset({"role", "content"})
_SUFFIX_TOKENS = 16  # the marks around prefix, suffix and middle: three, or four names in plain text
_ASIDE_TOKENS = 64  # the words that an engine may put around what it writes into a prompt by itself
_PASSED_ON = ("tools", "documents", "add_generation_prompt", "reasoning_effort")
_BY_OTHERS = ("previous_response_id", "conversation", "prompt_embeds", "prompt_cache_id")
_SCHEMAS = ("response_format", "structured_outputs", "functions", "text")


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation, and what its template is given besides. `plain`: roles and texts, nothing else."""

    messages: Sequence[Mapping[str, Any]]
    variables: Mapping[str, Any] = field(default_factory=dict)
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """One sequence of tokens that an engine holds.

    ids      tokens that were given as such
    texts    parts that are tokenised each by itself
    chat     a conversation, rendered by a template
    special  what a tokenizer puts around a text (a BOS token, say) comes on top
    extra    tokens at most that cannot be counted: images, marks, schemas that an engine may write into the prompt
    loose    bytes of what only a bound is known of: how an engine would write it is not told
    """

    ids: int = 0
    texts: tuple[str, ...] = ()
    chat: Chat | None = None
    special: bool = False
    extra: int = 0
    loose: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """`new_tokens`: of each choice; None where the client leaves it open. `param`: the field to name in a refusal."""

    prompts: tuple[Prompt, ...]
    new_tokens: int | None
    param: str
    generates: bool = True


@dataclass(frozen=True, slots=True)
class Admitted:
    """A call that some rank can hold, with all the tokens that it may make. Only admission makes one (I3, by type).

    prompt_tokens  exact, or None when the bound was enough
    at_most        prompt tokens by the bound, or exactly
    new_tokens     reserved for each choice
    demand         what it asks for, where that was looked at
    """

    call: Call
    prompt_tokens: int | None
    at_most: int
    new_tokens: int
    demand: Demand | None = None


def demand_of(call: Call, image_tokens: int | None = None) -> Demand | Refusal:
    """Read a call. `image_tokens`: the most that one image can cost, where that was declared."""
    body = call.body
    for name in _BY_OTHERS:
        if body.get(name) is not None:
            return Refusal(
                400, "prompt_not_countable", f"'{name}' stands for tokens that are not in the request.", name
            )
    if call.operation is Operation.CHAT:
        return _chat(body, "messages", body.get("messages"), image_tokens)
    if call.operation is Operation.RESPONSE:
        return _response(body, image_tokens)
    if call.operation is Operation.COMPLETION:
        return _completion(body)
    if call.operation is Operation.EMBEDDING:
        prompts = _prompts(body, "input")
        return prompts if isinstance(prompts, Refusal) else Demand(prompts, None, "input", generates=False)
    return Demand((), None, "model", generates=False)


def _completion(body: Mapping[str, Any]) -> Demand | Refusal:
    prompts = _prompts(body, "prompt")
    if isinstance(prompts, Refusal):
        return prompts
    suffix, aside = body.get("suffix"), _asides(body)
    if suffix:
        prompts = tuple(Prompt(p.ids, (*p.texts, suffix), None, p.special, _SUFFIX_TOKENS) for p in prompts)
    if aside:
        prompts = tuple(Prompt(p.ids, p.texts, None, p.special, p.extra + aside) for p in prompts)
    return Demand(prompts, _new_tokens(body), "prompt")


def _prompts(body: Mapping[str, Any], param: str) -> tuple[Prompt, ...] | Refusal:
    """A text, texts, token ids, or lists of token ids."""
    given = body.get(param)
    if isinstance(given, list) and _is_ids(given):
        return (Prompt(ids=len(given)),)
    many = given if isinstance(given, list) and given else [given]
    special = body.get("add_special_tokens") is not False
    prompts = []
    for one in many:
        if isinstance(one, str):
            prompts.append(Prompt(texts=(one,), special=special))
        elif isinstance(one, list) and _is_ids(one):
            prompts.append(Prompt(ids=len(one)))
        else:
            return Refusal(400, "invalid_value", "A prompt is a text or a list of token ids.", param)
    return tuple(prompts)


def _is_ids(value: Sequence[Any]) -> bool:
    return bool(value) and list(map(type, value)).count(int) == len(value)  # 13 ns for each of a million


def _chat(body: Mapping[str, Any], param: str, messages: Any, image_tokens: int | None) -> Demand | Refusal:
    if not isinstance(messages, list) or set(map(type, messages)) != {dict}:
        return Refusal(400, "invalid_value", "Messages are a list of objects, at least one.", param)
    images = 0
    for part in [part for m in messages if isinstance(m.get("content"), list) for part in m["content"]]:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _IMAGE_PARTS and image_tokens is not None:
            images += 1
        elif kind not in _TEXT_PARTS:
            return Refusal(400, "prompt_not_countable", f"A part of type '{kind}' cannot be counted here.", param)
    variables = {name: body[name] for name in _PASSED_ON if body.get(name) is not None}
    variables |= body.get("chat_template_kwargs") or {}
    plain = variables.keys() <= {"add_generation_prompt", "reasoning_effort"} and not images
    plain = plain and all(map(_is_plain, messages))
    prompt = Prompt(
        chat=Chat(messages, variables, plain),
        special=body.get("add_special_tokens") is True,
        extra=images * (image_tokens or 0) + _asides(body),
    )
    return Demand((prompt,), _new_tokens(body), param)


def _is_plain(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if any(message[name] is not None for name in message.keys() - _PLAIN_FIELDS):
        return False
    if isinstance(content, list):
        return all(isinstance(part.get("text"), str) for part in content)
    return isinstance(content, str) and isinstance(message.get("role"), str)


def _response(body: Mapping[str, Any], image_tokens: int | None) -> Demand | Refusal:
    """Texts and messages are a conversation. How an engine writes anything else is its own: then its bytes count."""
    given, instructions = body.get("input"), body.get("instructions")
    items = given if isinstance(given, list) else [{"role": "user", "content": given}]
    messages = [{"role": "system", "content": instructions}] if instructions else []
    plain = not body.get("tools")
    for item in items:
        if not isinstance(item, dict):
            return Refusal(400, "invalid_value", "An item of the input is an object.", "input")
        plain = plain and item.get("type") in (None, "message") and item.get("content") is not None
        messages.append({name: item.get(name) for name in ("role", "content")})
    if plain:
        return _chat(body, "input", messages, image_tokens)
    if _holds_more_than_text(items):
        return Refusal(
            400, "prompt_not_countable", "Something in the input that is no text cannot be counted.", "input"
        )
    size = _json_size([items, instructions, body.get("tools")])
    parts = Prompt(loose=size + _ASIDE_TOKENS * (len(items) + 2), extra=_asides(body))
    return Demand((parts,), _new_tokens(body), "input")


def _holds_more_than_text(items: Sequence[Mapping[str, Any]]) -> bool:
    lists = (item.get(name) for item in items for name in ("content", "output", "summary"))
    parts = (part for given in lists if isinstance(given, list) for part in given)
    return any(not isinstance(part, dict) or part.get("type") not in _TEXT_PARTS for part in parts)


def _asides(body: Mapping[str, Any]) -> int:
    """Tokens at most of schemas, which some engines write into the prompt."""
    given = [body[name] for name in _SCHEMAS if body.get(name)]
    return sum(_json_size(value) + _ASIDE_TOKENS for value in given)


def _json_size(value: Any) -> int:
    """Bytes of the longest usual way to write it."""
    return len(json.dumps(value))


def _new_tokens(body: Mapping[str, Any]) -> int | None:
    """The largest that was asked for, by any of its names."""
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "min_tokens")
    asked = [value for name in names if type(value := body.get(name)) is int]
    return max(asked) if asked else None
