"""Times of yesterday's answers from a log: JSON lines or CSV, plain or gzip, read once from front to back.

Memory does not grow with the file: answers are counted as they come, and a line without an end is not read to its end.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from pagefence.mistakes import Usage
from pagefence.probes.latency.fields import ERROR, STATUS, Fields, find, moment
from pagefence.probes.latency.points import Point

LONGEST_LINE = 1 << 20
TOO_MANY_BAD = 0.01
_MOST_TOKENS, _MOST_S = 2**40, 1e6
_EACH = 20_000  # lines between two signs of life
_GZIP, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"


@dataclass(slots=True)
class Read:
    """What became of the lines: `bad` by reason with the number of the first such line."""

    lines: int = 0
    used: int = 0
    failed: int = 0
    others: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    broke: str | None = None

    @property
    def too_many_bad(self) -> bool:
        return sum(self.bad.values()) > TOO_MANY_BAD * max(1, self.lines)

    def refuse(self, why: str) -> None:
        self.bad[why] += 1
        self.first.setdefault(why, self.lines)


def points(path: Path, fields: Fields, read: Read, progress: Callable[[int, int], None]) -> Iterator[Point]:
    """Every answer with a time. Failed requests and other models are counted and left out. Raises Usage when the file
    cannot be opened; one that breaks off is `read.broke`."""
    try:
        size = path.stat().st_size
        raw = path.open("rb")
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror or error}") from None
    with raw:
        try:
            packed = raw.peek(2)[:2] == _GZIP  # a pipe cannot be read twice
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
            for record in _records(stream, read):
                if read.lines % _EACH == 0 and size:
                    progress(raw.tell(), size)
                point = _kept(record, fields, read)
                if isinstance(point, str):
                    read.refuse(point)
                elif point is not None:
                    read.used += 1
                    yield point
        except (OSError, EOFError, zlib.error) as error:
            read.broke = f"the file breaks off after line {read.lines:,} ({error})"


def _records(stream: BinaryIO, read: Read) -> Iterator[Mapping[str, object]]:
    head = b""
    lines = _lines(stream, read)
    for head in lines:
        if head.strip():
            break
    head = head.removeprefix(_BOM)
    if head.lstrip()[:1] == b"{":
        yield from (found for line in _chained(head, lines) if (found := _object(line, read)) is not None)
        return
    if not head.strip():
        return
    names = _columns(head)
    read.lines = 0
    for line in lines:
        if not line.strip():
            continue
        values = _columns(line)
        if not names or len(values) != len(names):
            read.refuse("has another number of columns than the first line")
        else:
            yield dict(zip(names, values, strict=True))


def _columns(line: bytes) -> list[str]:
    """A quoted line end would make two lines of one; a log of times has none, and a broken line must stay one. Nothing
    for what the reader refuses: a column of 128 KiB, or a line end in the middle."""
    try:
        return next(csv.reader(io.StringIO(line.decode("utf-8", "replace").rstrip("\r\n"))), [])
    except csv.Error:
        return []


def _chained(head: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from lines


def _lines(stream: BinaryIO, read: Read) -> Iterator[bytes]:
    while line := stream.readline(LONGEST_LINE):
        read.lines += 1
        if len(line) < LONGEST_LINE or line.endswith(b"\n"):
            yield line
            continue
        read.refuse("is longer than a megabyte")
        while (rest := stream.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass


def _object(line: bytes, read: Read) -> Mapping[str, object] | None:
    if not line.strip():
        read.lines -= 1
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read.refuse("is no JSON")
        return None
    if not isinstance(found, dict):
        read.refuse("is no JSON object")
        return None
    return found


def _kept(record: Mapping[str, object], fields: Fields, read: Read) -> Point | str | None:
    """A point, or what is wrong with the line, or None for one that is rightly left out."""
    if fields.only is not None:
        found = find(record, (fields.only[0],))
        if found is None or str(found[1]) != fields.only[1]:
            read.others += 1
            return None
    if _failed(record):
        read.failed += 1
        return None
    return _point(record, fields, f"line {read.lines}")


def _point(record: Mapping[str, object], fields: Fields, name: str) -> Point | str:
    tokens, ttft = find(record, fields.tokens), find(record, fields.ttft)
    if tokens is None:
        return "has no prompt tokens"
    if ttft is None:
        return "has no time to first token"
    count, seconds = _number(tokens[1]), _number(ttft[1])
    if count is None or not count.is_integer() or not 0 < count <= _MOST_TOKENS:
        return "has prompt tokens that are no positive whole number"
    if seconds is None or not 0 < seconds * fields.scale(ttft[0]) <= _MOST_S:
        return "has a time to first token that is no positive number"
    hit = find(record, fields.cached)
    cached = _number(hit[1]) if hit is not None else None
    if hit is not None and (cached is None or not cached.is_integer() or not 0 <= cached <= count):
        return "has cached tokens that are no part of its prompt tokens"
    when = find(record, fields.at)
    left = int(count - (cached or 0))
    told = None if cached is None else int(cached)
    at = moment(when[1]) if when is not None else 0.0
    return Point(left, seconds * fields.scale(ttft[0]), "log", at, told, name)


def _failed(record: Mapping[str, object]) -> bool:
    if find(record, ERROR) is not None:
        return True
    status = find(record, STATUS)
    code = _number(status[1]) if status is not None else None
    return code is not None and code >= 400


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
