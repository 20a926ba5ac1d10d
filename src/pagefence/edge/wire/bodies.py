"""Bodies as they come in, in pieces: by length, in chunks, or until the connection closes."""

from __future__ import annotations

import re
from typing import Protocol

from pagefence.edge.wire.heads import CHUNKED, UNTIL_CLOSE, Malformed

_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
_SO_FAR = re.compile(rb"[0-9A-Fa-f]{0,8}\r?")
_CRLF = b"\r\n"
_LONGEST_LINE = 10  # eight digits and CRLF: no extension, which nobody needs and parsers disagree about


class Body(Protocol):
    """`feed` gives what belongs to the body. When `done`, `rest` holds what came after it."""

    done: bool
    rest: bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Raises Malformed."""
        ...


def body_of(length: int) -> Body:
    """The reader for a framing of `wire.heads`."""
    if length == CHUNKED:
        return ChunkedBody()
    return UntilClose() if length == UNTIL_CLOSE else SizedBody(length)


class SizedBody:
    """So many bytes."""

    __slots__ = ("_left", "done", "rest")

    def __init__(self, length: int) -> None:
        self._left, self.done, self.rest = length, length == 0, b""

    def feed(self, data: bytes) -> list[bytes]:
        if self._left >= len(data):
            self._left -= len(data)
            self.done = self._left == 0
            return [data] if data else []
        own, self.rest = data[: self._left], data[self._left :]
        self._left, self.done = 0, True
        return [own] if own else []


class UntilClose:
    """All that comes; whether it was whole nobody can tell."""

    __slots__ = ("done", "rest")

    def __init__(self) -> None:
        self.done, self.rest = False, b""

    def feed(self, data: bytes) -> list[bytes]:
        return [data] if data else []


class ChunkedBody:
    """Chunks without extensions and without trailers."""

    __slots__ = ("_closing", "_last", "_left", "_pending", "done", "rest")

    def __init__(self) -> None:
        self._left = 0
        self._closing = self._last = self.done = False
        self._pending = self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        if self._pending:
            data, self._pending = self._pending + data, b""
        at, parts = 0, list[bytes]()
        while True:
            if self._left:
                part = data[at : at + self._left]
                if not part:
                    return parts
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                if self._left:
                    return parts
                self._closing = True
            if self._closing:
                end = data[at : at + 2]
                if not _CRLF.startswith(end):
                    raise Malformed("trailers" if self._last else "a chunk longer than its size")
                if len(end) < 2:
                    self._pending = end
                    return parts
                at, self._closing = at + 2, False
                if self._last:
                    self.done, self.rest = True, data[at:]
                    return parts
            end_at = data.find(_CRLF, at, at + _LONGEST_LINE)
            if end_at < 0:
                self._pending = data[at : at + _LONGEST_LINE]
                if not _SO_FAR.fullmatch(self._pending):
                    raise Malformed("a chunk size that is no number")
                return parts
            if not _SIZE.fullmatch(data, at, end_at):
                raise Malformed("a chunk size that is no number")
            self._left, at = int(data[at:end_at], 16), end_at + 2
            if self._left == 0:
                self._last = self._closing = True
