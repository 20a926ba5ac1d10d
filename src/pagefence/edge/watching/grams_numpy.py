"""What `grams.c` does, in numpy: for installations without a C compiler, and to hold the compiled half against.

Hashes of 2^i bytes give those of 2^(i+1) by one turn and one exclusive or, so all k-grams of a chunk are hashed in a
few passes over it; the least of every window by doubling in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]
Owners: TypeAlias = npt.NDArray[np.uint32]
_ROUNDS = (1, 1, 3)  # SipHash-1-3 of one word: of the word, of the length, at the end


@dataclass(slots=True)
class Carry:
    """The end of a text that the next chunk goes on from: `length + window - 2` folded bytes, and what was taken."""

    tail: bytes = b""
    dropped: int = 0  # folded bytes before the tail
    taken: int = -1  # the last k-gram that was taken, by its number


def turned(words: Words, by: int) -> Words:
    """Turned to the left, by less than 64 bits."""
    by %= 64
    return words.copy() if by == 0 else words << np.uint64(by) | words >> np.uint64(64 - by)


def winnowed(
    text: bytes, carry: Carry, table: Words, fold: npt.NDArray[np.uint8], length: int, window: int
) -> tuple[Words, Words]:
    """As `grams.winnowed`."""
    folded = fold[np.frombuffer(text, np.uint8)]
    whole = carry.tail + folded[folded != 0].tobytes()
    dropped, carry.tail = carry.dropped, whole[max(0, len(whole) - (length + window - 2)) :]
    carry.dropped += len(whole) - len(carry.tail)
    count = len(whole) - length + 1
    if count < window:
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    hashes = _hashes(table[0][np.frombuffer(whole, np.uint8)], length)
    taken = np.unique(_least(hashes, window))
    taken = taken[taken + dropped > carry.taken]
    if len(taken):
        carry.taken = int(taken[-1]) + dropped
    return hashes[taken], (taken + (dropped + length)).astype(np.uint64)


def _hashes(entered: Words, length: int) -> Words:
    """The hash of every `length` neighbours."""
    power, of_power, result, done = 1, entered, np.zeros(len(entered) + 1, np.uint64), 0
    while True:
        if length & power:
            tail = of_power[done:]
            result = turned(result[: len(tail)], power) ^ tail
            done += power
        if done == length:
            return result
        of_power = turned(of_power[:-power], power) ^ of_power[power:]
        power *= 2


def _least(hashes: Words, window: int) -> npt.NDArray[np.intp]:
    """Where the least of every window stands, the last of equals."""
    least = np.arange(len(hashes))
    span = 1
    while span < window:
        step = min(span, window - span)
        first, second = least[:-step], least[step:]
        least = np.where(hashes[second] <= hashes[first], second, first)
        span += step
    return least


def sip(key: Words, words: Words) -> Words:
    """SipHash-1-3 of each word."""
    start = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    v = [np.full(len(words), start[i], np.uint64) ^ key[i % 2] for i in range(4)]
    for rounds, block in zip(_ROUNDS, (words, np.uint64(8 << 56), None), strict=True):
        if block is None:
            v[2] = v[2] ^ np.uint64(0xFF)
        else:
            v[3] = v[3] ^ block
        for _ in range(rounds):
            _round(v)
        if block is not None:
            v[0] = v[0] ^ block
    mixed: Words = v[0] ^ v[1] ^ v[2] ^ v[3]
    return mixed


def _round(v: list[Words]) -> None:
    for a, b, c, d, left, right in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
        v[a], v[c] = v[a] + v[b], v[c] + v[d]
        v[b], v[d] = turned(v[b], left) ^ v[a], turned(v[d], right) ^ v[c]
        v[a] = turned(v[a], 32)


def owners(key: Words, slots: Words, hashes: Words, owner_bits: int) -> Owners:
    """Whose each hash is in one table; 0: nobody's."""
    prints, mask = sip(key, hashes), np.uint64(len(slots) - 1)
    found, left, place = np.zeros(len(hashes), np.uint32), np.arange(len(hashes)), prints & mask
    while len(left):
        slot = slots[place[left]]
        mine = slot >> np.uint64(owner_bits) == prints[left] >> np.uint64(owner_bits)
        hit = mine & (slot != 0)
        found[left[hit]] = slot[hit] & np.uint64((1 << owner_bits) - 1)
        left = left[(slot != 0) & ~mine]
        place[left] = (place[left] + np.uint64(1)) & mask
    return found


def note(key: Words, slots: Words, hashes: Words, owner: int, common: int, owner_bits: int) -> int:
    """Note hashes as `owner`'s; what another one has becomes common. Slots newly taken."""
    mask, low, taken = len(slots) - 1, (1 << owner_bits) - 1, 0
    for value in sip(key, hashes).tolist():
        place, check = value & mask, value >> owner_bits
        while (slot := int(slots[place])) and slot >> owner_bits != check:
            place = (place + 1) & mask
        slots[place] = check << owner_bits | (owner if not slot or slot & low == owner else common)
        taken += not slot
    return taken
