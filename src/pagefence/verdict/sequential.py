"""A test for runs without an end: it may be looked at after every probe, for years, and still keeps its error rate.

H0: whatever came before, the next probe hits with a chance of at most `null_rate`. A bettor against H0 stakes a capital
of 1 on larger rates; under H0 no bet is better than fair, so the chance that the capital *ever* reaches 1/alpha is at
most alpha (Ville's inequality; Ramdas et al., "Game-theoretic statistics and safe anytime-valid inference", 2023).

The capital is spread twice. Over rates, each of twice the odds of the one before, because nobody knows how often a
fault shows: a rate of 1.5 times the null and more is found, one closer to it may not be. And over the moment at which
the bets begin, because a fault may be switched on after a year without one: what is not yet staked cannot have been
lost, so after 10,000 clean updates a fault costs a few hits more to be seen, not a number in proportion to the year.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

_LARGEST_BET = 0.9


@dataclass(frozen=True, slots=True)
class EProcess:
    """What is known after `n` probes with `hits` hits. A new one needs its `null_rate` only (0 < null_rate < 0.9).

    log_e       natural logarithm of the capital, the evidence against H0; 0 is none
    updates     how often it was updated with probes
    log_staked  logarithm of what the bets on each rate are worth now
    """

    null_rate: float
    log_e: float = 0.0
    n: int = 0
    hits: int = 0
    updates: int = 0
    log_staked: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.null_rate < _LARGEST_BET:
            raise ValueError(f"the null rate is more than 0 and less than {_LARGEST_BET}")


def updated(process: EProcess, n: int, hits: int) -> EProcess:
    """After `n` more probes of which `hits` hit. Without probes nothing changes.

    A batch may end when it likes (at its first hit, say), but all its probes are counted. Raises ValueError when `hits`
    is not from 0 to `n`.
    """
    if not 0 <= hits <= n:
        raise ValueError(f"{hits} hits of {n} probes cannot be")
    if n == 0:
        return process
    null, bets = process.null_rate, _bets(process.null_rate)
    before = process.log_staked or (-math.inf,) * len(bets)
    fresh = math.log((_unstaked(process.updates) - _unstaked(process.updates + 1)) / len(bets))
    staked = tuple(
        _log_sum((worth, fresh)) + hits * math.log(rate / null) + (n - hits) * (math.log1p(-rate) - math.log1p(-null))
        for rate, worth in zip(bets, before, strict=True)
    )
    updates = process.updates + 1
    log_e = _log_sum((*staked, math.log(_unstaked(updates))))
    return EProcess(null, log_e, process.n + n, process.hits + hits, updates, staked)


def alarm(process: EProcess, alpha: float) -> bool:
    """Whether the evidence is 1/alpha or more. Under H0 this is ever true with a chance of at most `alpha`.

    It can be false again later; an alarm that was given stays as good as it was, so the caller keeps it.
    """
    return process.log_e >= -math.log(alpha)


def fields(process: EProcess) -> dict[str, int | float | str]:
    """The process in plain values, one for each column of a table; `restored` gets back the same to the last bit."""
    return {
        "null_rate": process.null_rate,
        "log_e": process.log_e,
        "n": process.n,
        "hits": process.hits,
        "updates": process.updates,
        "log_staked": json.dumps(process.log_staked),
    }


def restored(stored: Mapping[str, int | float | str]) -> EProcess:
    """The process from its `fields`. Raises KeyError and ValueError when they are not those of a process."""
    staked = json.loads(str(stored["log_staked"]))
    null_rate = float(stored["null_rate"])
    if staked and len(staked) != len(_bets(null_rate)):
        raise ValueError("the stakes do not fit the null rate")
    return EProcess(
        null_rate,
        float(stored["log_e"]),
        int(stored["n"]),
        int(stored["hits"]),
        int(stored["updates"]),
        tuple(float(worth) for worth in staked),
    )


@lru_cache(maxsize=64)
def _bets(null_rate: float) -> tuple[float, ...]:
    """The rates that are bet on: twice the odds of the null, four times, ... up to 0.9, and 0.9 itself."""
    odds = null_rate / (1 - null_rate)
    rates = []
    while (odds := 2 * odds) < _LARGEST_BET / (1 - _LARGEST_BET):
        rates.append(odds / (1 + odds))
    return (*rates, _LARGEST_BET)


def _unstaked(updates: int) -> float:
    """What is left for bets that begin later: it goes to zero so slowly that late bets are still worth something."""
    return 1 / math.log2(updates + 2)


def _log_sum(logs: Iterable[float]) -> float:
    values = tuple(logs)
    top = max(values)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(value - top) for value in values))
