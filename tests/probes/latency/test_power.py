"""Why one answer under the floor counts more than any quantile: both alarms on simulated days of 300 requests."""

from __future__ import annotations

import random

import pytest

from pagefence.probes.latency.signs import p5_alarm
from pagefence.probes.latency.sketch import Sketch

DAYS, REQUESTS = 200, 300
FLOOR_S = 0.5


def request(draw: random.Random, leak: float) -> float:
    """Seconds to the first token: an honest prefill, which takes a second and waits for a turn besides, or a blink.

    One blink in five takes longer than the floor, which is half of the fastest certified prefill.
    """
    if draw.random() >= leak:
        return 1.4 + draw.expovariate(2.0)
    return 0.4 * draw.lognormvariate(0.0, 0.265)


def alarms(leak: float, seed: int) -> tuple[float, float]:
    """Shares of days on which p5 alarmed, and on which an answer lay under the floor."""
    draw = random.Random(seed)

    def day(share: float) -> Sketch:
        sketch = Sketch()
        for _ in range(REQUESTS):
            sketch.add(request(draw, share))
        return sketch

    baseline = [day(0.0).quantile(0.05) for _ in range(7)]
    days = [day(leak) for _ in range(DAYS)]
    return sum(p5_alarm(baseline, d) for d in days) / DAYS, sum(d.least < FLOOR_S for d in days) / DAYS


@pytest.mark.parametrize(("leak", "quantile", "floor"), [(0.003, 0.0, 0.50), (0.01, 0.0, 0.91), (0.05, 0.63, 1.0)])
def test_the_floor_sees_what_a_quantile_does_not(leak: float, quantile: float, floor: float) -> None:
    p5, under = alarms(leak, 11)
    assert under == pytest.approx(floor, abs=0.09)
    assert p5 == pytest.approx(quantile, abs=0.02 if quantile == 0 else 0.2)


def test_neither_alarms_without_a_leak() -> None:
    assert alarms(0.0, 12) == (0.0, 0.0)
