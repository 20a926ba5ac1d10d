"""The practical floor: half of what the fastest certified run of this fleet needed for as many uncached tokens.

Certified means: taken in a run that ended CLEAN. A calibration belongs to one model, engine and version. For a prompt
of u uncached tokens it takes the fastest answer to prompts that were all no longer than u, so it extends to any length
and never says more than was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from pagefence.files import write_atomically
from pagefence.fleet.facts import FleetFacts, NodeFacts
from pagefence.mistakes import Usage
from pagefence.probes.latency.buckets import buckets
from pagefence.probes.latency.points import Point
from pagefence.probes.latency.sketch import Sketch

SCHEMA_VERSION = 1
SHARE = 0.5
LEAST = 3  # answers that a bucket needs
_UNKNOWN = ""
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Level(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers to prompts of similar length: how many, the longest prompt of them, and how fast they came."""

    longest_tokens: _Count
    answers: _Count
    fastest_s: _Seconds
    p5_s: _Seconds
    p50_s: _Seconds


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a certified run measured, and of what."""

    schema_version: int = SCHEMA_VERSION
    model: str
    engine: str
    version: str
    hardware: dict[str, str]
    taken: str
    levels: list[Level]

    def floor_s(self, uncached: int) -> float:
        """Seconds under which an answer is too fast; 0 below the shortest calibrated prompt."""
        return SHARE * max((level.fastest_s for level in self.levels if level.longest_tokens <= uncached), default=0.0)

    def refusal(self, facts: FleetFacts) -> str | None:
        """Why this calibration says nothing about that fleet, if it does not."""
        model, engine, version = identity(facts)
        for name, mine, theirs in (
            ("model", self.model, model),
            ("engine", self.engine, engine),
            ("engine version", self.version, version),
        ):
            if mine != theirs:
                return f"the calibration is of {name} {mine or 'unknown'}, and this fleet says {theirs or 'nothing'}"
        return None


def identity(facts: FleetFacts) -> tuple[str, str, str]:
    """Model, engine and version of what computes prompts; "" where it does not tell."""
    node = _computes(facts)
    model = facts.model or (node.model if node else None)
    return model or _UNKNOWN, (node.engine if node else None) or _UNKNOWN, (node.version if node else None) or _UNKNOWN


def _computes(facts: FleetFacts) -> NodeFacts | None:
    return next((node for node in facts.nodes if node.role != "decode"), None)


def calibrate(facts: FleetFacts, points: Iterable[Point], limits: Iterable[int]) -> Calibration | str:
    """From the streamed answers of a certified run, or why not."""
    model, engine, version = identity(facts)
    silent = [n for n, v in (("model", model), ("engine", engine), ("engine version", version)) if not v]
    if silent:
        return f"this fleet does not tell its {' and '.join(silent)} (--declare engine=..., version=...)"
    spread, found = buckets(limits), dict[int, tuple[Sketch, int]]()
    for point in points:
        bucket = spread.of(point.uncached_tokens)
        sketch, longest = found.get(bucket, (Sketch(), 0))
        sketch.add(point.ttft_s)
        found[bucket] = (sketch, max(longest, point.uncached_tokens))
    levels = [
        Level(
            longest_tokens=longest,
            answers=sketch.n,
            fastest_s=sketch.least,
            p5_s=sketch.quantile(0.05),
            p50_s=sketch.quantile(0.5),
        )
        for _, (sketch, longest) in sorted(found.items())
        if sketch.n >= LEAST and longest
    ]
    if len(levels) < 2:
        return f"fewer than two lengths had {LEAST} answers each"
    node = _computes(facts)
    hardware = {} if node is None else {name: f"{f.value}" for name, f in node.speed.items() if f.value is not None}
    taken = datetime.now(tz=UTC).isoformat(timespec="seconds")
    return Calibration(model=model, engine=engine, version=version, hardware=hardware, taken=taken, levels=levels)


def read(path: Path) -> Calibration:
    """Raises Usage, which names the file, for one that cannot be read or is no calibration."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except OSError as error:
        raise Usage(f"cannot read the calibration {path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Usage(f"{path} is no calibration: {error}") from None
    if found.schema_version != SCHEMA_VERSION:
        raise Usage(f"{path} has calibration schema {found.schema_version}, this version reads {SCHEMA_VERSION}")
    return found


def write(path: Path, calibration: Calibration) -> None:
    """Raises CannotWrite."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n")


def declared(calibration: Calibration, software: Mapping[str, str], model: str | None) -> str | None:
    """For a log or a metrics server, which tell nothing of their fleet: why what was declared does not fit."""
    said = (
        ("model", calibration.model, model),
        *((n, getattr(calibration, n), software.get(n)) for n in ("engine", "version")),
    )
    for name, mine, theirs in said:
        if theirs is None:
            how = "--declare engine=..., version=..., and --model-name"
            return f"the calibration is of {name} {mine}, and nobody said of which this is ({how})"
        if mine != theirs:
            return f"the calibration is of {name} {mine}, and this is declared as {theirs}"
    return None
