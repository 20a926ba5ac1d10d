"""The recordings of one fleet, from a folder. Whatever is foreign, damaged or missing is an error, never left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pagefence.mistakes import CouldNotAsk
from pagefence.protocol import recording
from pagefence.protocol.messages import WorkerRef
from pagefence.protocol.recording import (
    FORMAT,
    BadRecording,
    Began,
    Closing,
    DecodeBegan,
    Ended,
    PrefillBegan,
    Raised,
    Record,
    RouterBegan,
    State,
    Stepped,
)


class BadRecordings(CouldNotAsk):
    """The folder cannot be read as the recordings of one fleet; nothing is said about the fleet."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One incarnation. Record 0 is its configuration, so `after[i]` is record i + 1. `ended`: in order, by its word."""

    file: str
    began: Began
    first: State
    after: tuple[Stepped | Raised | Closing, ...]
    ended: bool

    @property
    def me(self) -> WorkerRef:
        """Whose it is."""
        return self.began.me

    @property
    def steps(self) -> int:
        """How many inputs the machine took."""
        return sum(not isinstance(record, Closing) for record in self.after)


def load(folder: Path) -> tuple[Recording, ...]:
    """All recordings, the router's first. Raises BadRecordings."""
    try:
        paths = sorted(folder.iterdir())
        contents = [(path.name, path.read_bytes()) for path in paths]
    except OSError as error:
        raise BadRecordings(f"cannot read {error.filename or folder}: {error.strerror}") from None
    found = tuple(_parse(name, data) for name, data in contents)
    routers = [r for r in found if isinstance(r.began, RouterBegan)]
    if len(routers) != 1:
        raise BadRecordings(f"{folder} has the recordings of {len(routers)} routers; it takes exactly one")
    workers = tuple(r for r in found if r is not routers[0])
    for role, kind in (("prefill", PrefillBegan), ("decode", DecodeBegan)):
        if not any(isinstance(worker.began, kind) for worker in workers):
            raise BadRecordings(f"{folder} has no recording of a {role} worker")
    for worker in workers:
        if isinstance(worker.began, RouterBegan) or worker.began.router != routers[0].me:
            raise BadRecordings(f"{worker.file} is of another fleet: its router is not {routers[0].me}")
    if not routers[0].steps or not any(worker.steps for worker in workers):
        raise BadRecordings(f"{folder} records no step, so it shows nothing")
    return (routers[0], *workers)


def _parse(name: str, data: bytes) -> Recording:
    try:
        records = recording.read(data).records
    except BadRecording as error:
        raise BadRecordings(f"{name}: {error}") from None
    if not records:
        raise BadRecordings(f"{name} names no configuration")
    began, *after = records
    if not isinstance(began, RouterBegan | PrefillBegan | DecodeBegan) or began.format != FORMAT:
        raise BadRecordings(f"{name} does not begin with a configuration of format {FORMAT}")
    if name != recording.file_name(began.me):
        raise BadRecordings(f"{name} is the recording of {began.me}: that file has another name")
    try:
        first = recording.first_state(began)
    except ValueError as error:
        raise BadRecordings(f"{name}: {error}") from None
    ended = bool(after) and isinstance(after[-1], Ended)
    return Recording(name, began, first, tuple(_step(name, record) for record in after[: len(after) - ended]), ended)


def _step(name: str, record: Record) -> Stepped | Raised | Closing:
    if isinstance(record, Stepped | Raised | Closing):
        return record
    raise BadRecordings(f"{name} has a {type(record).__name__} in its middle")
