"""When a run is due next. Pure; time and chance are given."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_DOUBLINGS = 3


@dataclass(frozen=True, slots=True)
class Slot:
    """One module of one target.

    due           when it should run next (seconds since 1970); None for one that runs only when it is asked for
    idle_since    when its last run that came to a verdict ended, or when it was first scheduled
    inconclusive  how many runs in a row gave no answer
    """

    due: float | None
    idle_since: float
    inconclusive: int = 0


def next_due(now: float, every_s: float | None, jitter: float, draw: float) -> float | None:
    """A period after `now`, up to `jitter` of it sooner or later (`draw`: 0 to 1): watches must not march in step."""
    if every_s is None:
        return None
    return now + every_s * (1 + jitter * (2 * draw - 1))


def sane(due: float | None, now: float, every_s: float | None, jitter: float) -> float | None:
    """A stored due time after a restart: no later than the period allows, for the clock or the period may have changed.

    One that lies far back is due once, not once for each period that was missed.
    """
    if every_s is None:
        return None
    latest = now + every_s * (1 + jitter)
    return now if due is None else min(due, latest)


def backoff_s(saturated: int, every_s: float) -> float:
    """How long a target is left alone after its `saturated`-th run in a row that it had no room for."""
    if saturated <= 0:
        return 0.0
    return every_s * 2.0 ** min(saturated - 1, _MOST_DOUBLINGS)
