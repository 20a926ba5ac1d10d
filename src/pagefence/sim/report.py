"""What explorer and simulator found, for a person and for a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from pagefence.sim.bounds import Bounds
from pagefence.sim.explorer import Progress, Result
from pagefence.sim.worlds import expected

SCHEMA_VERSION = 1
FAIRNESS = "nothing more goes wrong, and what can happen again and again is not put off for ever"


@dataclass(frozen=True, slots=True)
class Explored:
    """One searched world. `missing`: what a complete search of it should have seen and has not."""

    bounds: Bounds
    about: str
    result: Result
    required: bool = True

    @property
    def missing(self) -> tuple[str, ...]:
        """Interesting things that never happened."""
        if not self.required or self.result.found is not None:
            return ()
        return tuple(what for what in expected(self.bounds) if what not in self.result.progress.sometimes)

    @property
    def verdict(self) -> str:
        """VIOLATION, INCOMPLETE, UNREACHED or HOLDS."""
        if self.result.found is not None:
            return "VIOLATION"
        if not self.result.complete:
            return "INCOMPLETE"
        return "UNREACHED" if self.missing else "HOLDS"


def summary(explored: Sequence[Explored]) -> Table:
    """One row per world."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("world", no_wrap=True)
    for name in ("states", "raw seen", "moves", "seconds", "states/s", "MiB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("rules", no_wrap=True)
    for one in explored:
        p = one.result.progress
        colour = {"HOLDS": "green", "VIOLATION": "red"}.get(one.verdict, "yellow")
        figures = (len(p.known), len(p.raw), p.transitions, round(p.seconds, 1), round(rate(p)), mib(one.result))
        cells = [f"{figure:,}" for figure in figures]
        table.add_row(one.bounds.name, *cells, f"[{colour}]{one.verdict}[/]")
    return table


def reached(explored: Sequence[Explored]) -> Table:
    """The *sometimes* properties, and where each was reached."""
    names = dict.fromkeys(what for one in explored for what in expected(one.bounds))
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("sometimes", no_wrap=True)
    table.add_column("reached in", overflow="fold", ratio=1)
    for what in names:
        where = [one.bounds.name for one in explored if what in one.result.progress.sometimes]
        table.add_row(what, ", ".join(where) if where else "[yellow]nowhere[/]")
    return table


def rate(p: Progress) -> float:
    """States per second."""
    return p.expanded / p.seconds if p.seconds else 0.0


def mib(result: Result) -> int:
    """Peak memory of all processes."""
    return result.memory_bytes >> 20


def as_json(explored: Sequence[Explored], exit_code: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """For machines."""
    return {
        "schema_version": SCHEMA_VERSION,
        "exit_code": exit_code,
        "fairness": FAIRNESS,
        **more,
        "worlds": [_world(one) for one in explored],
    }


def _world(one: Explored) -> dict[str, Any]:
    p, found = one.result.progress, one.result.found
    return {
        "name": one.bounds.name,
        "about": one.about,
        "verdict": one.verdict,
        "states": len(p.known),
        "raw_states_seen": len(p.raw),
        "moves": p.transitions,
        "seconds": round(p.seconds, 2),
        "memory_bytes": one.result.memory_bytes,
        "complete": one.result.complete,
        "rests": one.result.rests,
        "sometimes": sorted(p.sometimes),
        "missing": list(one.missing),
        "violation": None
        if found is None
        else {
            "rule": found.rule,
            "message": found.message,
            "moves": [str(move) for move in found.path],
            "path": ".".join(map(str, found.numbers)),
        },
    }
