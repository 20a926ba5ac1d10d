"""How many tokens a text can have, at least and at most, without tokenising it. Pure.

A byte-level vocabulary has a token for a byte, and merging only makes them fewer: so many bytes, so many tokens at
most. And no token stands for more bytes than the longest one: that is the least. Where anything in a tokenizer's
definition is not known to keep to this, there is no bound, and texts are counted.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pagefence.engine.model.tokenizer import Tokenizer

# Unicode's own worst cases in UTF-8: composing makes U+1D160 three times as long, and three Hangul letters a third.
_COMPOSING_GROWS, _COMPOSING_SHRINKS = 3, 4
_BYTES_PER_CHARACTER = 4
_LOOK = 32  # characters for each token of a limit: the letters of so many words are more than enough, in most texts
_CUTS = {"Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}
# Of each of these, a token holds less than it can hold of all bytes: English text is mostly letters, and has shorter
# tokens than a run of blanks.
_CLASSES = tuple(
    kept.encode("latin-1")
    for kept in (string.ascii_letters, string.digits, "".join(chr(byte) for byte in range(0x80, 0x100)))
)
_ALL = bytes(range(256))
_BLOCK = 64 * 1024  # bytes that are counted at once: they stay in the processor's cache


@dataclass(frozen=True, slots=True)
class TextBounds:
    """What the bytes of a text say of its tokens, for one vocabulary.

    composes    texts are brought to NFC first
    longest     bytes of the longest token
    most        for each of `_CLASSES`: how many of its bytes one token holds at most
    missing     bytes without a token: they may vanish
    swallows    an added token may take the blanks beside it along, however many
    """

    composes: bool
    longest: int
    most: tuple[int, ...]
    missing: bytes
    swallows: bool
    _kinds: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = [[byte in kept and byte not in self.missing for byte in _ALL] for kept in (_ALL, *_CLASSES)]
        object.__setattr__(self, "_kinds", np.array(kinds, np.int64))

    def at_most(self, text: str) -> int:
        """No more tokens than this, whether the names of control tokens in it are control tokens or text."""
        if text.isascii():
            return len(text)
        size = _size(text)
        if not self.composes:
            return size
        plain = len(text.encode("ascii", "ignore"))
        return plain + (size - plain) * _COMPOSING_GROWS

    def at_least(self, text: str, enough: int | None = None) -> int:
        """No fewer tokens than this. Looks no closer once that is more than `enough`.

        What a part of a text needs, the whole needs: so of a long text more and more is looked at.
        """
        if enough is not None:
            size = (enough + 1) * _LOOK
            while size < len(text):
                if (least := self._at_least(text[:size], enough)) > enough:
                    return least
                size *= 4
        return self._at_least(text, enough)

    def _at_least(self, text: str, enough: int | None) -> int:
        if self.swallows:
            text = "".join(text.split())
        if self.composes and not text.isascii():
            return _over(_size(text), self.longest * _COMPOSING_SHRINKS) if not self.missing else 0
        if enough is not None and len(text) * _BYTES_PER_CHARACTER <= enough:
            return 0  # not worth a look: it cannot be more than enough
        whole, *classes = (self._kinds @ _seen(text.encode("utf-8", "surrogatepass"))).tolist()
        each = [_over(count, most) for count, most in zip(classes, self.most, strict=True) if most]
        return int(max(_over(whole, self.longest), *each))


def text_bounds(tokenizer: Tokenizer) -> TextBounds | None:
    """The bounds of a vocabulary, or None where its definition holds something that is not known to keep to them."""
    definition = tokenizer.definition()
    model, added = definition["model"], definition.get("added_tokens") or []
    composes = _composes(definition.get("normalizer"))
    if composes is None or not _is_plain_bpe(model) or not _only_cuts(definition.get("pre_tokenizer")):
        return None
    tokens = [tokenizer.token_bytes(i, skip_special=False) for i in range(tokenizer.vocab)]
    single = {token[0] for token in tokens if len(token) == 1}
    missing = bytes(byte for byte in range(256) if byte not in single)
    if missing and model.get("byte_fallback"):
        return None  # a byte without a token would be written in more than one
    return TextBounds(
        composes=composes,
        longest=max(map(len, tokens)),
        most=tuple(max(len(token.translate(None, _others(kept))) for token in tokens) for kept in _CLASSES),
        missing=missing,
        swallows=any(token.get("lstrip") or token.get("rstrip") for token in added),
    )


def constant_tokens(tokenizer: Tokenizer, text: str) -> int:
    """At most so many tokens for what a template itself writes: a control token is one, however long its name."""
    if _overlap(tokenizer.control):
        return _size(text)  # a client's text before it might take a part of the name away
    return sum(1 if isinstance(segment, int) else _size(segment) for segment in tokenizer.segments(text))


def _composes(normalizer: Mapping[str, Any] | None) -> bool | None:
    """Whether texts are brought to NFC, or None when something else is done with them."""
    if normalizer is None:
        return False
    if normalizer["type"] == "Sequence":
        parts = [_composes(part) for part in normalizer["normalizers"]]
        return None if None in parts else any(parts)
    return True if normalizer["type"] == "NFC" else None


def _is_plain_bpe(model: Mapping[str, Any]) -> bool:
    affixes = (model.get("continuing_subword_prefix"), model.get("end_of_word_suffix"), model.get("dropout"))
    return model["type"] == "BPE" and not any(affixes)


def _only_cuts(pre: Mapping[str, Any] | None) -> bool:
    """Whether a pre-tokenizer cuts texts into pieces, ends with their bytes, and neither adds nor drops anything."""
    steps = steps_of(pre)
    return any(step["type"] == "ByteLevel" for step in steps) and all(map(_cuts_only, steps))


def steps_of(pre: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """A pre-tokenizer's steps, in order."""
    if pre is None:
        return ()
    if pre["type"] == "Sequence":
        return tuple(step for part in pre["pretokenizers"] for step in steps_of(part))
    return (pre,)


def _cuts_only(step: Mapping[str, Any]) -> bool:
    if step["type"] == "ByteLevel":
        return not step.get("add_prefix_space", True)
    return step["type"] == "Digits" or (step["type"] in ("Split", "Punctuation") and step.get("behavior") in _CUTS)


def _overlap(names: Iterable[str]) -> bool:
    """Whether the end of one name can be the beginning of another."""
    names = list(names)
    heads = {name[:end] for name in names for end in range(1, len(name))}
    tails = {name[start:] for name in names for start in range(1, len(name))}
    return not heads.isdisjoint(tails)


def _size(text: str) -> int:
    """Bytes in UTF-8. Half a character counts too: what is wrong with it is for others to say."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _seen(raw: bytes) -> npt.NDArray[np.int64]:
    """How often each byte comes: 1.5 ms for a MiB."""
    codes = np.frombuffer(raw, np.uint8)
    seen = np.bincount(codes[:_BLOCK], minlength=256)
    for start in range(_BLOCK, len(raw), _BLOCK):
        seen += np.bincount(codes[start : start + _BLOCK], minlength=256)
    return seen


def _others(kept: bytes) -> bytes:
    return _ALL.translate(None, kept)


def _over(amount: int, each: int) -> int:
    return -(-amount // each)
