"""The file that tells others which words are planted: an edge looks for them in the answers to everybody else.

    {"sentinels": [{"tenant": "canary-a", "words": ["anchor", "velvet", "summer", "oxygen", "turtle", "lemon"]}]}

The words of a run stand in it before the fleet gets the first of them, and stay after its end: pages that were freed
may show them much later. The oldest go when newer ones need their place, because each one more is a chance more that
an honest answer holds it by accident.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pagefence.files import check_writable, one_clear_line, write_atomically
from pagefence.mistakes import Mistake, Usage
from pagefence.probes.sentinel import Sentinel

MOST = 300  # a run of all probes has about 100
MOST_BYTES = 1024 * 1024
LEAST_WORDS = 4  # two shards that share no word take as many, and only those are proof
TENANTS = ("canary-a", "canary-b")
_WORD = re.compile("[a-z]+")
_NAME = re.compile("[!-~]{1,128}")


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: str
    words: tuple[str, ...]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sentinels: tuple[_Entry, ...] = ()


def read_sentinels(path: Path) -> tuple[Sentinel, ...]:
    """All of them, the oldest first; each is owned by its place in the file. Raises Usage, which names the file."""
    return tuple(Sentinel(f"{i}", entry.tenant, entry.words) for i, entry in enumerate(_read(path).sentinels))


def _read(path: Path) -> _File:
    try:
        found = msgspec.json.decode(_content(path), type=_File)
    except OSError as error:
        raise Usage(f"cannot read the sentinels {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Usage(f"{path} holds no sentinels: {error}") from None
    for entry in found.sentinels:
        if len(entry.words) < LEAST_WORDS or not all(_WORD.fullmatch(word) for word in entry.words):
            raise Usage(f"{path}: a sentinel is four or more words of the letters a to z")
    return found


def _content(path: Path) -> bytes:
    """Of an ordinary file of a sane size: whoever waits for a pipe, or reads a device, serves nobody meanwhile."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Usage(f"{path} is no file, so no sentinels can be in it")
        if status.st_size > MOST_BYTES:
            raise Usage(f"{path} has more than {MOST_BYTES:,} bytes: too many for a file of sentinels")
        return file.read(MOST_BYTES)


@dataclass(frozen=True, slots=True)
class SentinelFile:
    """Where runs write down what they plant. Raises Usage for tenants that cannot be told apart.

    tenants  what the edge calls the tenants of PAGEFENCE_KEY_A and PAGEFENCE_KEY_B
    """

    path: Path
    tenants: tuple[str, str] = TENANTS

    def __post_init__(self) -> None:
        wrong = next((name for name in self.tenants if not _NAME.fullmatch(name)), None)
        if wrong is not None:
            raise Usage(f"{wrong[:60]!a} is no name of a tenant of the edge")
        if self.tenants[0] == self.tenants[1]:
            raise Usage(f"both tenants are called {self.tenants[0]}: words of one would be no finding with the other")

    def check(self) -> None:
        """Find out before a run whether it can be written. Raises Usage for a file that is something else, CannotWrite.

        What is no file of sentinels stays as it is: a name mistyped must not cost another file.
        """
        if self.path.exists() and not self.path.is_file():
            raise Usage(f"{self.path} is no file, so no sentinels can be kept in it")
        check_writable(self.path)
        self._known()

    def add(self, sentinels: Iterable[Sentinel]) -> None:
        """Write these down as the newest, at once and whole. Raises CannotWrite, and Usage as `check` does."""
        names = dict(zip("ab", self.tenants, strict=True))
        new = tuple(dict.fromkeys(_Entry(names[s.tenant], s.words) for s in sentinels))
        with self._alone():
            old = [entry for entry in self._known() if entry not in new]
            kept = _File((*old, *new)[-max(MOST, len(new)) :])
            write_atomically(self.path, msgspec.json.encode(kept))

    def _known(self) -> tuple[_Entry, ...]:
        return _read(self.path).sentinels if self.path.exists() else ()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer at a time: of two that had read the same file, the second would take out the first one's words.

        The folder is locked, not the file, which is another one after each write.
        """
        with one_clear_line(self.path):
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def untold(file: SentinelFile | None, sentinels: Iterable[Sentinel]) -> str | None:
    """Write down what is about to be planted, where that was asked for. Why it must not be planted, if it cannot be."""
    if file is None:
        return None
    try:
        file.add(sentinels)
    except Mistake as error:
        return f"the edge could not be told of the words: {error}"
    return None
