"""Files that are the old one or the new one, never a half, and a place for them that is known before a long run."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pagefence.mistakes import Mistake

# What a file gets that takes another one's place. The umask is taken from either.
PRIVATE, READABLE = 0o600, 0o666


class CannotWrite(Mistake):
    """A file that was asked for has no place to go; said before the run where that is known, when it costs nothing."""


def check_writable(path: Path) -> None:
    """Find out now whether `path` can be replaced at the end. Leaves nothing behind. Raises CannotWrite."""
    if path.is_dir():
        raise CannotWrite(f"{path} is a folder, not a file")
    with one_clear_line(path):
        if not _is_device(path):
            tempfile.NamedTemporaryFile(prefix=".pagefence-", dir=path.parent).close()
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_atomically(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write all of it, as `replacing` does. Raises CannotWrite."""
    with replacing(path, mode) as file:
        file.write(content)


@contextmanager
def replacing(path: Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """What is written inside takes the place of `path` at the end, or nothing does and the old file stays.

    A pipe or a device is written to, never replaced. Raises CannotWrite.
    """
    with one_clear_line(path):
        if _is_device(path):
            with path.open("ab") as file:  # not "wb": standard output may be a file that others write to as well
                yield file
            return
        beside = path.parent / f".pagefence-{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def _is_device(path: Path) -> bool:
    # /dev/stdout is a link, and a regular file to whoever asks when it leads to one.
    return path.exists() and (not path.is_file() or path.parent in (Path("/dev"), Path("/dev/fd")))


@contextmanager
def one_clear_line(path: Path) -> Iterator[None]:
    """What the system refuses inside is said in one line about `path`. Raises CannotWrite."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror or error}") from None
