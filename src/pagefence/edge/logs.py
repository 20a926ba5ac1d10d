"""Log lines as JSON, one object a line, written by a thread: a reader that is slow must not hold up answers."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

_MOST = 10_000  # lines that wait; more are dropped and counted
_EVERY_S = 0.05
_LONGEST = 500
_encode = msgspec.json.Encoder().encode


class Log:
    """Call it with an event and its fields. Values are ours: no prompt, key, salt or tenant's name is given to it."""

    def __init__(self, file: int = 2, on_dropped: Callable[[], None] = lambda: None) -> None:
        self._file, self._on_dropped = file, on_dropped
        self._lines: deque[bytes] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edge-log", daemon=True)
        self._thread.start()

    def __call__(self, event: str, /, **fields: object) -> None:
        """One line, soon; none when too many wait."""
        if len(self._lines) >= _MOST:
            self._on_dropped()
            return
        moment = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
        shown = {name: _short(value) for name, value in fields.items() if value is not None}
        self._lines.append(_encode({"time": moment, "event": event, **shown}) + b"\n")

    def close(self) -> None:
        """Write what waits, for a second at most."""
        self._stop.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._write()
        self._write()

    def _write(self) -> None:
        while self._lines:
            lines = [self._lines.popleft() for _ in range(min(len(self._lines), 200))]
            left = memoryview(b"".join(lines))
            try:
                while left:
                    left = left[os.write(self._file, left) :]
            except OSError:
                return  # nobody reads any more: that is no reason to stop serving


def _short(value: object) -> object:
    return value[:_LONGEST] if isinstance(value, str) else value
