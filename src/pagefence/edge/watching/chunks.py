"""One JSON object of an answer, a whole one or an event of a stream, as far as it is watched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pagefence.edge.watching.anything import PARSED, texts_of, values_of

DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts as they were told; None: not told. `sane`: every one is a count, and they fit each other."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    sane: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """What one choice gets by it. `texts` by channel: content, reasoning and arguments of tools are scanned apart."""

    index: int
    texts: tuple[tuple[str, str], ...] = ()
    finish: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """
    more       what else a client may show: errors, log probabilities, fields that are not known here. By channel
    malformed  no JSON of an answer, or one that only lenient parsers read
    """

    id: str | None = None
    model: str | None = None
    parts: tuple[Part, ...] = ()
    usage: Usage | None = None
    error: bool = False
    last: bool = False  # the event that ends a stream of the responses API
    more: tuple[tuple[str, str], ...] = ()
    malformed: bool = False


# A name that is not here is not skipped: the object is then read in full (`_slowly`).
class _Delta(msgspec.Struct, forbid_unknown_fields=True):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    role: Any = None


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: Any = None
    stop_reason: Any = None
    matched_stop: Any = None
    hidden_states: Any = None
    disaggregated_params: Any = None
    avg_decoded_tokens_per_iter: Any = None
    token_ids: Any = None
    prompt_token_ids: Any = None


class _Vector(msgspec.Struct, forbid_unknown_fields=True):
    object: Any = None
    index: Any = None
    embedding: msgspec.Raw = msgspec.Raw()


class _Raw(msgspec.Struct, forbid_unknown_fields=True):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    type: Any = None
    delta: Any = None
    response: Any = None
    output: Any = None
    status: Any = None
    output_index: Any = None
    created: Any = None
    system_fingerprint: Any = None
    service_tier: Any = None
    timings: Any = None
    kv_transfer_params: Any = None
    prompt_token_ids: Any = None
    item_id: Any = None
    content_index: Any = None
    summary_index: Any = None
    sequence_number: Any = None
    obfuscation: Any = None
    data: msgspec.Raw = msgspec.Raw()


_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_vectors = msgspec.json.Decoder(list[_Vector]).decode
_decode = msgspec.json.Decoder(_Raw).decode
_FINISHES = {"completed": "stop", "incomplete": "length"}


def read_chunk(data: bytes) -> Chunk:
    """One object of an answer. Whatever it is, no text in it is left out that a client may show."""
    try:
        raw = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _slowly(data)
    chunk = _chunk(raw)
    return chunk if _plain(raw) else _with_more(chunk, values_of(data))


def _plain(raw: _Raw) -> bool:
    """Whether `parts` have all of its texts."""
    if raw.error or raw.response is not None or raw.output is not None or len(raw.data):
        return len(raw.data) > 0 and not raw.error and raw.choices is None and _are_vectors(raw.data)
    if raw.choices is None:
        return raw.type is None or isinstance(raw.delta, str)
    if raw.delta is not None:
        return False
    for choice in raw.choices:
        said = choice.delta or choice.message
        if choice.logprobs is not None or (said is not None and isinstance(said.content, list | dict)):
            return False
    return True


def _are_vectors(data: msgspec.Raw) -> bool:
    """Millions of numbers, and no text: not made into objects."""
    try:
        return bool(_vectors(data))
    except msgspec.DecodeError:
        return False


def _slowly(data: bytes) -> Chunk:
    """What has names that are not known here, or is JSON for lenient parsers only, or none."""
    values = values_of(data)
    known = _only_known(_top(data) if len(data) > PARSED else values[0]) if len(values) == 1 else None
    try:
        chunk = Chunk(malformed=True) if known is None else _chunk(msgspec.convert(known, _Raw))
    except msgspec.ValidationError:
        chunk = Chunk(malformed=True)
    try:
        _parts(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        chunk = replace(chunk, malformed=True)
    return _with_more(chunk, values)


def _top(data: bytes) -> object:
    """Of a long object only what has names that are known here."""
    try:
        parts = _parts(data)
        return {name: msgspec.json.decode(parts[name]) for name in _Raw.__struct_fields__[:-1] if name in parts}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _with_more(chunk: Chunk, values: list[object]) -> Chunk:
    had = {text for part in chunk.parts for _, text in part.texts}
    return replace(chunk, more=tuple([more for more in texts_of(values) if more[1] not in had]))


def _only_known(value: object) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    known = _among(value, _Raw)
    if isinstance(known.get("choices"), list):
        known["choices"] = [_known_choice(each) if isinstance(each, dict) else each for each in known["choices"]]
    return known


def _known_choice(value: dict[str, Any]) -> dict[str, Any]:
    known = _among(value, _Choice)
    for name in ("delta", "message"):
        if isinstance(known.get(name), dict):
            known[name] = _among(known[name], _Delta)
    return known


def _among(value: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: value[name] for name in kind.__struct_fields__ if name in value and name != "data"}


def _chunk(raw: _Raw) -> Chunk:
    error = bool(raw.error) or raw.object == "error" or raw.type == "error"
    if raw.choices is None:
        return _response(raw, error)
    parts = tuple([Part(c.index, _texts(c), c.finish_reason) for c in raw.choices])
    return Chunk(raw.id, raw.model, parts, read_usage(raw.usage), error)


def _texts(choice: _Choice) -> tuple[tuple[str, str], ...]:
    said = choice.delta
    if said is not None and type(said.content) is str and not _holds_more(choice, said):  # nearly every event
        return (("content", said.content),) if said.content else ()
    return tuple(_all_texts(choice))


def _holds_more(choice: _Choice, said: _Delta) -> object:
    more = said.reasoning_content or said.reasoning or said.refusal or said.tool_calls or said.function_call
    return more or choice.text or choice.message


def _all_texts(choice: _Choice) -> Iterator[tuple[str, str]]:
    if choice.text:
        yield "text", choice.text
    for said in (choice.delta, choice.message):
        if said is None:
            continue
        for text in strings(said.content, False):
            yield "content", text
        for text in strings(said.reasoning_content, False):
            yield "reasoning_content", text
        if said.reasoning != said.reasoning_content:  # some engines say it under both names
            for text in strings(said.reasoning, False):
                yield "reasoning", text
        for text in strings(said.refusal, False):
            yield "refusal", text
        calls = said.tool_calls if isinstance(said.tool_calls, list) else [said.tool_calls]
        for place, call in enumerate([*calls, said.function_call]):
            number = call.get("index", place) if isinstance(call, dict) else place
            for text in strings(call):
                yield f"tools {number}"[:16], text


def strings(value: object, nested: bool = True) -> Iterator[str]:
    """Every text in a value: a string, the `text` of parts, and when `nested` all strings of names and arguments."""
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner, nested)
    elif isinstance(value, dict):
        wanted = ("text", "refusal", "content", "name", "arguments", "function", "input", "custom", "output", "summary")
        for name in wanted if nested else wanted[:2]:
            if name in value:
                yield from strings(value[name], nested)


def _response(raw: _Raw, error: bool) -> Chunk:
    """The responses API: a whole response, or an event that brings text or a whole response."""
    kind = raw.type if isinstance(raw.type, str) else ""
    whole = raw.response if isinstance(raw.response, dict) else None
    if raw.output is not None and whole is None:
        whole = {"id": raw.id, "model": raw.model, "usage": raw.usage, "status": raw.status, "output": raw.output}
    last = kind in ("response.completed", "response.incomplete", "response.failed")
    parts: tuple[Part, ...] = ()
    index = raw.output_index if isinstance(raw.output_index, int) else 0
    if isinstance(raw.delta, str) and raw.delta:
        parts = (Part(0, ((f"{kind.split('.')[1] if '.' in kind else kind} {index}", raw.delta),)),)
    if whole is None:
        return Chunk(raw.id if not kind else None, raw.model, parts, read_usage(raw.usage), error)
    if last or not kind:
        texts = () if kind else tuple(("content", text) for text in strings(whole.get("output")))
        parts = (Part(0, texts, _FINISHES.get(str(whole.get("status")))),)
    failed = kind == "response.failed" or bool(whole.get("error"))
    return Chunk(
        _word(whole.get("id")), _word(whole.get("model")), parts, read_usage(whole.get("usage")), error or failed, last
    )


def read_usage(value: object) -> Usage | None:
    """Both shapes; None where there is none."""
    if value is None:
        return None
    if not isinstance(value, dict):
        return Usage(sane=False)
    prompt, one = _count(value, "prompt_tokens", "input_tokens")
    completion, two = _count(value, "completion_tokens", "output_tokens")
    total, three = _count(value, "total_tokens")
    details = value.get("prompt_tokens_details") or value.get("input_tokens_details") or {}
    cached, four = _count(details, "cached_tokens") if isinstance(details, dict) else (None, False)
    sane = one and two and three and four
    sane = sane and (total is None or prompt is None or total == prompt + (completion or 0))
    return Usage(prompt, completion, cached, sane and (cached is None or prompt is None or cached <= prompt))


def _count(value: Mapping[str, object], *names: str) -> tuple[int | None, bool]:
    """The count by the first name that is there, and whether it is one."""
    for name in names:
        found = value.get(name)
        if found is not None:
            right = isinstance(found, int) and not isinstance(found, bool) and found >= 0
            return (found, True) if right and isinstance(found, int) else (None, False)
    return None, True


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None
