"""Sentinels: four words drawn at random, which only the request that holds them could know.

Four common words, because a model copies them faithfully and an answer of 40 tokens holds them twice. A run draws all
its sentinels without replacement, so a word belongs to one request and a sighting names its owner. In an honest fleet
the words of one request are independent of the answer to another, so the chance that an answer holds them by accident
follows from the size of the list alone (`coincidence`), whatever the model likes to say.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from pagefence.probes.wordlist import WORDS

LENGTH = 4
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

    A shard is two of the four words side by side in their planted order. `proof` is the whole sentinel or two different
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

    Softer than `proof`, on purpose. An honest model now and then inflects one of the four words ("elegant" becomes
    "elegance"), which leaves a shard; an answer made from something else leaves none.
    """
    sighting = look(text, own)
    return sighting.whole or bool(sighting.shards)


def draw(seed: int) -> Iterator[tuple[str, ...]]:
    """Disjoint quadruples of words, the same for the same seed."""
    words = random.Random(f"sentinels {seed}").sample(WORDS, len(WORDS))
    for start in range(0, len(words) - LENGTH + 1, LENGTH):
        yield tuple(words[start : start + LENGTH])


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
    others = (s for s in sentinels if own is None or s.owner != own.owner)
    return [sighting for sighting in (look(text, s) for s in others) if sighting.shards or sighting.whole]


def coincidence(answers: Iterable[tuple[str, Sentinel | None]], foreign: int) -> float:
    """An upper bound on the chance that these answers hold a proof of any of `foreign` sentinels by accident.

    The texts are given, the words of the others are a random draw that knows nothing of them. Only two different side
    by side pairs of listed words, none of them the reader's own, can look like two shards; there are 30 ways to place
    two shards in a sentinel, and each fixes at least three words of N - 4. The union bound over all of it.
    """
    left = len(WORDS) - LENGTH
    each = 30 / (left * (left - 1) * (left - 2))
    pairs = 0
    for text, own in answers:
        mine = set(own.words) if own else set()
        said = {p for p in pairwise(spoken(text)) if p[0] in _LISTED and p[1] in _LISTED and not mine & set(p)}
        pairs += len(said) * (len(said) - 1) // 2
    return min(1.0, foreign * pairs * each)


def repeated(text: str) -> str | None:
    """The one word or mark that makes up half of an answer: what a model falls into over memory without sense."""
    parts = re.findall(r"[A-Za-z]+|\d|[^\w\s]", text)
    if len(parts) < 8:
        return None
    most = max(set(parts), key=parts.count)
    return most if parts.count(most) >= len(parts) / 2 else None
