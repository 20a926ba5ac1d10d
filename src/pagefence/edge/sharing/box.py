"""What waits to be told to others: bounded, filled from any thread in microseconds, the oldest dropped first."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pagefence.edge.sharing.batch import MOST_CLAIMS, MOST_HASHES, MOST_PARTS, Part, part
from pagefence.edge.watching.grams import Words

MOST_WAITING = 1 << 20  # fingerprints, 8 MiB
_OVERHEAD = 32  # fingerprints that a part takes as much memory as, besides its own
_CLAIMS = 8 * MOST_CLAIMS


class Outbox:
    """`dropped`: parts and claims that waited too long and will not be told."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.dropped = 0
        self._most = most
        self._lock = threading.Lock()
        self._parts: deque[tuple[str, bool, Words]] = deque()
        self._claims: deque[bytes] = deque()
        self._waiting = 0
        self._wake: Callable[[], None] = _nobody

    def note(self, hashes: Words, tag: str, habit: bool = False) -> None:
        """Tell the others what a tenant sent, or what an answer to it held. Keeps the array; nobody may change it."""
        for start in range(0, len(hashes), MOST_HASHES):
            # Of a long prompt copies are kept, else its last piece would hold all of it.
            piece = hashes if len(hashes) <= MOST_HASHES else hashes[start : start + MOST_HASHES].copy()
            with self._lock:
                self._waiting += len(piece) + _OVERHEAD
                self._parts.append((tag, habit, piece))
                while self._waiting > self._most:
                    self._waiting -= len(self._parts.popleft()[2]) + _OVERHEAD
                    self.dropped += 1
        if len(hashes):
            self._wake()

    def claim(self, name: bytes) -> None:
        """Tell the others which response id a request got."""
        with self._lock:
            self._claims.append(name)
            if len(self._claims) > _CLAIMS:
                self._claims.popleft()
                self.dropped += 1
        self._wake()

    def take(self) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
        """As much as one batch holds, the oldest first. Empty when nothing waits."""
        taken: list[tuple[str, bool, Words]] = []
        room = MOST_HASHES
        with self._lock:
            while self._parts and len(taken) < MOST_PARTS and len(self._parts[0][2]) <= room:
                each = self._parts.popleft()
                room -= len(each[2])
                self._waiting -= len(each[2]) + _OVERHEAD
                taken.append(each)
            claims = tuple(self._claims.popleft() for _ in range(min(len(self._claims), MOST_CLAIMS)))
        return tuple(part(*each) for each in taken), claims

    @property
    def full(self) -> bool:
        """Whether a whole batch waits."""
        return self._waiting > MOST_HASHES or len(self._parts) >= MOST_PARTS or len(self._claims) >= MOST_CLAIMS

    def wakes(self, wake: Callable[[], None]) -> None:
        """Whom to call, on any thread, when something has come."""
        self._wake = wake


def _nobody() -> None:
    """Nobody tells: what waits stays, up to the bound."""
