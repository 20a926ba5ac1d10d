"""The table `[watching]` of `edge.toml`, and what it stands for. All of it raises Usage, before anything serves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from pagefence.edge.watching.actions import USUAL, Action, Actions
from pagefence.edge.watching.finding import Kind
from pagefence.edge.watching.generations import SLOT_BYTES, Bounds
from pagefence.fleet.facts import SPEED
from pagefence.mistakes import Usage
from pagefence.probes.latency import calibration
from pagefence.probes.latency.floor import physics
from pagefence.probes.latency.tally import Floors

_KINDS = tuple(kind.value for kind in Kind)
_TABLES = 2
PUBLIC_BYTES = 32 * 1024 * 1024
"""Of all public texts together; eight times as much memory is taken for them."""


class WatchTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the operator says. docs/reference/edge-file.md has every name.

    memory_mib  of fingerprints of prompts; rounded down to a power of two
    age         seconds after which a table of them takes no more
    """

    on: bool = True
    buffered: bool = False
    scan: bool = True
    memory_mib: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 32
    age: Annotated[float, msgspec.Meta(gt=0, le=604_800)] = 1800.0
    public: list[str] = []
    sentinels: str | None = None
    sees_all: bool = False
    alert_env: str | None = None
    doubts_too: bool = False
    actions: dict[str, list[Literal["log", "metric", "alert", "quarantine", "cut"]]] = {}
    floor: dict[str, Annotated[int, msgspec.Meta(ge=1, le=2**53)]] = {}
    calibration: str | None = None
    calibrated: dict[str, str] = {}


def actions_of(said: WatchTable) -> Actions:
    """The usual ones, but for the kinds that are named."""
    unknown = next((name for name in said.actions if name not in _KINDS), None)
    if unknown is not None:
        raise Usage(f"watching.actions: {unknown[:80]!r} is no kind of finding; there are {', '.join(_KINDS)}")
    chosen = {Kind(name): frozenset(map(Action, listed)) for name, listed in said.actions.items()}
    return Actions({**USUAL, **chosen}, said.doubts_too)


def bounds_of(said: WatchTable) -> Bounds:
    """Two tables that together are no larger than was said."""
    slots = (said.memory_mib << 20) // (SLOT_BYTES * _TABLES)
    return Bounds(slots_log2=slots.bit_length() - 1, generations=_TABLES, age_s=said.age)


def floors_of(said: WatchTable, folder: Path) -> Floors | None:
    """What times are held against; None where nothing was declared.

    A calibration says nothing about another fleet (detection: a floor belongs to model, engine and version), so the
    three have to be declared beside it.
    """
    unknown = next((name for name in said.floor if name not in SPEED), None)
    if unknown is not None:
        raise Usage(f"watching.floor: {unknown[:80]!r} is no figure of a floor; there are {', '.join(SPEED)}")
    known = physics(said.floor)
    if said.floor and isinstance(known, str):
        raise Usage(f"watching.floor: {known}")
    if said.calibration is None:
        return Floors(known) if said.floor else None
    taken = calibration.read(folder / Path(said.calibration).expanduser())
    _fits(taken, said.calibrated)
    return Floors(known, taken)


def public_texts(said: WatchTable, folder: Path) -> list[bytes]:
    """The files that are named; a pattern that names none is a mistake."""
    texts, left = list[bytes](), PUBLIC_BYTES
    for pattern in said.public:
        files = _files(pattern, folder)
        if not files:
            raise Usage(f"watching.public: {pattern[:120]!r} names no file")
        for each in files:
            try:
                with each.open("rb") as file:
                    texts.append(file.read(left + 1))
            except OSError as error:
                raise Usage(f"watching.public: cannot read {each}: {error.strerror}") from None
            left -= len(texts[-1])
            if left < 0:
                raise Usage(f"watching.public: with {each} these texts are more than {PUBLIC_BYTES:,} bytes")
    return texts


def _files(pattern: str, folder: Path) -> list[Path]:
    try:
        path = Path(pattern).expanduser()
        found = sorted(Path(path.anchor or folder).glob(str(path.relative_to(path.anchor)))) if pattern else []
        return [each for each in found if each.is_file()]
    except (IndexError, RuntimeError, ValueError, OSError):  # what pathlib says of what is no pattern
        return []


def _fits(taken: calibration.Calibration, declared: Mapping[str, str]) -> None:
    for name in ("model", "engine", "version"):
        mine, theirs = getattr(taken, name), declared.get(name)
        if mine != theirs:
            why = "nobody said of which this fleet is" if theirs is None else f"this fleet is declared as {theirs!r}"
            raise Usage(f"watching.calibration is of {name} {mine!r}, and {why}: watching.calibrated says {name}")
