"""Server-sent events in a stream that comes in pieces: whole ones, as bytes to pass on and as data to look at."""

from __future__ import annotations

import re

# A line ends in CR, LF or CRLF, an event in an empty line (HTML, 9.2.5).
# A CR at the very end may be half of a CRLF: it waits.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z)){2}")
_LINE = re.compile(rb"\r\n|\n|\r")


_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_SHORT = 64  # bytes of a line that may be a comment, a name or an id
_BOM = b"\xef\xbb\xbf"


class Events:
    """`feed` gives what is whole; `rest` what is not; `stray`, to be emptied, what was no data and may hold text."""

    __slots__ = ("rest", "stray")

    def __init__(self) -> None:
        self.rest, self.stray = bytearray(), b""

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]]:
        """The bytes of all events that are whole now, and the data of each that has any."""
        start = max(0, len(self.rest) - 3)
        self.rest += data
        last = 0
        for match in _END.finditer(self.rest, start):
            last = match.end()
        if not last:
            return b"", []
        whole = bytes(self.rest[:last])
        del self.rest[:last]
        found = []
        for event in _END.split(whole):
            if event[:5] == b"data:" and b"\n" not in event and b"\r" not in event:  # nearly every one
                found.append(event[5:].removeprefix(b" "))
                continue
            said = data_of(event)
            if said is not None:
                found.append(said)
            self.stray += stray_of(event)
        return whole, found


def data_of(event: bytes) -> bytes | None:
    """Its data lines, joined as a browser does; None for a comment or an event without data."""
    lines = [line[5:].removeprefix(b" ") for line in _lines(event) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def stray_of(event: bytes) -> bytes:
    """Lines that are no data and long enough for somebody's text, or are no field at all: some clients read them."""
    lines = [
        line
        for line in _lines(event)
        if line and not line.startswith(b"data:") and (len(line) > _SHORT or not line.startswith(_FIELDS))
    ]
    return b"\n".join(lines) + b"\n" if lines else b""


def events_of(body: bytes) -> list[bytes]:
    """The data of all events of a stream that came as one; none where it is no stream."""
    return [found for event in _END.split(body) if (found := data_of(event)) is not None]


def _lines(event: bytes) -> list[bytes]:
    return _LINE.split(event.removeprefix(_BOM))
