"""Finished runs, one line each, so that a measurement of hours goes on where it was killed.

A line is written and synced when its run has ended. What was torn at the end (kill -9, a full disk) is no line; it is
cut off before the next one is written, so that it spoils none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pagefence.files import one_clear_line
from pagefence.mistakes import Usage

CLEAN = "no fault"
VERIFY, RACE, USUAL = "verify", "race", "usual script"


class Line(msgspec.Struct, frozen=True):
    """One run of one profile against one fleet.

    `found`: the kinds of finding by probe. `early`: stopped at the first violation, so its cost is not that of a whole
    run. `fleet`: which start of the fleet it was. `error`: why there is no run to speak of.
    """

    fault: str
    profile: str
    seed: int
    verdict: str
    found: Mapping[str, tuple[str, ...]] = {}
    doubts: tuple[str, ...] = ()
    requests: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    seconds: float = 0.0
    shown: int = 0
    controls: tuple[int, int] = (0, 0)
    early: bool = False
    fleet: int = 1
    version: str = ""
    error: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.fault, self.profile, self.seed


@dataclass(slots=True)
class PowerLog:
    """The runs of a file, the last one of a key."""

    path: Path
    runs: dict[tuple[str, str, int], Line]

    @classmethod
    def at(cls, path: Path) -> PowerLog:
        """What the file holds of whole lines. Raises CannotWrite for one that cannot be read, and Usage for a file of
        something else: its end would be cut off as torn."""
        with one_clear_line(path):
            raw = path.read_bytes() if path.exists() else b""
        whole = raw.split(b"\n")
        lines = [line for line in map(_line, whole[:-1]) if line is not None]
        if len(whole) > 1 and not lines:
            raise Usage(f"{path} holds no runs of this command, and what it holds would be written over; name another")
        return cls(path, {line.key: line for line in lines})

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else measures into this file meanwhile: each would do the other's runs, beside each other. Raises
        Usage, and CannotWrite."""
        with one_clear_line(self.path):
            file = self.path.open("ab")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Usage(f"another measurement writes to {self.path}; wait for it, or name another file") from None
            yield

    def put(self, line: Line) -> None:
        """Append one run; when this returns it is on the disk. Raises CannotWrite."""
        with one_clear_line(self.path), self.path.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            whole = _whole(file.read() if file.seek(0) == 0 else b"")
            if whole < size:
                file.truncate(whole)
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.runs[line.key] = line

    def of(self, fault: str, profile: str) -> list[Line]:
        """Runs that came to an end, by seed."""
        return sorted(
            (r for r in self.runs.values() if (r.fault, r.profile) == (fault, profile) and not r.error),
            key=lambda r: r.seed,
        )

    def failed(self, fault: str, profile: str) -> int:
        """Runs that could not be made."""
        return sum(bool(r.error) for r in self.runs.values() if (r.fault, r.profile) == (fault, profile))


def _whole(raw: bytes) -> int:
    """How many bytes are whole lines."""
    return raw.rfind(b"\n") + 1


def _line(raw: bytes) -> Line | None:
    try:
        return msgspec.json.decode(raw, type=Line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
