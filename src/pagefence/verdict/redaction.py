"""What of a run may stand in a report: decided here, once, before any report is made.

An answer of a live fleet may be somebody else's text: that is what a leak is. So of every answer only the words that
PageFence planted itself stay, and each other word becomes a mask; `--unredacted` keeps them. A fleet that was started
for the run holds nobody's text. API keys go in any case: a fleet may repeat one in an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import TypeVar

from pagefence.fleet import Keys
from pagefence.probes import Examination, ProbeResult

T = TypeVar("T")

MASK = "▪▪▪"
# Details of evidence that hold words of an answer. A test holds every report of every toy fleet to this list.
FOREIGN = frozenset({"answer", "marked", "first_answer", "second_answer", "text", "texts", "body"})
# Marks of punctuation tell nothing by themselves; they show the shape of an answer, and where it degenerated.
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~«»]+")


@dataclass(frozen=True, slots=True)
class Redaction:
    """`planted`: the words that may stay of an answer; None when all may."""

    keys: Keys
    planted: frozenset[str] | None

    def answer(self, text: str) -> str:
        """Words of a fleet's answer: the planted ones, and a mask for each other."""
        if self.planted is None:
            return text
        planted = self.planted
        return _WORD.sub(lambda word: word[0] if word[0].lower() in planted else MASK, text)

    def results(self, results: tuple[ProbeResult, ...]) -> tuple[ProbeResult, ...]:
        """The same results as a report may show them."""
        return tuple(self._result(result) for result in results)

    def keyless(self, value: T) -> T:
        """Any value of dataclasses, mappings and sequences with the keys in its words replaced by their names."""
        return _mapped(value, self.keys.redact)

    def _result(self, result: ProbeResult) -> ProbeResult:
        evidence = tuple(replace(e, details=self._details(e.details)) for e in result.evidence)
        return self.keyless(replace(result, evidence=evidence))

    def _details(self, details: Mapping[str, object]) -> Mapping[str, object]:
        return {name: _mapped(value, self.answer) if name in FOREIGN else value for name, value in details.items()}


def redaction(examination: Examination, keys: Keys, unredacted: bool) -> Redaction:
    """What holds for a run. `unredacted`: the fleet holds nobody's text, or the user wants to read it all the same."""
    if unredacted:
        return Redaction(keys, None)
    plan = examination.log.plan
    sentinels = plan.sentinels if plan is not None else ()
    return Redaction(keys, frozenset(word.lower() for sentinel in sentinels for word in sentinel.words))


def _mapped(value: T, change: Callable[[str], str]) -> T:
    """`value` with `change` made to every string in it. What did not change stays the same object."""
    return _walk(value, change)  # type: ignore[return-value]


def _walk(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_walk(name, change): _walk(inner, change) for name, inner in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_walk(inner, change) for inner in value)
    if is_dataclass(value) and not isinstance(value, type):
        new = {field.name: _walk(getattr(value, field.name), change) for field in fields(value)}
        old = {field.name: getattr(value, field.name) for field in fields(value)}
        return value if new == old else replace(value, **new)
    return value
