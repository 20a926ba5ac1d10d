"""The private folder in which one fleet's sockets lie, and the sweeping of folders whose fleet was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "pagefence-run-"
LOCK = "lock"
# A Unix socket's path has at most 107 bytes, and the names in the folder need up to 45 of them.
LONGEST_PARENT = 60


@contextlib.contextmanager
def run_dir() -> Iterator[Path]:
    """A folder for this fleet (mode 0700), gone afterwards. Its lock tells others that the fleet lives."""
    temporary = tempfile.gettempdir()
    parent = Path(temporary if len(os.fsencode(temporary)) <= LONGEST_PARENT else "/tmp")
    _sweep(parent)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    new = path / f"{LOCK}.new"
    with new.open("w") as lock:
        # Under its name only once it is locked: a sweep in between would take us for dead.
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(path / LOCK)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove folders of ours whose fleet no longer holds the lock: it was killed before it could clean up."""
    for path in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid != os.getuid():
                continue
            with (path / LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
