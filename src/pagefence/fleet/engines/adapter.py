"""What an adapter is: how an engine is recognised, what it is asked, and how its answers are read.

An adapter is data and pure functions: documents in, facts out. Asking is done by `fleet.describe`, so every adapter
fails in the same way when a node is silent, refuses, redirects or answers something else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from prometheus_client.parser import text_string_to_metric_families

from pagefence.fleet.answer import mapping
from pagefence.fleet.facts import MISSING, Figure, Flag, NodeFacts, brief, figure, positive, text, unknown
from pagefence.fleet.http import Reply

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one node answered, by path."""

    url: str
    replies: Mapping[str, Reply]

    def reply(self, path: str) -> Reply:
        """A path that was not asked is a missing answer like any other."""
        return self.replies.get(path) or Reply(None, {}, "was not asked")

    def json(self, path: str) -> Mapping[str, object]:
        """The object at `path`, or an empty one; `problem` says why."""
        reply = self.reply(path)
        return {} if reply.json_problem is not None else reply.body

    def figure(self, path: str, *names: str) -> Figure:
        """The first of `names` at the top of the object at `path`."""
        problem = self.reply(path).json_problem
        return unknown(f"{path} {names[0]}", problem) if problem is not None else figure(self.json(path), names, path)

    def flag(self, path: str, name: str) -> Flag:
        """A yes/no or a word at the top of the object at `path`. Numbers, null and the word "None" say nothing."""
        source, problem = f"{path} {name}", self.reply(path).json_problem
        if problem is not None:
            return Flag(None, source, problem)
        body = self.json(path)
        if name not in body:
            return Flag(None, source, MISSING)
        value = body[name]
        if isinstance(value, bool) or (isinstance(value, str) and value not in ("", "None")):
            return Flag(value if isinstance(value, bool) else value[:200], source)
        return Flag(None, source, f"is {str(value)[:40]!r}, which says nothing")

    def counted(self, name: str, path: str = "/metrics", **labels: str) -> int | None:
        """The sum of a counter over its samples that have these labels.

        None where the document cannot be read. A counter that is not there yet has counted nothing.
        """
        samples, problem = self.metrics(path, name)
        if problem is not None:
            return 0 if problem == f"has no {name}" else None
        values = [value for told, value in samples if labels.items() <= told.items()]
        return int(sum(values)) if all(math.isfinite(value) for value in values) else None

    def summed(self, name: str, path: str = "/metrics", **labels: str) -> float | None:
        """The sum over a metric's samples that have these labels; None where there is none, or one is no number."""
        samples, _ = self.metrics(path, name)
        values = [value for told, value in samples if labels.items() <= told.items()]
        return sum(values) if values and all(math.isfinite(value) for value in values) else None

    def metrics(self, path: str, name: str) -> tuple[list[tuple[Labels, float]], str | None]:
        """The samples called `name` of a Prometheus document, or why there are none."""
        reply = self.reply(path)
        if reply.problem is not None:
            return [], reply.problem
        if not reply.text.endswith("\n"):
            # The format ends every line so: a document without it is the beginning of one (or a web page).
            return [], "is cut off or is no Prometheus text"
        # Parsing a whole document takes 30 ms, too long where a thousand nodes are asked: only these lines are parsed.
        its = _samples(name)
        lines = [line for line in reply.text.split("\n") if its.match(line)]
        try:
            families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
        except (ValueError, KeyError, IndexError):
            return [], f"has a {name} that is no Prometheus text"
        found: list[tuple[Labels, float]] = [
            (s.labels, s.value) for family in families for s in family.samples if s.name == name
        ]
        return found, None if found else f"has no {name}"


def amount(value: object) -> float | None:
    """A number of a JSON document that can be an amount of something."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def total(*parts: float | None) -> float | None:
    """The sum of what is told; None when nothing is."""
    told = [part for part in parts if part is not None]
    return sum(told) if told else None


@cache
def _samples(name: str) -> re.Pattern[str]:
    """Lines of a metric. Blanks and tabs may stand before and behind a name, and a name in quotes among its labels."""
    return re.compile(rf'[ \t]*(?:{re.escape(name)}[ \t{{]|{{[ \t]*"{re.escape(name)}")')


@dataclass(frozen=True, slots=True)
class Counters:
    """What one node has counted since it started; None where it does not tell.

    requests  requests that it has finished, or begun where it is known no better
    prompt    prompt tokens that it computed or found in its cache; on decode, those that it took over
    cached    of these, tokens found in a cache that requests share; 0 on decode where nobody looks into one
    """

    requests: int | None = None
    prompt: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """What requests hold of one node's pool at this moment; None where it does not tell.

    amount  of the pool, in `unit`; what only a cache has is free for the next request, and is none of it
    work    what it has counted as done: it moves for as long as anybody is being answered
    late_s  for how long a timer of the engine may go on holding what nobody wants any more
    """

    amount: float | None = None
    unit: str = ""
    work: float | None = None
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Adapter:
    """One engine.

    `sign`: the path that tells it from others; `recognises` reads that answer and says by what (or None). `asks`: paths
    that `read` needs besides. `token_field`: how `POST /tokenize` calls the text, for those that have it. `also`: paths
    that only some answers to `sign` make necessary. `counters`: what the node's `/metrics` count, for a role; None for
    an engine whose counters tell nothing, or where reading them takes them away. `held`: what requests hold now, from
    the document at `held_at`.
    """

    engine: str
    sign: str
    recognises: Callable[[Reply], str | None]
    asks: tuple[str, ...]
    read: Callable[[Asked], NodeFacts]
    token_field: str = "prompt"
    also: Callable[[Reply], tuple[str, ...]] = lambda reply: ()
    counters: Callable[[Asked, str], Counters] | None = None
    held: Callable[[Asked, str], Holding] | None = None
    held_at: str = "/metrics"


def advertised(asked: Asked, path: str = "/v1/models", name: str = "max_model_len") -> Figure:
    """The boldest promise of a model list; one that cannot be read is bolder than all.

    An adapter (LoRA) without a limit of its own has that of the model that it adapts, when that is listed too: vLLM and
    SGLang list it with `max_model_len` null and `parent` set.
    """
    source = f"{path} {name}"
    problem = asked.reply(path).json_problem
    if problem is not None:
        return unknown(source, problem)
    listed = cards(asked, path)
    names = {str(card["id"]) for card in listed if card.get(name) is not None and "id" in card}
    said = [
        positive(card[name], source)
        for card in listed
        if name in card and not (card[name] is None and str(card.get("parent")) in names)
    ]
    if not said:
        return unknown(source, MISSING)
    return next((f for f in said if f.value is None), max(said, key=lambda f: f.value or 0))


def model(asked: Asked, path: str = "/v1/models") -> str | None:
    """The name of the first model of a model list."""
    listed = cards(asked, path)
    return text(listed[0], "id") if listed else None


def cards(asked: Asked, path: str = "/v1/models") -> list[Mapping[str, object]]:
    """The entries of a model list."""
    data = asked.json(path).get("data")
    return [mapping(card) for card in data] if isinstance(data, list) else []


def number(value: object, source: str) -> Figure:
    """A positive whole number that came as text or as a float, as metrics and their labels give them."""
    if isinstance(value, str):
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            return unknown(source, f"is not a whole number: {value[:40]!r}")
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return positive(value, source)


def settings(body: Mapping[str, object], names: tuple[str, ...]) -> dict[str, str]:
    """Those of `names` that the object has, as text, for `--lock`."""
    return {name: brief(body[name]) for name in names if name in body}
