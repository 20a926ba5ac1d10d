"""Server-sent events in a stream that comes in pieces: whole ones, as bytes to pass on and as data to look at."""

from __future__ import annotations

import re

# A line ends in CR, LF or CRLF, an event in an empty line (HTML, 9.2.5).
# A CR at the very end may be half of a CRLF: it waits.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z)){2}")
_LINE = re.compile(rb"\r\n|\n|\r")


class Events:
    """`feed` gives what is whole; `rest` what is not."""

    __slots__ = ("rest",)

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]]:
        """The bytes of all events that are whole now, and the data of each that has any."""
        start = max(0, len(self.rest) - 3)
        data = self.rest + data
        last = 0
        for match in _END.finditer(data, start):
            last = match.end()
        if not last:
            self.rest = data
            return b"", []
        whole, self.rest = data[:last], data[last:]
        return whole, [found for event in _END.split(whole) if (found := data_of(event)) is not None]


def data_of(event: bytes) -> bytes | None:
    """Its data lines, joined as a browser does; None for a comment or an event without data."""
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
