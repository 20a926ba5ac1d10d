"""Prompts and answers of many tenants, made up: what they share, what is theirs alone, what a model says of its own.

Prose is a random walk over the words of Python's own manual (`pydoc`), with names and numbers of its writer thrown in;
passages that "everybody knows" are from another half of that manual, code is from the standard library. All by a seed.
"""

from __future__ import annotations

import ast
import inspect
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pydoc_data import topics

from pagefence.probes.wordlist import WORDS

_MODULES = ("argparse", "asyncio.tasks", "csv", "dataclasses", "difflib", "heapq", "json.decoder", "shutil", "textwrap")
QUOTES, STOCKS = "quotes its own prompt", "stock sentences of the model"
PUBLIC, CODE = "a public text, not in its prompt", "public code, not in its prompt"
STOCK = (
    "I hope this helps! Please let me know if you have any further questions about this.",
    "Certainly! Here is a step by step explanation of how this works and why it matters.",
    "It is important to note that the results may vary depending on your specific use case.",
    "In summary, the approach described above is simple, robust and easy to maintain over time.",
    "As an AI language model I do not have access to real time information or personal data.",
    "Here is an example of how you can do this in Python, with comments that explain each step.",
    "There are several factors to consider when choosing the right solution for your needs.",
    "I am sorry, but I cannot help with that request. Is there anything else that I can do?",
)


@cache
def _halves() -> tuple[list[str], list[str]]:
    words = " ".join(topics.topics[name] for name in sorted(topics.topics)).split()
    return words[: len(words) // 2], words[len(words) // 2 :]


@cache
def _after() -> dict[str, list[str]]:
    after: dict[str, list[str]] = {}
    words = _halves()[0]
    for word, following in pairwise(words):
        after.setdefault(word, []).append(following)
    return after


@cache
def passages() -> tuple[str, ...]:
    """300 texts that anybody may have, of 80 words each."""
    words = _halves()[1]
    step = len(words) // 300
    return tuple(" ".join(words[i * step : i * step + 80]) for i in range(300))


@cache
def functions() -> tuple[str, ...]:
    """Pieces of code that anybody may have."""
    found = []
    for name in _MODULES:
        source = inspect.getsource(__import__(name, fromlist=["x"]))
        lines = source.splitlines()
        nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
        spans = [(node.lineno - 1, node.end_lineno or 0) for node in nodes]
        found += ["\n".join(lines[first:last]) for first, last in spans if 7 <= last - first <= 41]
    return tuple(found)


def prose(chance: random.Random, words: int) -> list[str]:
    """Words that one writer puts down, a sixth of them names and numbers of his own.

    Where the manual has only one way to go on, the walk does not take it: two writers would copy the same manual.
    """
    after, start = _after(), _halves()[0]
    text = [chance.choice(start)]
    while len(text) < words:
        if chance.random() < 1 / 6:
            text.append(chance.choice((chance.choice(WORDS).capitalize(), str(chance.randrange(10_000)))))
        following = after.get(text[-1], [])
        text.append(chance.choice(following if len(following) > 4 else start))
    return text[:words]


def favourite(chance: random.Random, among: Sequence[str]) -> str:
    """One of them: the first ones often, the last ones seldom (Zipf)."""
    return among[min(len(among) - 1, int(len(among) ** chance.random()) - 1)]


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt: what its tenant wrote, what the assistant had said, and the document that is the tenant's alone."""

    tenant: str
    texts: tuple[str, ...]
    said: tuple[str, ...]
    document: list[str]


@dataclass(slots=True)
class Load:
    """Requests of `tenants` tenants, the first ones busier. A third of the system prompts are one tenant's alone."""

    seed: int
    tenants: int = 40
    chance: random.Random = field(init=False)
    systems: list[str] = field(init=False)
    before: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"load {self.seed}")
        self.systems = [" ".join(prose(self.chance, self.chance.randint(40, 160))) for _ in range(12)]

    def asked(self) -> Asked:
        chance = self.chance
        number = int(favourite(chance, [str(i) for i in range(self.tenants)]))
        tenant = f"tenant-{number}"
        system = self.systems[number % 4] if number < 4 else self.systems[4 + chance.randrange(8)]
        document = prose(chance, chance.randint(100, 1200))
        parts = [" ".join(document)]
        if chance.random() < 0.3:
            parts.append(favourite(chance, passages()))
        if chance.random() < 0.25:
            parts.append(favourite(chance, functions()))
        chance.shuffle(parts)
        said = (self.before[tenant],) if tenant in self.before and chance.random() < 0.4 else ()
        return Asked(tenant, (system, "\n\n".join(parts)), said, document)

    def answered(self, asked: Asked) -> tuple[str, frozenset[str]]:
        """What an honest model says, and of what kinds it is besides its own prose."""
        chance, parts, kinds = self.chance, [" ".join(prose(self.chance, self.chance.randint(30, 300)))], set[str]()
        if chance.random() < 0.35:
            words = chance.choice(asked.texts).split()
            start = chance.randrange(len(words))
            parts.append(" ".join(words[start : start + chance.randint(20, 80)]))
            kinds.add(QUOTES)
        if chance.random() < 0.3:
            parts.append(favourite(chance, STOCK))
            kinds.add(STOCKS)
        if chance.random() < 0.1:
            words = favourite(chance, passages()).split()
            parts.append(" ".join(words[: chance.randint(20, 80)]))
            kinds.add(PUBLIC)
        if chance.random() < 0.1:
            parts.append("```python\n" + favourite(chance, functions()) + "\n```")
            kinds.add(CODE)
        chance.shuffle(parts)
        text = "\n\n".join(parts)
        self.before[asked.tenant] = text
        return text, frozenset(kinds)


def leaking(chance: random.Random, answer: str, document: Sequence[str], words: int) -> str:
    """An answer into which `words` neighbouring words of another's document have come, at a random place."""
    start = chance.randrange(max(1, len(document) - words))
    around = answer.split(" ")
    place = chance.randrange(len(around) + 1)
    return " ".join([*around[:place], *document[start : start + words], *around[place:]])
