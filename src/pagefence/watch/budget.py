"""How many tokens a target may be asked in a while: a token bucket that survives a restart. Pure; time is given.

The law: in no stretch of `s` seconds are more than `rate * s + burst` tokens spent, whatever runs, ends or crashes. A
run holds its most from its start and gives back at its end what it did not spend; what is held counts as there, so
that nothing is filled in over it meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Allowance:
    """`tokens` in every `window_s` seconds, at most `burst` at once. Raises ValueError for one that allows nothing."""

    tokens: int
    window_s: float
    burst: int

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.burst < 1 or not 0 < self.window_s < float("inf"):
            raise ValueError("a budget has tokens, a burst and a window of more than 0")

    @property
    def rate(self) -> float:
        """Tokens in a second."""
        return self.tokens / self.window_s


@dataclass(frozen=True, slots=True)
class Bucket:
    """`level` tokens are free at the moment `at` (seconds since 1970), `held` belong to runs that have not ended."""

    level: float
    at: float
    held: float = 0.0


def full(allowance: Allowance, now: float) -> Bucket:
    return Bucket(float(allowance.burst), now)


def filled(bucket: Bucket, allowance: Allowance, now: float) -> Bucket:
    """The bucket now. A clock that was set back fills nothing in, and does not hold the bucket up either."""
    gained = allowance.rate * max(0.0, now - bucket.at)
    return replace(bucket, level=min(allowance.burst - bucket.held, bucket.level + gained), at=now)


def reserved(bucket: Bucket, allowance: Allowance, tokens: int, now: float) -> Bucket | None:
    """The bucket after a run took its most; None when that does not fit yet."""
    bucket = filled(bucket, allowance, now)
    if bucket.level < tokens:
        return None
    return replace(bucket, level=bucket.level - tokens, held=bucket.held + tokens)


def settled(bucket: Bucket, allowance: Allowance, held: int, spent: int, now: float) -> Bucket:
    """The bucket after a run that held so much and spent so much has ended. More than it held is owed."""
    bucket = filled(bucket, allowance, now)
    return replace(bucket, level=bucket.level + held - spent, held=bucket.held - held)


def wait_s(bucket: Bucket, allowance: Allowance, tokens: int, now: float) -> float:
    """Seconds until so many tokens are free, when nothing else takes any; 0 when they are."""
    bucket = filled(bucket, allowance, now)
    return max(0.0, (tokens - bucket.level) / allowance.rate)
