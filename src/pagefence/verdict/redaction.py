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
from typing import Any, TypeVar

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
        changed: T = mapped(value, self.keys.redact)
        return changed

    def _result(self, result: ProbeResult) -> ProbeResult:
        evidence = tuple(replace(e, details=self._details(e.details)) for e in result.evidence)
        return self.keyless(replace(result, evidence=evidence))

    def _details(self, details: Mapping[str, object]) -> Mapping[str, object]:
        return {name: mapped(value, self.answer) if name in FOREIGN else value for name, value in details.items()}


def redaction(examination: Examination, keys: Keys, unredacted: bool) -> Redaction:
    """What holds for a run. `unredacted`: the fleet holds nobody's text, or the user wants to read it all the same."""
    if unredacted:
        return Redaction(keys, None)
    plan, race = examination.log.plan, examination.race
    planted = [*(plan.sentinels if plan else ()), *(shot.sentinel for shot in (race.plan.everything if race else ()))]
    return Redaction(keys, frozenset(word.lower() for sentinel in planted for word in sentinel.words))


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of records, tuples and mappings in which every text went through `change`. An enumeration is no text."""
    if isinstance(value, str):
        return value if isinstance(value, Enum) else change(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: mapped(getattr(value, f.name), change) for f in fields(value) if f.init})
    if isinstance(value, tuple | list):
        return type(value)(mapped(inner, change) for inner in value)
    if isinstance(value, Mapping):
        return {mapped(name, change): mapped(inner, change) for name, inner in value.items()}
    return value
