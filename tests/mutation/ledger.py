"""What is known: one JSON line per judged mutant, appended at once, so that a run can be stopped anywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from .mutants import Mutant
from .session import Survey

Outcome = Literal["killed", "survived", "out of time", "never run"]


class Entry(msgspec.Struct, frozen=True):
    """`source`: digest of the function. `by`, `test`: the test that noticed, and its digest. `tests`: digest of all."""

    file: str
    scope: str
    change: str
    source: str
    outcome: Outcome
    by: str = ""
    test: str = ""
    tests: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """As the mutant's."""
        return self.file, self.scope, self.change

    @property
    def noticed(self) -> bool:
        """A mutant that never ends, or dies, does not go unnoticed."""
        return self.outcome in ("killed", "out of time")


class Ledger:
    """The newest entry of each mutant."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[tuple[str, str, str], Entry] = {}
        lines = path.read_bytes().splitlines() if path.exists() else []
        for line in lines:
            try:
                entry = msgspec.json.decode(line, type=Entry)
            except msgspec.DecodeError:
                continue  # the line that was being written when the run was stopped
            self.entries[entry.key] = entry

    def add(self, entry: Entry) -> None:
        """Remember it, also after a crash."""
        self.entries[entry.key] = entry
        with self.path.open("ab") as file:
            file.write(b"\n" + msgspec.json.encode(entry))

    def verdict(self, mutant: Mutant, survey: Survey) -> Entry | None:
        """The entry, if it still holds: same function, and the test that noticed (or all that did not) unchanged."""
        entry = self.entries.get(mutant.key)
        if entry is None or entry.source != mutant.source:
            return None
        if entry.outcome == "killed" and entry.test:
            known = survey.get(entry.by)
            return entry if known is not None and known.source == entry.test else None
        if entry.noticed:
            return entry
        return entry if entry.tests == digest_of(survey) else None


def digest_of(survey: Survey) -> str:
    """Of all tests."""
    return _digest(f"{name} {known.source}" for name, known in sorted(survey.items()))


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
