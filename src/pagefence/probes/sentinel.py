"""Sentinels: six words drawn at random, which only the request that holds them could know.

Common words, because a model copies them faithfully, and six of them: out of 1,801 those are 64 bits, and an answer of
32 tokens still holds them twice. A run draws its sentinels without replacement as long as the words last (300 of them),
so a word belongs to one request and a sighting names its owner. In an honest fleet
the words of one request are independent of the answer to another, so the chance that an answer holds them by accident
follows from the size of the list alone (`coincidence`), whatever the model likes to say.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import log2, perm

from pagefence.probes.wordlist import WORDS

LENGTH = 6
LEAST_BITS = 60
_LISTED = frozenset(WORDS)


@dataclass(frozen=True, slots=True)
class Sentinel:
    """The words that one request plants, and whose request it is."""

    owner: str
    tenant: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What of one sentinel a text holds.

    A shard is two of the six words side by side in their planted order. `proof` is the whole sentinel or two different
    shards, which takes at least three of its words.
    """

    sentinel: Sentinel
    whole: bool
    shards: tuple[tuple[str, str], ...]

    @property
    def proof(self) -> bool:
        return self.whole or len(self.shards) >= 2


def recalled(text: str, own: Sentinel) -> bool:
    """Whether an answer gives back its own words: one shard is enough.

    Softer than `proof`, on purpose. An honest model now and then inflects one of the six words ("elegant" becomes
    "elegance"), which leaves shards; an answer made from something else leaves none.
    """
    sighting = look(text, own)
    return sighting.whole or bool(sighting.shards)


def bits(words: int) -> float:
    """How much one sentinel out of so many words holds: log2 of the number of ordered draws."""
    return log2(perm(words, LENGTH)) if words >= LENGTH else 0.0


def draw(seed: int, words: Sequence[str] = WORDS) -> Iterator[tuple[str, ...]]:
    """Tuples of words, the same for the same seed and words; disjoint until all words are used, then from the start."""
    shuffled = random.Random(f"sentinels {seed}")
    while True:
        drawn = shuffled.sample(words, len(words))
        for start in range(0, len(drawn) - LENGTH + 1, LENGTH):
            yield tuple(drawn[start : start + LENGTH])


def spoken(text: str) -> list[str]:
    """The words of a text, without case, digits and punctuation (damaged answers are full of stray marks)."""
    return re.findall(r"[a-z]+", text.lower())


def look(text: str, sentinel: Sentinel) -> Sighting:
    """What `text` holds of `sentinel`."""
    said = spoken(text)
    place = {word: i for i, word in enumerate(sentinel.words)}
    shards = {(x, y) for x, y in pairwise(said) if x in place and y in place and place[x] < place[y]}
    size = len(sentinel.words)
    whole = any(tuple(said[i : i + size]) == sentinel.words for i in range(len(said) - size + 1))
    return Sighting(sentinel, whole, tuple(sorted(shards)))


def scan(text: str, sentinels: Iterable[Sentinel], own: Sentinel | None) -> list[Sighting]:
    """Every sentinel but the reader's own of which `text` holds at least a shard."""
    said = set(spoken(text))  # few texts hold two words of a sentinel, so few are looked at closely
    others = (s for s in sentinels if (own is None or s.owner != own.owner) and len(said.intersection(s.words)) > 1)
    return [sighting for sighting in (look(text, s) for s in others) if sighting.shards or sighting.whole]


def coincidence(answers: Iterable[tuple[str, Sentinel | None]], foreign: int, words: int = len(WORDS)) -> float:
    """An upper bound on the chance that these answers hold a proof of any of `foreign` sentinels by accident.

    The texts are given, the words of the others are a random draw out of `words` that knows nothing of them. Only two
    different side by side pairs of listed words, none of them the reader's own, can look like two shards; `_together`
    is the chance that one sentinel holds both. The union bound over all of it. Where there are more sentinels than
    disjoint ones, a word of the reader's may be another's as well, so such pairs count too.
    """
    left = words - LENGTH
    if left < LENGTH:
        return 1.0
    shared = foreign >= words // LENGTH
    total = 0.0
    for text, own in answers:
        mine = set(own.words) if own and not shared else set()
        said = {(x, y) for x, y in pairwise(spoken(text)) if x != y and {x, y} <= _LISTED and not mine & {x, y}}
        total += sum(_together(one, other, left) for one, other in combinations(sorted(said), 2))
    return min(1.0, foreign * total)


def _together(one: tuple[str, str], other: tuple[str, str], words: int) -> float:
    """The chance that a sentinel drawn from so many words holds both pairs, each in order: the places that they can
    take, times the chance that all their words stand there. Six places hold 20 triples, and 15 x 6 pairs of pairs."""
    distinct = len({*one, *other})
    if distinct == 2:  # a pair and its reverse
        return 0.0
    if distinct == 4:
        return 90 / perm(words, 4)
    chained = one[1] == other[0] or other[1] == one[0]
    return (20 if chained else 40) / perm(words, 3)


def repeated(text: str) -> str | None:
    """The one word or mark that makes up half of an answer: what a model falls into over memory without sense."""
    parts = re.findall(r"[A-Za-z]+|\d|[^\w\s]", text)
    if len(parts) < 8:
        return None
    most = max(set(parts), key=parts.count)
    return most if parts.count(most) >= len(parts) / 2 else None
