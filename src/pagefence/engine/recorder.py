"""Writes down what a machine receives and what it does, for `pagefence.sim.correspondence`. For test fleets.

A step is on file before any of its effects is carried out, so whatever reached anybody is recorded, whenever the
process dies. The files hold prompts: they are the owner's alone, in a folder that is the owner's alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pagefence.protocol import recording
from pagefence.protocol.effects import Effects
from pagefence.protocol.recording import Closing, Ended, Raised, Record, State, Stepped

S = TypeVar("S")
Step = Callable[[S, Any], tuple[S, Effects]]


def prepare(folder: Path) -> None:
    """Make the folder, mode 0700. Raises ValueError when something lies in it already, OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"--record needs an empty folder; {folder} has files in it")
    folder.chmod(0o700)


class Recorder:
    """The recording of one incarnation, appended to until it ends. A step that cannot be recorded raises OSError."""

    def __init__(self, folder: Path, state: State) -> None:
        began = recording.began(state)
        if recording.first_state(began) != state:
            raise ValueError(f"{began.me} does not begin in a state that a recording can name")
        path = folder / recording.file_name(began.me)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._count = 0
        self._write(began)

    def around(self, step: Step[S]) -> Step[S]:
        """The same step, recorded."""

        def recorded(state: S, message: Any) -> tuple[S, Effects]:
            try:
                after, effects = step(state, message)
            except Exception as error:
                self._write(Raised(message, repr(error)))
                raise
            self._write(Stepped(message, recording.told(effects)))
            return after, effects

        return recorded

    def closing(self) -> None:
        """From here on nothing is sent to workers."""
        self._write(Closing())

    def end(self) -> None:
        """The process ends in order. A timer that still fires reaches nobody, and is not recorded."""
        self._write(Ended())
        os.close(self._file)
        self._file = -1

    def _write(self, record: Record) -> None:
        if self._file < 0:
            return
        left = memoryview(recording.frame(self._count, record))
        self._count += 1
        while left:
            left = left[os.write(self._file, left) :]
