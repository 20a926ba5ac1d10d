"""Single words of others: too few to name an owner, but by accident they would be anybody's, not those under way.

Where an answer leaves its course beside others and not alone, the first strange word is looked up among the words of
all requests that were under way at that moment. An honest fleet's slip is one of them as often as any word is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from pagefence.probes.evidence import Evidence, Kind
from pagefence.probes.race.course import Course, course, parting
from pagefence.probes.race.drive import Entry, RaceLog
from pagefence.probes.race.fates import details
from pagefence.probes.race.plan import NAME
from pagefence.probes.wordlist import WORDS

_AFTERGLOW = 4.0  # for so many paces a request that was left or has ended may still hold pages or a stream
_BY_ACCIDENT = 1e-4


def crossings(log: RaceLog, wrong: Sequence[Entry]) -> list[Evidence]:
    """A finding when strange words are those of requests under way more often than by accident."""
    asked = 0
    largest = 0.0
    hits: list[tuple[Entry, str]] = []
    for entry in wrong:
        again = log.replays.get(entry.outcome.shot.id)
        word = parting(entry.outcome.answer.text, entry.outcome.shot.sentinel)
        if word is None or again is None or not again.answered:
            continue
        if course(again.text, entry.outcome.shot.sentinel) is not Course.RIGHT:
            continue
        live = _under_way(log, entry)
        asked += 1
        largest = max(largest, len(live) / len(WORDS))
        if word in live:
            hits.append((entry, word))
    chance = tail(len(hits), asked, largest)
    if not hits or chance > _BY_ACCIDENT:
        return []
    entry, word = hits[0]
    what = (
        f"{len(hits)} of {asked} answers that went wrong only beside others did so at a word of a request that was "
        f"under way, the first at {word!r}; the chance of an accident is {chance:.1g}"
    )
    remedy = "Tokens get from one request into another. Look at what requests in one batch share."
    more = details(entry.outcome) | {"requests": [e.outcome.shot.id for e, _ in hits], "words": [w for _, w in hits]}
    return [Evidence(Kind.CORRUPT, NAME, "crossed", entry.outcome.shot.id, what, "I10", None, remedy, more)]


def _under_way(log: RaceLog, entry: Entry) -> set[str]:
    """The words of all others that were under way beside it, less its own."""
    glow_s = _AFTERGLOW * log.pace_s
    live = {
        word
        for other in log.crowd
        if other.started < entry.ended and other.ended + glow_s > entry.started
        for word in other.outcome.shot.sentinel.words
    }
    return live - set(entry.outcome.shot.sentinel.words)


def tail(hits: int, asked: int, rate: float) -> float:
    """The chance of so many hits or more."""
    return sum(comb(asked, k) * rate**k * (1 - rate) ** (asked - k) for k in range(hits, asked + 1))
