"""What the gate is asked to hold a fleet against: flags of the command, checked, and nothing read yet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pagefence.mistakes import Usage

HEADROOM = 1.25
_LARGEST_PROMPT = 100_000_000  # tokens; a text of half a gigabyte


@dataclass(frozen=True, slots=True)
class Policy:
    """Raises Usage for values that say nothing.

    headroom    the pool must cover the longest request times this (I8)
    edge_limit  the longest prompt, in tokens, that the edge lets through; believed only when it is shown
    inside      the gate stands inside the trusted network, so reaching a worker from here is no finding
    lock        what was approved, to be compared with
    approve     write `lock` anew, when nothing fails
    active      send the few requests that ask whether topology fields are refused and the edge limit is kept
    """

    headroom: float = HEADROOM
    edge_limit: int | None = None
    inside: bool = False
    lock: Path | None = None
    approve: bool = False
    active: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.headroom) or self.headroom < 1:
            raise Usage(f"a headroom of {self.headroom:g} is no headroom: it is at least 1")
        if self.edge_limit is not None and self.edge_limit < 1:
            raise Usage(f"an edge limit of {self.edge_limit} tokens lets no prompt through")
        if self.active and self.edge_limit is not None and self.edge_limit > _LARGEST_PROMPT:
            raise Usage(f"--active sends prompts as long as the edge limit: {self.edge_limit:,} tokens are too many")
        if self.approve and self.lock is None:
            raise Usage("--approve writes what is approved to a file: name it with --lock FILE")
