"""One text of an answer, scanned as it comes: bounded state, chunks may end anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pagefence.edge.watching.grams import Roll, Words
from pagefence.edge.watching.memory import Memory

_RUNS = 16  # owners that are followed at once


@dataclass(slots=True)
class _Run:
    """k-grams of one owner close behind each other. Offsets of folded bytes."""

    first: int
    last: int
    hashes: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A run of another tenant's text: whose, the names of its k-grams, and how many folded bytes it spans so far."""

    owner_tag: str
    names: tuple[str, ...]
    folded_bytes: int


class Scanner:
    """Scans for text of others than `tag`. `own`: what the prompt's own hashes are."""

    __slots__ = (
        "_kept",
        "_learned",
        "_memory",
        "_own",
        "_pending",
        "_reader",
        "_roll",
        "_runs",
        "_told",
        "found",
        "tag",
    )

    def __init__(self, memory: Memory, own: Words, tag: str) -> None:
        self.tag = tag
        self.found = False
        self._memory = memory
        self._own = own
        self._reader = memory.prompts.number(tag)
        self._roll = Roll()
        self._pending = bytearray()
        self._runs: dict[int, _Run] = {}
        self._learned: list[Words] = []
        self._kept = 0
        self._told: set[int] = set()

    def feed(self, text: bytes) -> list[Sighting]:
        """The next bytes. What is pending is scanned once there is enough of it."""
        self._pending += text
        return self._scan() if len(self._pending) >= self._memory.manner.every else []

    def end(self, now: float) -> list[Sighting]:
        """Scan what is left. What held nothing of others tells the model's habits."""
        found = self.rest()
        if not self.found and self._learned:
            self._memory.learn(np.concatenate(self._learned), self.tag, now)
        self._learned = []
        return found

    def rest(self) -> list[Sighting]:
        """Scan what is left, and learn nothing."""
        return self._scan() if self._pending else []

    def _scan(self) -> list[Sighting]:
        text = bytes(self._pending)
        self._pending.clear()
        memory = self._memory
        hashes, hits = memory.prompts.scan(text, self._roll, memory.secrets, self._reader)
        if self._kept < memory.manner.learned and len(hashes):
            self._learned.append(hashes)
            self._kept += len(hashes)
        # Of an owner that was told, nothing more is: an answer that is all leak costs no more than another one.
        hits = [hit for hit in hits if hit[2] not in self._told] if hits else hits
        if not hits:
            return []
        seen = [self._follow(*hit) for hit in memory.foreign(hits, self._own)]
        return [sighting for sighting in seen if sighting is not None]

    def _follow(self, value: int, place: int, owner: int) -> Sighting | None:
        manner = self._memory.manner
        run = self._runs.pop(owner, None)
        if run is None or place - run.last > manner.gap:
            run = _Run(place, place)
        run.last = place
        self._runs[owner] = run
        if len(self._runs) > _RUNS:
            del self._runs[next(iter(self._runs))]
        if owner in self._told:
            return None
        run.hashes.add(value)
        if len(run.hashes) < manner.distinct:
            return None
        self.found = True
        self._told.add(owner)
        names = tuple(sorted(self._memory.name(value) for value in run.hashes))
        return Sighting(self._memory.prompts.tag(owner), names, run.last - run.first)
