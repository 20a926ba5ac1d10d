"""Live sentinels: words that `pagefence canary` planted for one tenant, looked for in the answers to all others.

Two of the words side by side in their order are a shard, as for the canary. Two shards of one sentinel that share no
word are proof. Bounded state: the word that may go on, and the one before it.
"""

from __future__ import annotations

import ctypes
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from pagefence.edge.watching.grams import library
from pagefence.probes.sentinel import Sentinel

SHARDS = 2
_BLOCK = 1 << 16
_AT_ONCE = 96  # bytes of a stream
_MULTIPLIER, _LOW = 0x9E3779B97F4A7C15, (1 << 64) - 1
_LETTERS = bytes(ord(chr(b).lower()) if b < 128 and chr(b).isalpha() else 0 for b in range(256))


class Sentinels:
    """All that are live. `places`: of a word, the sentinels that it stands in, and where."""

    def __init__(self, sentinels: Sequence[Sentinel] = (), compiled: bool = True) -> None:
        self.sentinels = tuple(sentinels)
        self._code = library() if compiled else None
        self._seed = secrets.randbits(64) | 1
        self._ids: dict[str, int] = {}
        self._places: dict[int, list[tuple[int, int]]] = {}
        for number, sentinel in enumerate(self.sentinels):
            for place, word in enumerate(sentinel.words):
                self._places.setdefault(self._ids.setdefault(word, len(self._ids) + 1), []).append((number, place))
        self._table = self._listed()
        self._lock = threading.Lock()  # of the place for pairs: prompts are read beside answers
        self._pairs = np.empty(_BLOCK + 4, np.uint32)
        self._address, self._room = self._listing.ctypes.data, self._pairs.ctypes.data

    def __len__(self) -> int:
        return len(self.sentinels)

    def of_prompt(self, texts: Iterable[bytes], tenant: str) -> frozenset[int]:
        """Those that an answer to this prompt may hold: its tenant's own, and any of which it holds a shard."""
        own = {i for i, sentinel in enumerate(self.sentinels) if sentinel.tenant == tenant}
        for text in texts if self.sentinels else ():
            reading = Reading(self)
            reading.feed(text)
            reading.end()
            own |= reading.shards.keys()
        return frozenset(own)

    def shards(self, before: int, word: int) -> list[tuple[int, tuple[int, int]]]:
        """Of which sentinels two words side by side are a shard, and of which places."""
        return [
            (number, (one, two))
            for number, one in self._places[before]
            for other, two in self._places[word]
            if number == other and one < two
        ]

    def pairs(self, text: bytes, state: Reading, ends: bool) -> list[tuple[int, int]]:
        """Listed words side by side in the next bytes of a text."""
        if self._code is None:
            return self._slowly(text, state, ends)
        found: list[tuple[int, int]] = []
        for start in range(0, max(1, len(text)), _BLOCK):
            part = text[start : start + _BLOCK]
            last = ends and start + _BLOCK >= len(text)
            with self._lock:
                count = self._code.pagefence_words(
                    part, len(part), state.words, self._address, _LETTERS, self._seed, last, self._room
                )  # fmt: skip
                flat = self._pairs[: 2 * count].tolist() if count else []
            found += zip(flat[::2], flat[1::2], strict=True)
        return found

    def _slowly(self, text: bytes, state: Reading, ends: bool) -> list[tuple[int, int]]:
        whole = (state.rest + text).lower()
        cut = len(whole) if ends else len(whole.rstrip(b"abcdefghijklmnopqrstuvwxyz"))
        state.rest = whole[cut:]
        found = []
        for word in re.findall(rb"[a-z]+", whole[:cut]):
            number = self._ids.get(word.decode(), 0)
            if number and state.before:
                found.append((state.before, number))
            state.before = number
        return found

    def _listed(self) -> tuple[object, ...]:
        size = 1 << max(4, (4 * len(self._ids)).bit_length())
        hashes, ids = np.zeros(size, np.uint64), np.zeros(size, np.uint32)
        for word, number in self._ids.items():
            value = self._hash(word)
            place = value & (size - 1)
            while hashes[place]:
                place = (place + 1) & (size - 1)
            hashes[place], ids[place] = value, number
        self._listing = np.array([hashes.ctypes.data, ids.ctypes.data, size - 1], np.uint64)
        return hashes, ids

    def _hash(self, word: str) -> int:
        value = 0
        for letter in word.encode():
            value = ((value or self._seed) ^ letter) * _MULTIPLIER & _LOW
        return value ^ value >> 29


class Reading:
    """One text, read as it comes. `shards`: by sentinel, the places of its pairs that were seen."""

    __slots__ = ("_sentinels", "before", "pending", "rest", "shards", "words")

    def __init__(self, sentinels: Sentinels) -> None:
        self._sentinels = sentinels
        self.words = ctypes.create_string_buffer(16)
        self.shards: dict[int, set[tuple[int, int]]] = {}
        self.rest, self.before, self.pending = b"", 0, bytearray()

    def feed(self, text: bytes, ends: bool = False) -> None:
        self.pending += text
        if len(self.pending) < _AT_ONCE and not ends:
            return
        text = bytes(self.pending)
        self.pending.clear()
        for before, word in self._sentinels.pairs(text, self, ends):
            for number, places in self._sentinels.shards(before, word):
                self.shards.setdefault(number, set()).add(places)

    def end(self) -> None:
        """What came last was a whole word."""
        self.feed(b"", ends=True)

    def found(self) -> Iterator[tuple[int, bool]]:
        """Sentinels of which two shards were seen, and whether two of these share no word: honest text of three listed
        words in a row has two shards too."""
        for number, places in self.shards.items():
            if len(places) >= SHARDS:
                yield number, any(set(one).isdisjoint(two) for one, two in combinations(places, 2))
