"""k-grams of text under secret hashes: rolled, winnowed, and looked up. `grams.c`, or the same in numpy without it.

A text is folded byte by byte: ASCII letters to lower case, ASCII marks, spaces and control bytes dropped, the rest as
it is. So line breaks, Markdown and quotes hide nothing, and chunks may end inside a character. Winnowing (Schleimer,
Wilkerson, Aiken 2003): of `WINDOW` neighbouring k-grams the one with the least hash is taken, so two texts that share
`LENGTH + WINDOW - 1` folded bytes in a row share a taken k-gram, wherever these bytes stand.
"""

from __future__ import annotations

import ctypes
import secrets
import struct
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pagefence.edge.watching import grams_numpy

LENGTH = 24
WINDOW = 16
OWNER_BITS = 20
COMMON = 1
"""The owner of what was seen from several tenants."""

SEED_BYTES = 2048
BLOCK = 1 << 16  # bytes of text in one call
_FIRST = struct.pack("=QQqQ", 0, 0, -1, 0) + bytes(64 * 8 + 64)  # `struct roll` before a text
Words: TypeAlias = npt.NDArray[np.uint64]
Owners: TypeAlias = npt.NDArray[np.uint32]
Bytes: TypeAlias = npt.NDArray[np.uint8]


def _folding() -> Bytes:
    table = np.zeros(256, np.uint8)
    table[128:] = np.arange(128, 256)
    for byte in range(128):
        character = chr(byte)
        if character.isalnum():
            table[byte] = ord(character.lower())
    return table


FOLD = _folding()


@dataclass(frozen=True, slots=True, eq=False)
class Secrets:
    """What k-grams are rolled and winnowed with: made anew by every process, or equal in those that share what they
    remember. Byte 0 is none, so its entries are 0."""

    table: Words  # [2, 256]: of a byte that enters, and of one that leaves
    packed: bytes  # `struct secrets`

    @staticmethod
    def make(seed: bytes | None = None) -> Secrets:
        """From the system's randomness, or from a seed of SEED_BYTES that nobody else may know."""
        enter = np.frombuffer(seed or secrets.token_bytes(SEED_BYTES), "<u8").astype(np.uint64)
        enter[0] = 0
        table = np.stack([enter, grams_numpy.turned(enter, LENGTH)])
        return Secrets(table, table.tobytes() + FOLD.tobytes())


class Roll:
    """Where a text stands between two chunks: under 700 bytes, whatever its length."""

    __slots__ = ("carry", "state")

    def __init__(self) -> None:
        self.state = ctypes.create_string_buffer(_FIRST, len(_FIRST))
        self.carry = grams_numpy.Carry()


def library() -> ctypes.CDLL | None:
    """The compiled half, where the installation had a C compiler and this machine's bytes are in its order."""
    return _library() if sys.byteorder == "little" else None


def winnowed(
    text: bytes, roll: Roll, secret: Secrets, compiled: bool = True, window: int = WINDOW
) -> tuple[Words, Words]:
    """Hashes taken from the next bytes of a text, and at which folded byte each of their k-grams ends. A window of 1
    takes them all."""
    code = library() if compiled else None
    if code is None:
        return grams_numpy.winnowed(text, roll.carry, secret.table, FOLD, LENGTH, window)
    hashes, places = [], []
    most = min(len(text), BLOCK)
    out, at = room = np.empty((2, most), np.uint64)
    first = room.ctypes.data
    for start in range(0, len(text), BLOCK):
        part = text[start : start + BLOCK]
        found = code.pagefence_grams(
            part, len(part), roll.state, secret.packed, LENGTH, window, first, first + 8 * most
        )  # fmt: skip
        hashes.append(out[:found].copy())
        places.append(at[:found].copy())
    if len(hashes) == 1:
        return hashes[0], places[0]
    return np.concatenate([np.empty(0, np.uint64), *hashes]), np.concatenate([np.empty(0, np.uint64), *places])


@cache
def _library() -> ctypes.CDLL | None:
    spec = find_spec("pagefence.edge.watching._grams")
    if spec is None or spec.origin is None:
        return None
    try:
        code = ctypes.CDLL(spec.origin)
        _declare(code)
    except (OSError, AttributeError):  # built for another machine, or cut short: as good as none
        return None
    return code


def _declare(code: ctypes.CDLL) -> None:
    pointer, size, number, word = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_uint64
    signatures: list[tuple[str, list[type]]] = [
        ("grams", [ctypes.c_char_p, size, pointer, pointer, number, number, pointer, pointer]),
        ("look", [pointer, size, pointer, number, pointer]),
        ("note", [pointer, size, pointer, ctypes.c_uint32]),
        ("scan", [
            ctypes.c_char_p, size, pointer, pointer, number, number, pointer, number, ctypes.c_uint32,
            pointer, pointer, pointer, pointer, pointer,
        ]),
        ("words", [ctypes.c_char_p, size, pointer, pointer, pointer, word, number, pointer]),
    ]  # fmt: skip
    for name, arguments in signatures:
        function = getattr(code, f"pagefence_{name}")
        function.argtypes, function.restype = arguments, size
