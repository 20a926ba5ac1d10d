"""How many requests the API holds at once, from their key to the last byte of their answer.

The router's machine decides which requests are taken; what it never sees is held here all the same: a body that is read
or tokenised, an answer whose client is slow to read it. There are twice as many places as requests that the machine
takes: in a common burst it is the one to say no, and in any other one memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pagefence.engine.api.problems import Problem
from pagefence.protocol import errors


class Places:
    """Used on the event loop alone."""

    def __init__(self, max_in_flight: int) -> None:
        self._free = 2 * max_in_flight

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold a place inside. Raises Problem (429) when there is none."""
        if not self._free:
            raise Problem(errors.overloaded("too many requests are being read and answered"))
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1
