"""A search that can be stopped and gone on with: its progress in one file."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagefence.files import READABLE, CannotWrite, check_writable, replacing
from pagefence.mistakes import Mistake
from pagefence.sim.state import WorldState

if TYPE_CHECKING:
    from pagefence.sim.explorer import Progress

FORMAT = "pagefence search 2"


class BadCheckpoint(Mistake):
    """The file cannot be read, is of another world, or is no checkpoint."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`about` names world, decisions and kind of search; a file about another one is refused."""

    path: Path
    about: str

    def load(self) -> tuple[Progress, dict[bytes, WorldState]] | None:
        """What was saved, or None when there is no file. Raises BadCheckpoint, also where nothing can be saved."""
        if not self.path.exists():
            with _as_bad_checkpoint():
                check_writable(self.path)
            return None
        try:
            form, about, progress, states = _Reader(io.BytesIO(self.path.read_bytes())).load()
            if form != FORMAT:
                raise ValueError(form)
            if about == self.about:
                progress.frontier = deque(states)
                if not progress.known.keys() >= states.keys():
                    raise ValueError("states that nobody reached")
        except OSError as error:
            raise BadCheckpoint(f"cannot read {self.path}: {error.strerror}") from None
        except Exception:
            raise BadCheckpoint(f"{self.path} is no checkpoint of a search; name another file") from None
        if about != self.about:
            raise BadCheckpoint(f"{self.path} is about another search, {str(about)[:60]!r}; name another file")
        return progress, states

    def save(self, progress: Progress, states: dict[bytes, WorldState]) -> None:
        """Write it whole or not at all. Raises BadCheckpoint."""
        with _as_bad_checkpoint(), replacing(self.path, READABLE) as file:
            pickle.dump((FORMAT, self.about, progress, states), file, 5)


@contextmanager
def _as_bad_checkpoint() -> Iterator[None]:
    try:
        yield
    except CannotWrite as error:
        raise BadCheckpoint(str(error)) from None


def code_version() -> str:
    """Names the code that made the states: a search is not gone on with after the machines have changed."""
    rooms = Path(__file__).parent.parent
    files = sorted(path for room in ("pool", "protocol", "sim", "lab") for path in (rooms / room).rglob("*.py"))
    return hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=8).hexdigest()


class _Reader(pickle.Unpickler):
    """Reads states and nothing that could run: a checkpoint is data, whoever wrote it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        ours = module.startswith(("pagefence.sim.", "pagefence.protocol.", "pagefence.pool."))
        found = super().find_class(module, name) if ours else None
        # Defined there: a name that a module only imports, or reaches through a dot, may be anything.
        if not isinstance(found, type) or found.__module__ != module:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a checkpoint")
        return found


_PLAIN = {
    ("collections", "deque"),
    ("builtins", "set"),
    ("builtins", "frozenset"),
    ("immutables", "Map"),
    ("immutables._map", "Map"),
    ("immutables.map", "Map"),
    ("copyreg", "_reconstructor"),
    ("builtins", "object"),
    ("msgspec._core", "rebuild"),
    ("msgspec", "rebuild"),
}
