"""Fault x detector, by running it: every fault must be caught by something, for its own reason.

A finished cell is kept (`Results`), so a long run can be stopped and gone on with, and a later change reruns what it
wants to.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from pagefence.files import READABLE, write_atomically
from pagefence.lab.exercise import NO_FAULT, exercise
from pagefence.lab.exercised import Exercised, Kind
from pagefence.lab.fault import Fault
from pagefence.lab.guards import NONE
from pagefence.lab.randomly import Seeds, play_seeds
from pagefence.mistakes import CouldNotAsk, Mistake
from pagefence.protocol.decisions import GUARDS
from pagefence.sim.explorer import Result, Search, explore
from pagefence.sim.world import World
from pagefence.sim.worlds import SOMETIMES

SCHEMA_VERSION = 1
CONTROL = NO_FAULT
# Column of a probe -> the probe, and the kinds of finding that the column is about.
PROBED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "gate": ("gate", ("FAIL",)),
    "boundary": ("boundary", ("FAIL", "CORRUPT")),
    "canary": ("canary", ("LEAK",)),
    "own recall": ("canary", ("CORRUPT",)),
    "salt probe": ("salt", ("LEAK", "CORRUPT", "FAIL")),
    "token counts": ("conservation", ("CORRUPT",)),
    "latency floor": ("latency", ("CORRUPT", "FAIL")),
}
EXERCISES: Mapping[str, str] = {"exercise, guards on": "on", "exercise, guards off": "off"}
ENGINE = (*PROBED, *EXERCISES)
SEEDS, EVENTS, SECONDS = 200, 200, 60.0


class Mark(StrEnum):
    """What a detector did with a fault. HOLDS: nothing foreign reaches a client under these guards, LEAKS: something
    does; CORRUPT: a wrong token of nobody else's does; VOID: nothing was exercised."""

    CAUGHT = "caught"
    HOLDS = "holds"
    LEAKS = "leaks"
    CORRUPT = "corrupt"
    SILENT = "silent"
    OTHER = "other reason"
    CANNOT = "cannot show"
    NOT_RUN = "not run"
    VOID = "void"


class Cell(msgspec.Struct, frozen=True):
    """One cell: what happened, and in a few words what was seen."""

    mark: Mark
    text: str = ""


class BadResults(Mistake):
    """The file of earlier results cannot be read, or a run that should give some gave none."""


Row = dict[str, Cell]
# Column -> which guards are in force in it; asked is whether anything of another request reaches a client.
GUARDED: Mapping[str, str] = {"no guard": NONE, **{f"{g} alone": g for g in GUARDS}, "guards on": "on"}
COLUMNS: tuple[str, ...] = ("explorer", "simulation", *GUARDED, "conservation", *ENGINE)


@dataclass(slots=True)
class Results:
    """Cells by fault and detector, kept in `path` when there is one."""

    rows: dict[str, Row]
    path: Path | None = None

    @classmethod
    def at(cls, path: Path | None) -> Results:
        """What the file holds, or nothing. Raises BadResults."""
        if path is None or not path.exists():
            return cls({}, path)
        try:
            said = msgspec.json.decode(path.read_bytes())
            rows = msgspec.convert(said["faults"], dict[str, Row])
        except (OSError, KeyError, TypeError, msgspec.MsgspecError) as error:
            raise BadResults(f"{path} holds no results of the matrix: {error}") from None
        return cls(rows, path)

    def put(self, fault: str, column: str, cell: Cell) -> None:
        """Keep a cell, beside what another run has put there meanwhile. Raises BadResults, CannotWrite."""
        if self.path is None:
            self.rows.setdefault(fault, {})[column] = cell
            return
        self.rows = Results.at(self.path).rows
        self.rows.setdefault(fault, {})[column] = cell
        write_atomically(self.path, json.dumps(self.as_json(), indent=1).encode() + b"\n", READABLE)

    def get(self, fault: str, column: str) -> Cell:
        """A cell; NOT_RUN when there is none yet."""
        return self.rows.get(fault, {}).get(column, Cell(Mark.NOT_RUN))

    def uncaught(self, faults: Iterable[str]) -> list[str]:
        """Faults that no detector caught for their own reason."""
        return [name for name in faults if not any(self.get(name, c).mark is Mark.CAUGHT for c in COLUMNS)]

    def loud(self) -> list[str]:
        """Detectors that raised something where no fault is."""
        return [c for c in COLUMNS if self.get(CONTROL, c).mark in (Mark.CAUGHT, Mark.OTHER, Mark.VOID)]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "schema_version": SCHEMA_VERSION,
            "columns": list(COLUMNS),
            "faults": {
                name: {c: {"mark": str(self.get(name, c).mark), "text": self.get(name, c).text} for c in COLUMNS}
                for name in self.rows
            },
        }


Work = tuple[str, str, Callable[[], Cell]]


def quick(faults: Mapping[str, Fault], cores: int) -> Iterator[Work]:
    """The cells that explorer and simulator fill: seconds each."""
    search = Search(cores=cores, most_seconds=SECONDS)
    for name, fault in faults.items():
        yield name, "explorer", _cell(_explored, fault, "off", search)
        yield name, "simulation", _cell(_simulated, name, fault, cores)
        yield from guarded(fault, search)
        yield name, "conservation", _cell(_conserved, fault, search)


def guarded(fault: Fault, search: Search) -> Iterator[Work]:
    """The cells that say whether other requests' bytes or tokens reach a client under some guards alone."""
    for column, spec in GUARDED.items():
        yield fault.name, column, _cell(_guarded, fault, spec, search)


def control(fault: Fault, search: Search) -> Cell:
    """The same small world without the fault and with every guard: nothing may be found."""
    result = explore(World(fault.bounds), search)
    if result.found is not None:
        return Cell(Mark.OTHER, f"{result.found.rule} without a fault")
    return Cell(Mark.SILENT, f"{len(result.progress.known):,} states") if _exercised(result) else Cell(Mark.VOID)


def _cell(make: Callable[..., Cell], *about: Any) -> Callable[[], Cell]:
    return lambda: make(*about)


def _explored(fault: Fault, guards: str, search: Search) -> Cell:
    return _judged(fault, explore(fault.small_world(guards), search))


def _judged(fault: Fault, result: Result) -> Cell:
    found, states = result.found, f"{len(result.progress.known):,} states"
    if found is not None:
        mark = Mark.CAUGHT if found.rule in fault.rules else Mark.OTHER
        return Cell(mark, f"{found.rule} after {len(found.path)} moves")
    if not result.complete:
        return Cell(Mark.VOID, f"not finished: {states}")
    return Cell(Mark.SILENT, states) if _exercised(result) else Cell(Mark.VOID, "nothing was exercised")


def _exercised(result: Result) -> bool:
    """A page was reused, a request was refused or aborted: the run went where bugs live."""
    return any(what in result.progress.sometimes for what in SOMETIMES) or _refused(result)


def _refused(result: Result) -> bool:
    return any(what.startswith("a client got") for what in result.progress.sometimes)


def _guarded(fault: Fault, guards: str, search: Search) -> Cell:
    """Only these guards in force: does anything of another request reach a client?"""
    result = explore(replace(fault.small_world(guards), only_harm=True, forgiving=True), search)
    if result.found is not None:
        return Cell(Mark.LEAKS, f"{result.found.rule} after {len(result.found.path)} moves")
    if not result.complete:
        return Cell(Mark.VOID, f"not finished: {len(result.progress.known):,} states")
    by = sorted(
        what.removeprefix("contained by ") for what in result.progress.sometimes if what.startswith("contained")
    )
    if not by and "attention read its pages" not in result.progress.sometimes and not _refused(result):
        return Cell(Mark.VOID, "nothing was read and nobody was refused")
    return Cell(Mark.HOLDS, ", ".join(by) or f"{len(result.progress.known):,} states")


def _conserved(fault: Fault, search: Search) -> Cell:
    """Only I6 is watched: do pages and tokens add up?"""
    world = replace(fault.small_world("off"), watched=frozenset({"I6"}), forgiving=True)
    result = explore(world, replace(search, most_states=20_000))
    if result.found is not None:
        return Cell(Mark.CAUGHT if "I6" in fault.rules else Mark.OTHER, "I6")
    return Cell(Mark.SILENT, f"{len(result.progress.known):,} states")


def _simulated(name: str, fault: Fault, cores: int) -> Cell:
    seeds = Seeds(0, SEEDS, EVENTS, fault=name, cores=cores)
    for number, played in enumerate(play_seeds(seeds), 1):
        if played.rule is not None:
            mark = Mark.CAUGHT if played.rule in fault.rules else Mark.OTHER
            return Cell(mark, f"{played.rule}, seed {number - 1}")
    return Cell(Mark.SILENT, f"{SEEDS} seeds")


# --- the real engine ----------------------------------------------------------------------------------------------


def exercised(faults: Mapping[str, Fault]) -> Iterator[Work]:
    """Two exercises of a real fleet per fault: half a minute each."""
    for column, guards in EXERCISES.items():
        for name, fault in faults.items():
            yield name, column, _cell(_exercise, fault, guards)


def probed(faults: Mapping[str, Fault]) -> Iterator[Work]:
    """A run of `pagefence verify` per fault: two minutes each."""
    for name, fault in faults.items():
        off = _Verified(fault, "off")
        for column in PROBED:
            yield name, column, _cell(_probed, fault, off, column)


class _Verified:
    """One run of `pagefence verify`, made when the first cell asks for it."""

    def __init__(self, fault: Fault, guards: str) -> None:
        self._arguments = ["--fault", fault.name, "--guards", guards] if fault.name != CONTROL else []
        if "headroom" in fault.world:  # what the fleet is held against is a part of its world
            self._arguments += ["--headroom", str(fault.world["headroom"])]
        self._report: dict[str, Any] | None = None

    def report(self) -> dict[str, Any]:
        """Its JSON report. Raises BadResults when it gave none."""
        if self._report is None:
            with tempfile.TemporaryDirectory(prefix="pagefence-lab-") as folder:
                path = Path(folder) / "report.json"
                command = [sys.executable, "-m", "pagefence", "verify", *self._arguments, "--seed", "1"]
                done = subprocess.run([*command, "--json", str(path)], capture_output=True, text=True, check=False)
                if not path.exists():
                    raise BadResults(f"{' '.join(command[2:])} gave no report: {done.stderr.strip()[-300:]}")
                self._report = json.loads(path.read_text(encoding="utf-8"))
        return self._report


def _probed(fault: Fault, verified: _Verified, column: str) -> Cell:
    if fault.not_in_engine:
        return Cell(Mark.CANNOT, fault.not_in_engine)
    if fault.needs_hang_ups:
        return Cell(Mark.CANNOT, "no probe hangs up")
    probe, kinds = PROBED[column]
    report = verified.report()
    found = [e for e in report["evidence"] if e["probe"] == probe and e["kind"] in kinds]
    if found:
        return Cell(Mark.CAUGHT, f"{found[0]['kind']}: {found[0]['check']}")
    doubt = _doubt(report, probe)
    return Cell(Mark.SILENT) if doubt is None else Cell(Mark.VOID, doubt[:120])


def _doubt(report: Mapping[str, Any], probe: str) -> str | None:
    """Why the silence of a probe says nothing; None when it asked all that it wanted to and could have shown it."""
    open_ = [e for e in report["evidence"] if e["probe"] == probe and e["kind"] == "INCONCLUSIVE"]
    if open_:  # a control that did not hold is one of these
        return str(open_[0]["what"])
    said = next((p for p in report["probes"] if p["name"] == probe), None)
    if said is None or report["interrupted"] or not said["finished"] or not said["checks"]:
        return str(report["sentence"])
    return "no answer could have shown anything" if probe == "canary" and not said["shown"] else None


def _exercise(fault: Fault, guards: str) -> Cell:
    if fault.not_in_engine:
        return Cell(Mark.CANNOT, fault.not_in_engine)
    try:
        done = exercise(fault, guards, lambda _: None)
    except CouldNotAsk as error:
        return Cell(Mark.VOID, str(error).splitlines()[0][:120])
    if done.verdict == "nothing exercised":
        return Cell(Mark.VOID, done.verdict)
    if fault.name == CONTROL:
        return Cell(Mark.SILENT if done.all_right else Mark.OTHER, done.told)
    return _shown(fault, done) if guards == "off" else _held(done)


# What an exercise shows -> the rules whose breach looks like that from outside.
_SIGNS: Mapping[str, tuple[str, ...]] = {
    "wrong tokens": ("I1", "I2", "I4", "I6", "I7", "I10"),
    "another tenant's cache": ("I7",),
    "contained by readiness": ("I8",),
    "contained": ("I1", "I2", "I4", "I6"),
    "not at rest": ("I6", "I2"),
    "short": ("I5", "I6"),
    "no answer": ("I3", "I5", "I9"),
    "broken off": ("I3", "I5", "I9"),
}


def _shown(fault: Fault, done: Exercised) -> Cell:
    """Does the fault show from outside, as one that breaks these rules would?"""
    if done.verdict == "right":
        return Cell(Mark.SILENT, done.told)
    own = next((rules for word, rules in _SIGNS.items() if done.verdict.startswith(word)), ())
    return Cell(Mark.CAUGHT if set(own) & set(fault.rules) else Mark.OTHER, done.told)


def _held(done: Exercised) -> Cell:
    """With every guard that the fault leaves standing: no foreign token may reach a client, nor a foreign cache."""
    if done.foreign or done[Kind.BORROWED]:
        return Cell(Mark.LEAKS, done.told)
    return Cell(Mark.CORRUPT if done[Kind.WRONG] else Mark.HOLDS, done.told)
