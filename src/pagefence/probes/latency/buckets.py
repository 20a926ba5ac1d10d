"""Buckets by uncached tokens: powers of two, split at the limits that are known."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

_MOST = 2**40


@dataclass(frozen=True, slots=True)
class Buckets:
    """Edges in rising order; bucket i holds what is at least edge i and less than edge i + 1.

    A limit L splits between L and L + 1: what is within it and what is over it are never in one bucket.
    """

    edges: tuple[int, ...]

    def of(self, tokens: int) -> int:
        return max(0, bisect_right(self.edges, tokens) - 1)

    def name(self, bucket: int) -> str:
        last = bucket + 1 >= len(self.edges)
        return (
            f"{self.edges[bucket]:,} and more" if last else f"{self.edges[bucket]:,} to {self.edges[bucket + 1] - 1:,}"
        )


def buckets(limits: Iterable[int] = ()) -> Buckets:
    powers = {1 << i for i in range(_MOST.bit_length())}
    return Buckets(tuple(sorted({0, *powers, *(limit + 1 for limit in limits if 0 < limit < _MOST)})))
