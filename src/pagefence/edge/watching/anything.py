"""All texts of whatever came as an answer: clients differ in what they read, and show, so nothing is left out.

Slower than the reading of `chunks.py`, which is enough for nearly every event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

_BOM = "\ufeff"
_DEEPEST = 64
# What a server says of an answer, in every event of some: no text that anybody wrote.
_NO_TEXT = frozenset({"id", "object", "type", "model", "role", "finish_reason", "system_fingerprint", "service_tier"})
_NO_TEXT |= {"item_id", "obfuscation", "status", "created"}
_NUMBERS = frozenset({"usage", "timings", "embedding", "bytes", "token_ids", "prompt_token_ids"})
PARSED = 1024 * 1024  # bytes that are made into objects, which take ten times as much; more is scanned as it is
_VALUES = 4096
_UNESCAPED = 128 * 1024  # characters of what is no JSON
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_lenient = json.JSONDecoder(strict=False)
_BLANK = re.compile(r"[\s\x00,]*")


def values_of(data: bytes) -> list[object]:
    """JSON values, one behind the other, as the most lenient of parsers reads them. What is none is a text."""
    text = data.decode("utf-8", "replace").removeprefix(_BOM)
    if len(data) > PARSED:
        return [text]
    values: list[object] = []
    at = _blank(text, 0)
    while at < len(text):
        if len(values) == _VALUES:
            return [*values, text[at:]]
        try:
            value, at = _lenient.raw_decode(text, at)
        except (ValueError, RecursionError):
            rest = text[at:]
            return [*values, _ESCAPE.sub(_unescaped, rest) if len(rest) <= _UNESCAPED else rest]
        values.append(value)
        at = _blank(text, at)
    return values


def texts_of(values: Sequence[object]) -> Iterator[tuple[str, str]]:
    """Every text in them, with its place: what stands in one place in several events is one text."""
    for value in values:
        yield from _texts(value, "", 0)


def _texts(value: Any, place: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if value:
            yield place, value
    elif depth > _DEEPEST:
        yield place, str(value)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, place, depth + 1)
    elif isinstance(value, dict):
        index = value.get("index")
        here = f"{place}{index}" if type(index) is int else place
        for name, inner in value.items():
            if name not in _NUMBERS and (name not in _NO_TEXT or isinstance(inner, list | dict)):
                yield from _texts(inner, f"{here}.{name}"[:200], depth + 1)


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _unescaped(match: re.Match[str]) -> str:
    number, letter = match.groups()
    return chr(int(number, 16)) if number else _CONTROL.get(letter, letter)
