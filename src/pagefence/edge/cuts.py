"""Where a text can be cut so that its parts have as many tokens as the whole, and how to count it by parts. Pure.

No token crosses the pieces of a pre-tokenizer. All the usual ones end a piece before a blank that follows something
visible: no alternative of their expressions matches a visible character and a blank after it, and none looks behind.
So every word with the blank before it is counted by itself, and an equal word never twice: of a long text, a few
hundred calls with what is left of it are a fraction of the work.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pagefence.edge.bounds import steps_of

BATCH = 32_768
"""Characters at a time: so long the interpreter's lock is held at most [2 ms]."""
_CUT = re.compile(r"(?<=[!-~\w]) ")
_SHORT = 4_096  # nothing is gained by cutting less
_VISIBLE_THEN_BLANK = re.compile(r"[^\s] ")

# Alternatives that match no visible character with a blank after it. Those that take part of every text stand first.
_WORD = r"[^\s\p{L}\p{N}]+"
_LETTERS = (r" ?\p{L}+", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\s?\p{L}+")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_O200K = tuple(
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}{upper}{_LOWER}{lower}{_ENDS}?" for upper, lower in (("*", "+"), ("+", "*"))
)
_OTHERS = (f" ?{_WORD}", rf" ?{_WORD}[\r\n]*", rf" ?{_WORD}[\r\n/]*")
_KNOWN = frozenset(
    {*_LETTERS, *_O200K, *_OTHERS, _ENDS, "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'(?:[sdmt]|ll|ve|re)"}
    | {r"\p{N}", r" ?\p{N}+", r"\p{N}{1,3}", r"\p{N}{1,2}", r"\p{N}{1,1}", r"[0-9]", r"[\r\n]", r"[0-9][0-9][0-9]"}
    | {r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+", r"\s*[\r\n]", r"\s+$"}
)

Count = Callable[[str], int]


class Stopped(Exception):
    """Nobody waits for the count any more."""


class OverLimit(Exception):
    """There are at least `tokens`, which is more than was asked about."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = tokens


def can_cut(definition: Mapping[str, Any]) -> bool:
    """Whether texts of this tokenizer may be cut before a blank that follows something visible."""
    if definition.get("normalizer") is not None and definition["normalizer"]["type"] != "NFC":
        return False
    for token in definition.get("added_tokens") or []:
        edges = token.get("lstrip") or token.get("rstrip") or token.get("single_word")
        if edges or _VISIBLE_THEN_BLANK.search(token["content"]):
            return False
    steps = steps_of(definition.get("pre_tokenizer"))
    return all(map(_harmless, steps)) and any(map(_cuts_words, steps))


def count_by_parts(count: Count, text: str, limit: int, least: Count, stopped: Callable[[], bool]) -> int:
    """Tokens of `text`, as `count(text)` says, for a tokenizer that `can_cut`.

    `least` bounds a text's tokens from below. Raises OverLimit as soon as more than `limit` are certain, and Stopped
    between two parts when `stopped` says so.
    """
    if len(text) <= _SHORT:
        return _within(count(text), limit)
    first, words, last = _words(text, stopped)
    total, by_times = count(first) + count(last), defaultdict[int, list[str]](list)
    for word, times in words.items():
        by_times[times].append(word)
    batches = [(times, batch) for times in sorted(by_times, reverse=True) for batch in _batches(by_times[times])]
    rest = [times * least(batch) for times, batch in batches]
    ahead = sum(rest)
    for (times, batch), bounded in zip(batches, rest, strict=True):
        if stopped():
            raise Stopped
        _within(total + ahead, limit)
        total += times * count(batch)
        ahead -= bounded
    return _within(total, limit)


def parts_of(text: str) -> Iterator[str]:
    """Parts of about `BATCH` characters that together have the tokens of the text, for a tokenizer that `can_cut`."""
    start = 0
    while (cut := _CUT.search(text, start + BATCH)) is not None:
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def _words(text: str, stopped: Callable[[], bool]) -> tuple[str, Counter[str], str]:
    """The text up to its first cut, what lies between two cuts (without the blank before it) and the end."""
    words: Counter[str] = Counter()
    cut = _CUT.search(text)
    if cut is None:
        return text, words, ""
    first, start = text[: cut.start()], cut.start()
    while True:
        if stopped():
            raise Stopped
        cut = _CUT.search(text, start + BATCH)
        if cut is None:
            break
        words.update(_CUT.split(text[start + 1 : cut.start()]))
        start = cut.start()
    *parts, last = _CUT.split(text[start + 1 :])
    words.update(parts)
    return first, words, " " + last


def _batches(words: list[str]) -> Iterator[str]:
    """Texts of about `BATCH` characters, a blank before each word."""
    begin, size = 0, 0
    for end, word in enumerate(words, 1):
        size += len(word) + 1
        if size >= BATCH or end == len(words):
            yield " " + " ".join(words[begin:end])
            begin, size = end, 0


def _within(tokens: int, limit: int) -> int:
    if tokens > limit:
        raise OverLimit(tokens)
    return tokens


def _harmless(step: Mapping[str, Any]) -> bool:
    """Whether what a step does before a cut does not depend on what follows, and the other way round."""
    if step["type"] in ("ByteLevel", "Digits"):
        return not step.get("add_prefix_space", False)
    if step["type"] != "Split" or step.get("behavior") != "Isolated" or step.get("invert"):
        return False
    return all(part in _KNOWN for part in _alternatives(step))


def _cuts_words(step: Mapping[str, Any]) -> bool:
    """Whether every piece of a text is matched by one alternative, so that none goes over a cut."""
    if step["type"] == "ByteLevel":
        return bool(step.get("use_regex", True))
    parts = set(_alternatives(step)) if step["type"] == "Split" else set()
    numbers = any(part.endswith((r"\p{N}", r"\p{N}+", r"\p{N}{1,3}", r"\p{N}{1,2}", r"\p{N}{1,1}")) for part in parts)
    letters = any(part in _LETTERS for part in parts) or set(_O200K) <= parts
    return r"\s+" in parts and numbers and letters and any(part in parts for part in _OTHERS)


def _alternatives(step: Mapping[str, Any]) -> list[str]:
    """An expression's alternatives: those of the outermost level."""
    parts, depth, begin = [], 0, 0
    expression: str = step["pattern"].get("Regex", "")
    for at, char in enumerate(expression):
        escaped = at > 0 and expression[at - 1] == "\\"
        depth += 0 if escaped else {"(": 1, ")": -1, "[": 1, "]": -1}.get(char, 0)
        if char == "|" and depth == 0 and not escaped:
            parts.append(expression[begin:at])
            begin = at + 1
    return [*parts, expression[begin:]]
