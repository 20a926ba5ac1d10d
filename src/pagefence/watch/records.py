"""What is known of runs, as values: a run that ended, and a run as it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pagefence.probes.evidence import Kind
from pagefence.verdict import CLEAN

VERDICTS = (*map(str, Kind), CLEAN)


class Phase(StrEnum):
    """What became of a run. Only a finished one has gone to its end; a verdict other than CLEAN may come of each."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run came to.

    charged    tokens that it cost its target, at the most that they can have been
    saturated  requests that the target had no room for (429, 503)
    findings   how many of each kind
    counts     for each probe own words asked for and own words lost: what the e-process is fed with
    report     the JSON report, answers redacted
    """

    verdict: str
    occurred: tuple[str, ...]
    sentence: str
    phase: Phase = Phase.FINISHED
    model: str | None = None
    requests: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    charged: int = 0
    saturated: int = 0
    findings: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    report: bytes = b""
    log: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """One run as it is kept. Times are seconds since 1970; `ended` None while it runs."""

    id: int
    target: str
    module: str
    reason: str
    seed: int
    started: float
    ended: float | None
    phase: Phase
    verdict: str
    sentence: str
    model: str
    requests: int
    prompt_tokens: int
    new_tokens: int
    charged: int
    findings: Mapping[str, int]
    log: str = ""

    @property
    def seconds(self) -> float:
        return 0.0 if self.ended is None else max(0.0, self.ended - self.started)
