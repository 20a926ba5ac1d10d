"""The right to hold pages or a place in a queue. Only an admission decision makes one (I3, by type)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Admitted:
    """`owner` may lease pages for `tokens` tokens under `isolation_key`; on prefill, to compute `token_ids`."""

    owner: Hashable
    isolation_key: str
    tokens: int
    token_ids: tuple[int, ...] = ()
