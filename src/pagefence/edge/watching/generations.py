"""Fingerprints of recent prompts by tenant, in memory that never grows: a ring of tables, each under its own key.

New ones go into the newest table. When it is full or old enough, the oldest table goes, its key is overwritten, and an
empty one with a new key takes its place: what it held can be compared with nothing any more. A fingerprint that several
tenants have is nobody's. No text is kept, only 44 bits of a keyed hash and the number of a tenant's tag.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pagefence.edge.watching import grams_numpy
from pagefence.edge.watching.grams import (
    BLOCK,
    COMMON,
    LENGTH,
    OWNER_BITS,
    WINDOW,
    Owners,
    Roll,
    Secrets,
    Words,
    library,
    winnowed,
)

SLOT_BYTES = 8
FULL = 0.65  # of a table's slots; beyond it a look-up takes too many steps
_NOTED = 4096  # fingerprints noted between two look-ups of others
_NONE = np.empty(0, np.uint64)
_MOST_OWNERS = (1 << OWNER_BITS) - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is remembered. Raises ValueError for what cannot be.

    slots_log2   slots of one table, as a power of two: 2^21 are 16 MiB
    generations  tables; what was noted last is there for at least all but one of them
    age_s        a table takes no more after so many seconds
    share        of a table that one tenant may fill: a flood of one's own prompts drives nobody else's out
    """

    slots_log2: int = 21
    generations: int = 2
    age_s: float = 1800.0
    share: float = 0.5

    def __post_init__(self) -> None:
        if not 10 <= self.slots_log2 <= 32 or self.generations < 2 or not self.age_s > 0 or not 0 < self.share <= 1:
            raise ValueError("2^10 to 2^32 slots, 2 or more generations, an age of more than 0 s, a share of 0 to 1")

    @property
    def memory(self) -> int:
        """Bytes, all tables full."""
        return self.generations * SLOT_BYTES << self.slots_log2

    @property
    def least_kept(self) -> int:
        """Fingerprints that are there whatever comes, of the newest ones."""
        return (self.generations - 1) * int(FULL * (1 << self.slots_log2))


Hit = tuple[int, int, int]
"""A hash, at which folded byte of the answer its k-gram ends, and the number of its owner."""


class _Room:
    """What the compiled scan writes into, made once: an answer comes in chunks of a few bytes."""

    def __init__(self) -> None:
        self.all, self.hits, self.places = np.empty((3, BLOCK), np.uint64)
        self.owners, self.taken = np.empty(BLOCK, np.uint32), np.zeros(1, np.int64)
        kept = (self.all, self.hits, self.places, self.owners, self.taken)
        self.addresses = tuple(array.ctypes.data for array in kept)


class Scanned(NamedTuple):
    hashes: Words
    hits: list[Hit]


class Generations:
    """Whose recent prompts hold a k-gram. Safe to be used from several threads."""

    def __init__(self, bounds: Bounds, now: float = 0.0, compiled: bool = True) -> None:
        self.bounds = bounds
        self.turned_over = 0
        self.left_out = 0  # fingerprints of tenants that had filled their share
        self._code = library() if compiled else None
        self._lock = threading.Lock()
        self._owners: dict[str, int] = {}
        self._tags = ["", ""]
        self._room = _Room()
        self._tables = np.zeros((bounds.generations, 4), np.uint64)  # `struct generation`: the oldest first
        self._address = self._tables.ctypes.data
        self._newest = self._address + (bounds.generations - 1) * self._tables.strides[0]
        self._slots: list[Words] = []
        self._fresh(now, bounds.generations)

    def note(self, hashes: Words, tag: str, now: float) -> None:
        """Remember what a tenant sent."""
        owner = self._owner(tag)
        for start in range(0, len(hashes), _NOTED):
            part = np.ascontiguousarray(hashes[start : start + _NOTED])
            with self._lock:
                self._turn(now, len(part))
                room = self.bounds.share * FULL * len(self._slots[-1]) - self._filled.get(owner, 0)
                if owner == COMMON or room < len(part):
                    self.left_out += len(part)
                    continue
                taken = self._note(part, owner)
                self._taken += taken
                self._filled[owner] = self._filled.get(owner, 0) + taken

    def owners(self, hashes: Words) -> Owners:
        """Whose each is, by number: 0 nobody's, COMMON several tenants'."""
        hashes = np.ascontiguousarray(hashes)
        with self._lock:
            if self._code is not None:
                found = np.empty(len(hashes), np.uint32)
                self._code.pagefence_look(
                    hashes.ctypes.data, len(hashes), self._tables.ctypes.data, len(self._tables), found.ctypes.data
                )
                return found
            return self._look(hashes)

    def scan(self, text: bytes, roll: Roll, secret: Secrets, reader: int) -> Scanned:
        """Winnow the next bytes of an answer; what of them is one other tenant's than the reader's."""
        if self._code is None:
            hashes, places = winnowed(text, roll, secret, compiled=False)
            owners = self.owners(hashes)
            kept = np.flatnonzero((owners > COMMON) & (owners != reader))
            return Scanned(hashes, list(zip(*(a[kept].tolist() for a in (hashes, places, owners)), strict=True)))
        code, room = self._code, self._room
        parts: list[Words] = []
        found: list[Hit] = []
        for start in range(0, len(text), BLOCK):
            part = text[start : start + BLOCK]
            with self._lock:
                count = code.pagefence_scan(
                    part, len(part), roll.state, secret.packed, LENGTH, WINDOW,
                    self._address, self.bounds.generations, reader, *room.addresses,
                )  # fmt: skip
                parts.append(room.all[: int(room.taken[0])].copy())
                if count:
                    columns = (room.hits, room.places, room.owners)
                    found += zip(*(column[:count].tolist() for column in columns), strict=True)
        return Scanned(parts[0] if len(parts) == 1 else np.concatenate([_NONE, *parts]), found)

    def turn_over(self, now: float) -> None:
        """Forget the oldest table and begin a new one, whatever the newest holds."""
        with self._lock:
            self._fresh(now, 1)
            self.turned_over += 1

    def number(self, tag: str) -> int:
        """The number of a tenant that was noted; 0 of one that never was."""
        return self._owners.get(tag, 0)

    def tag(self, owner: int) -> str:
        return self._tags[owner]

    def _owner(self, tag: str) -> int:
        """Numbers are never given anew; of a million tenants on, new ones are not told apart and not noted."""
        with self._lock:
            if tag not in self._owners:
                if len(self._tags) > _MOST_OWNERS:
                    return COMMON
                self._owners[tag] = len(self._tags)
                self._tags.append(tag)
            return self._owners[tag]

    def _turn(self, now: float, more: int) -> None:
        full = self._taken + more > FULL * len(self._slots[-1])
        if full or now - self._since >= self.bounds.age_s:
            self._fresh(now, 1)
            self.turned_over += 1

    def _fresh(self, now: float, count: int) -> None:
        """Empty tables under new keys in place of the oldest ones."""
        for _ in range(count):
            self._tables[0, :2] = 0
            self._tables[:] = np.roll(self._tables, -1, axis=0)
            slots = np.zeros(1 << self.bounds.slots_log2, np.uint64)  # touched, so taken, only as it fills
            self._slots = [*self._slots[-(self.bounds.generations - 1) :], slots]
            self._tables[-1, :2] = np.frombuffer(secrets.token_bytes(16), np.uint64)
            self._tables[-1, 2:] = slots.ctypes.data, len(slots) - 1
        self._since, self._taken = now, 0
        self._filled: dict[int, int] = {}

    def _note(self, part: Words, owner: int) -> int:
        if self._code is not None:
            return int(self._code.pagefence_note(part.ctypes.data, len(part), self._newest, owner))
        return grams_numpy.note(self._tables[-1, :2], self._slots[-1], part, owner, COMMON, OWNER_BITS)

    def _look(self, hashes: Words) -> Owners:
        found = np.zeros(len(hashes), np.uint32)
        for table, slots in zip(self._tables, self._slots, strict=True):
            here = grams_numpy.owners(table[:2], slots, hashes, OWNER_BITS)
            found = np.where((found != 0) & (here != 0) & (found != here), COMMON, np.where(here != 0, here, found))
        return found.astype(np.uint32)
