"""Hand-driven recordings: the stage of the protocol's tests, with a tape running beside each machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pagefence.protocol import recording
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Effects
from pagefence.protocol.messages import ChunkComputed, WorkerRef
from pagefence.protocol.recording import Closing, Ended, Input, Raised, Record, State, Stepped
from pagefence.sim.correspondence import Correspondence, check_recordings
from tests.protocol.processes import Process, token
from tests.protocol.stage import ROUTER, Stage

P, D = WorkerRef("p", 1), WorkerRef("d", 1)
Tape = list[Record]


class RecordedStage(Stage):
    """A stage whose `tapes` can be cut, forged and written to a folder."""

    def __init__(self, decisions: Decisions | None = None, **sizes: int) -> None:
        self.tapes: dict[WorkerRef, Tape] = {}
        super().__init__(decisions, **sizes)

    def tell_router(self, message: Any) -> Effects:
        tape = self._tape(ROUTER, self.router)
        effects = super().tell_router(message)
        tape.append(Stepped(message, recording.told(effects)))
        return effects

    def tell(self, process: Process, message: Any) -> Effects:
        if isinstance(message, ChunkComputed) and message.first_token is not None:
            message = msgspec.structs.replace(message, first_token=token(message.room, 0))
        tape = self._tape(process.ref, process.state)
        effects = super().tell(process, message)
        tape.append(Stepped(message, recording.told(effects)))
        return effects

    def _tape(self, ref: WorkerRef, state: State) -> Tape:
        return self.tapes.setdefault(ref, [recording.began(state)])

    def stop(self) -> RecordedStage:
        """Everybody who lives ends in order."""
        self.tapes[ROUTER].append(Closing())
        crashed = {P: self.p.crashed, D: self.d.crashed}
        for ref, tape in self.tapes.items():
            if not crashed.get(ref):
                tape.append(Ended())
        return self

    def index(self, ref: WorkerRef, kind: type, nth: int = 0) -> int:
        """Where on a tape the nth input of this kind lies; envelopes by their body."""
        found = [
            i
            for i, record in enumerate(self.tapes[ref])
            if isinstance(record, Stepped) and isinstance(getattr(record.message, "body", record.message), kind)
        ]
        return found[nth]

    def forge(self, ref: WorkerRef, at: int, message: Input, effects: tuple[bytes, ...] = ()) -> None:
        """Say that the machine received something."""
        self.tapes[ref].insert(at, Stepped(message, effects))

    def check(self, folder: Path, decisions: Decisions | None = None) -> Correspondence:
        """Write the tapes down and replay them."""
        for ref, tape in self.tapes.items():
            write(folder, ref, tape)
        return check_recordings(folder, decisions)


def write(folder: Path, ref: WorkerRef, tape: Sequence[Record]) -> Path:
    """One file."""
    path = folder / recording.file_name(ref)
    path.write_bytes(b"".join(recording.frame(i, record) for i, record in enumerate(tape)))
    return path


def raised(message: Input) -> Raised:
    """A step that ended in an exception."""
    return Raised(message, "AssertionError()")
