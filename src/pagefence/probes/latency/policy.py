"""What a timing is held against, and how much is asked for it."""

from __future__ import annotations

from dataclasses import dataclass

from pagefence.probes.latency.calibration import Calibration

ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Timing:
    """Settings of the latency probe.

    asked        it was asked for itself: it sends prompts of its own, and what it cannot decide is INCONCLUSIVE
    rounds       how often each length is asked
    calibration  the practical floor, where there is one
    calibrating  it is being measured: without any floor yet, the run may be clean by its other probes
    """

    asked: bool = False
    rounds: int = ROUNDS
    calibration: Calibration | None = None
    calibrating: bool = False
