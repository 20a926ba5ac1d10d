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
        self._lines: deque[tuple[float, str, object]] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edge-log", daemon=True)
        self._thread.start()

    def __call__(self, event: str, /, **fields: object) -> None:
        """One line, soon; none when too many wait."""
        self.line(event, {name: _short(value) for name, value in fields.items() if value is not None})

    def line(self, event: str, fields: object) -> None:
        """The same, of a struct or a dict that is short enough as it is."""
        if len(self._lines) >= _MOST:
            self._on_dropped()
            return
        self._lines.append((time.time(), event, fields))

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
            lines = [_written(*self._lines.popleft()) for _ in range(min(len(self._lines), 50))]
            left = memoryview(b"".join(lines))
            try:
                while left:
                    left = left[os.write(self._file, left) :]
            except OSError:
                return  # nobody reads any more: that is no reason to stop serving


def _written(moment: float, event: str, fields: object) -> bytes:
    said = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    rest = _encode(fields)[1:]
    return b'{"time":"%b","event":"%b"%b%b\n' % (said.encode(), event.encode(), b"," * (len(rest) > 1), rest)


def _short(value: object) -> object:
    return value[:_LONGEST] if isinstance(value, str) else value
