"""Words for thousands of requests, and whose words a text holds in one pass over it.

The list has words for some hundred requests, if each has words of its own. Here no *pair* of words is given out twice,
in whichever order, so two neighbouring words in an answer still name their owner, and a dictionary of pairs finds all
sentinels at once: the work grows with the text, not with the number of requests.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

from pagefence.probes.sentinel import Sentinel, Sighting, look, spoken
from pagefence.probes.wordlist import WORDS

EACH = 4
_LISTED = frozenset(WORDS)


def draw_pairwise(seed: int) -> Iterator[tuple[str, ...]]:
    """Quadruples of which no two have two words in common, the same for the same seed. Ends when pairs get scarce."""
    rng = random.Random(f"race words {seed}")
    given: set[frozenset[str]] = set()
    most = len(WORDS) * (len(WORDS) - 1) // 4  # half of all pairs: until then every second draw is a new one
    while len(given) < most:
        words = tuple(rng.sample(WORDS, EACH))
        pairs = {frozenset(pair) for pair in combinations(words, 2)}
        if pairs & given:
            continue
        given |= pairs
        yield words


@dataclass(frozen=True, slots=True)
class Index:
    """Every live sentinel by the pairs that it may show as."""

    pairs: Mapping[tuple[str, str], tuple[Sentinel, ...]]
    size: int

    @classmethod
    def of(cls, sentinels: Iterable[Sentinel]) -> Index:
        """One entry per owner, also where the same prompt is asked twice."""
        pairs: dict[tuple[str, str], tuple[Sentinel, ...]] = {}
        live = list({(s.owner, s.words): s for s in sentinels}.values())
        for sentinel in live:
            for pair in combinations(sentinel.words, 2):
                pairs[pair] = (*pairs.get(pair, ()), sentinel)
        return cls(pairs, len(live))

    def scan(self, text: str, own: Sentinel | None) -> list[Sighting]:
        """Every sentinel but the reader's own of which `text` holds at least a shard."""
        found: dict[tuple[str, tuple[str, ...]], Sentinel] = {}
        for pair in pairwise(spoken(text)):
            for sentinel in self.pairs.get(pair, ()):
                if own is None or sentinel.owner != own.owner:
                    found[sentinel.owner, sentinel.words] = sentinel
        return [look(text, sentinel) for sentinel in found.values()]


def accidents(answers: Iterable[tuple[str, Sentinel]], foreign: int) -> float:
    """An upper bound on the chance that these answers hold a proof of any of `foreign` sentinels by accident.

    As `sentinel.coincidence`, but a foreign sentinel may have one of the reader's own words: only pairs of own words
    cannot be anybody else's. 30 ways to place two shards in four words, three of which each fixes.
    """
    most = len(WORDS)
    each = 30 / (most * (most - 1) * (most - 2))
    pairs = 0
    for text, own in answers:
        mine = set(own.words)
        said = {p for p in pairwise(spoken(text)) if p[0] in _LISTED and p[1] in _LISTED and not set(p) <= mine}
        pairs += len(said) * (len(said) - 1) // 2
    return min(1.0, foreign * pairs * each)
