"""Which workers get a request: those with the least to do, by what the router knows of its open rooms alone.

No clock decides and nothing that a client may say (I9): only tokens that are outstanding, the sizes of the pools, and
the isolation key that the server derived. So the same history always makes the same choices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagefence.protocol.messages import WorkerRef


@dataclass(frozen=True, slots=True)
class Place:
    """A living worker that could be chosen. Both in tokens: what its pool holds, and what it still owes open rooms."""

    worker: WorkerRef
    pool: int
    outstanding: int

    def is_full(self, need: int) -> bool:
        """True when `need` tokens more would have to wait for pages."""
        return self.outstanding + need > self.pool


def least_loaded(places: Iterable[Place], need: int) -> Place | None:
    """The place with the fewest tokens outstanding, ties by name; a full one only when all are. None without places."""
    return min(places, key=lambda place: (place.is_full(need), place.outstanding, place.worker), default=None)


def near_its_cache(places: Sequence[Place], need: int, isolation_key: str) -> Place | None:
    """The tenant's home, where its prefixes are cached, unless waiting there costs more than any cache could save.

    That is the prompt itself: `need` tokens. Which place is home follows from the names alone (rendezvous hashing), so
    nothing is remembered of any tenant, a successor inherits the homes of the dead, and the others keep theirs.
    """
    least = least_loaded(places, need)
    if least is None:
        return None
    home = max(places, key=lambda place: _affinity(isolation_key, place.worker.name))
    waits = home.is_full(need) and not least.is_full(need)
    return least if waits or home.outstanding - least.outstanding >= need else home


def _affinity(isolation_key: str, name: str) -> bytes:
    return hashlib.blake2b(name.encode(), key=hashlib.blake2b(isolation_key.encode()).digest()).digest()
