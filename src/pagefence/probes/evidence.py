"""What a probe hands over: rows of what was checked, findings with their kind, and how much it could have shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pagefence.probes.latency.points import Plot


class Kind(StrEnum):
    """What a finding means. The order is the precedence of verdicts."""

    LEAK = "LEAK"
    CORRUPT = "CORRUPT"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Check:
    """One row of a probe's table. `kind` None means that it is as it should be, unless it is `undecided`: then the row
    could not decide, and nothing hangs on it."""

    id: str
    where: str
    text: str
    kind: Kind | None = None
    undecided: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """One finding: what was seen, where, which rule it touches, what to do, and how to see it again."""

    kind: Kind
    probe: str
    check: str
    where: str
    what: str
    rule: str | None = None
    guard: str | None = None
    remedy: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


def doubt(
    probe: str,
    what: str,
    remedy: str | None = None,
    check: str = "control",
    where: str = "",
    details: Mapping[str, object] | None = None,
) -> Evidence:
    """The finding that something is open."""
    return Evidence(Kind.INCONCLUSIVE, probe, check, where, what, remedy=remedy, details=details or {})


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe's outcome.

    shown     answers that could have shown what the probe seeks (the canary: foreign text)
    seeks     the kind of finding that these answers could have led to
    refused   requests refused as they should be (they prove the limit, not the absence of a leak)
    controls  positive controls, where what is sought is there and must show (the canary: own recall): (held, asked)
    plot      times against lengths, for a report to draw
    claim     what a clean result says, with its number, where it is not about leaks
    """

    name: str
    checks: tuple[Check, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    shown: int = 0
    refused: int = 0
    controls: tuple[int, int] = (0, 0)
    coincidence: float | None = None
    finished: bool = True
    seeks: Kind = Kind.LEAK
    plot: Plot | None = None
    claim: str | None = None
