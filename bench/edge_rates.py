"""How often the edge's scan finds what leaked, and how often it alarms about an honest answer: a simulation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench import table
from bench.edge_texts import CODE, PUBLIC, QUOTES, STOCK, STOCKS, Asked, Load, functions, leaking, passages
from pagefence.edge.watching.generations import Bounds
from pagefence.edge.watching.grams import Words
from pagefence.edge.watching.memory import Manner, Memory
from pagefence.edge.watching.scanner import Scanner, Sighting
from pagefence.verdict.intervals import interval

SIZES = (6, 8, 10, 12, 14, 16, 20, 24, 32, 64)
KINDS = ("prose alone", QUOTES, STOCKS, PUBLIC, CODE)
_WARM = 50  # prompts before the first leak


@dataclass(slots=True)
class Rates:
    """Counts: leaks and found ones by words, honest answers and alarms by kind. An alarm that names another owner than
    the leak's counts as no find."""

    leaks: Counter[int] = field(default_factory=Counter)
    found: Counter[int] = field(default_factory=Counter)
    honest: Counter[str] = field(default_factory=Counter)
    alarms: Counter[str] = field(default_factory=Counter)


def simulate(
    seed: int, requests: int, published: bool, manner: Manner | None = None, compiled: bool = True, leaks: int = 1
) -> Rates:
    """Requests of 40 tenants one after the other. After each honest answer the same one with so many leaks, of other
    prompts among the last 300. `published`: the operator has named the public texts."""
    memory = Memory(Bounds(slots_log2=18), manner, compiled=compiled)
    if published:
        memory.publish(text.encode() for text in (*passages(), *functions(), *STOCK))
    load, chance, rates, recent = Load(seed), random.Random(f"leaks {seed}"), Rates(), list[Asked]()
    for number in range(requests):
        asked = load.asked()
        texts, said = ([text.encode() for text in some] for some in (asked.texts, asked.said))
        own = memory.sent(texts, said, asked.tenant, 0.0)
        answer, kinds = load.answered(asked)
        # Leaks first: what an honest answer holds is learned at its end, and what a leak holds must not be.
        others = [one for one in recent if one.tenant != asked.tenant]
        for _ in range(leaks if number >= _WARM and others else 0):
            words, victim = chance.choice(SIZES), chance.choice(others)
            seen = _scanned(memory, leaking(chance, answer, victim.document, words), own, asked.tenant, chance, False)
            rates.leaks[words] += 1
            rates.found[words] += any(sighting.owner_tag == victim.tenant for sighting in seen)
        alarm = bool(_scanned(memory, answer, own, asked.tenant, chance, True))
        for kind in ("all", *(kinds or {KINDS[0]})):
            rates.honest[kind] += 1
            rates.alarms[kind] += alarm
        recent = [*recent[-299:], asked]
    return rates


def _scanned(memory: Memory, answer: str, own: Words, tenant: str, chance: random.Random, ends: bool) -> list[Sighting]:
    """The answer in events of some bytes. `ends`: learn from it, as of every answer that was given."""
    scanner = Scanner(memory, own, tenant)
    seen = [sighting for chunk in _chunks(answer.encode(), chance) for sighting in scanner.feed(chunk)]
    return seen + (scanner.end(0.0) if ends else scanner.rest())


def _chunks(text: bytes, chance: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(text):
        size = chance.randint(1, 12)
        yield text[at : at + size]
        at += size


def report(seed: int, requests: int) -> str:
    """The table of docs/concepts/edge-scan.md."""
    plain, published = (simulate(seed, requests, given) for given in (False, True))
    lines = [
        [f"{words} words of another's prompt", *(_share(r.found[words], r.leaks[words]) for r in (plain, published))]
        for words in SIZES
    ]
    found = table.markdown(["found, of leaks of", "public texts unknown", "public texts named"], lines)
    lines = [[kind, *(_share(r.alarms[kind], r.honest[kind]) for r in (plain, published))] for kind in (*KINDS, "all")]
    alarms = table.markdown(
        ["false alarms, of honest answers with", "public texts unknown", "public texts named"], lines
    )
    return f"{found}\n\n{alarms}"


def _share(count: int, of: int) -> str:
    low, high = interval(count, of)
    return f"{count}/{of} ({100 * low:.1f} to {100 * high:.1f} %)"
