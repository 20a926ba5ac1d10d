"""Sharing the cores between workers of one host: all of them while the others are idle, a share while they are not.

Two OpenMP pools that both want every core wait for each other at each barrier, and lose far more than half. So each
worker says in one shared byte whether it has work, and looks at the others' before each unit of its own. Those at work
have all threads between them, one more for the first seats where they cannot be shared evenly. Where there are more at
work than threads each has one, and a worker of one thread has no barrier to wait at.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

NAME = "busy"
# Threads that wait spin for about 20 microseconds before they sleep: long enough for the gap between two products of
# one forward pass, short enough to leave the core to somebody else.
OPENMP = {"GOMP_SPINCOUNT": "20000"}


class Cores:
    """One worker's place at the table. `set_threads` is called only when the number changes."""

    def __init__(self, run_dir: Path, seat: int, seats: int, threads: int, set_threads: Callable[[int], None]) -> None:
        self._seat, self._seats, self._threads = seat, seats, threads
        self._set_threads = set_threads
        descriptor = os.open(run_dir / NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Every worker makes it the same size, so it does not matter who comes first.
            os.ftruncate(descriptor, seats)
            self._busy = mmap.mmap(descriptor, seats)
        finally:
            os.close(descriptor)
        self._now = 0
        self.rest()

    def work(self) -> None:
        """Before a unit of work: say so, and take what is there to take."""
        self._busy[self._seat] = 1
        share, left_over = divmod(self._threads, sum(self._busy[: self._seats]))
        wanted = max(1, share + (sum(self._busy[: self._seat]) < left_over))
        if wanted != self._now:
            self._set_threads(wanted)
            self._now = wanted

    def rest(self) -> None:
        """Nothing to do: the others may have the cores."""
        self._busy[self._seat] = 0
