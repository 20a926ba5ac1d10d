"""What came of an exercise: every answer held against the right one, and one word for all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pagefence.fleet.answer import ErrorBody
from pagefence.lab.known import Known
from pagefence.probes.sentinel import spoken

EXAMPLES = 5
LISTED = 4  # words shorter than this are in no list


class Kind(StrEnum):
    """One answer. A hang-up was ours, and what had come by then was right."""

    RIGHT = "right"
    WRONG = "wrong"
    BORROWED = "from another tenant's cache"
    SHORT = "short"
    CONTAINED = "contained"
    REFUSED = "refused"
    BROKEN = "broken off"
    UNANSWERED = "no answer"
    HUNG_UP = "hung up"


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as its client saw it. `token_ids` where the answer was whole; `own` is how many tokens of its prompt
    the same tenant had sent before, which is the most that may come from a cache (I7)."""

    number: int
    tenant: str
    status: int | None = None
    text: str = ""
    token_ids: tuple[int, ...] | None = None
    finished: bool = False
    error: ErrorBody | None = None
    hung_up: bool = False
    timed_out: bool = False
    cached: int = 0
    own: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """What an answer is; `about` names the guard, the error code, or whose words it holds."""

    kind: Kind
    about: str = ""


def judge(seen: Seen, known: Sequence[Known], asked: Iterable[int]) -> Judged:
    """Hold one answer against the reference. Wrong text comes first, whatever else happened to the answer.

    `asked`: the prompts whose text the fleet has had.
    """
    right = known[seen.number]
    if not _begins(seen, right):
        return Judged(Kind.WRONG, whose(seen.text, seen.number, known, asked))
    if seen.error is not None:
        return _stopped(seen.error)
    if seen.hung_up:
        return Judged(Kind.HUNG_UP)
    if seen.timed_out:
        return Judged(Kind.UNANSWERED)
    if not seen.finished:
        return Judged(Kind.BROKEN, f"HTTP {seen.status}" if seen.status else "")
    if seen.text != right.text or (seen.token_ids is not None and seen.token_ids != right.token_ids):
        return Judged(Kind.SHORT)
    if seen.cached > seen.own:
        return Judged(Kind.BORROWED, f"{seen.cached} tokens cached, {seen.own} its own")
    return Judged(Kind.RIGHT)


def _begins(seen: Seen, right: Known) -> bool:
    ids = seen.token_ids
    return right.text.startswith(seen.text) and (ids is None or right.token_ids[: len(ids)] == ids)


def _stopped(error: ErrorBody) -> Judged:
    if error.type == "isolation_error":
        return Judged(Kind.CONTAINED, f"{error.guard or error.code} ({error.rule})")
    if error.code == "not_ready":
        return Judged(Kind.CONTAINED, "readiness (I8)")
    refused = error.type in ("invalid_request_error", "rate_limit_error")
    return Judged(Kind.REFUSED if refused else Kind.BROKEN, error.code or "")


def whose(text: str, number: int, known: Sequence[Known], asked: Iterable[int]) -> str:
    """Whose words a wrong answer holds: "foreign" with the number of a prompt that was asked, or "corrupt".

    Damaged answers ramble, and one word may be anybody's: two, or nothing but words of the other.
    """
    strange = {word for word in spoken(text) if len(word) >= LISTED} - known[number].words
    for other in asked:
        theirs = strange & known[other].words
        if len(theirs) >= 2 or (theirs and theirs == strange):
            return f"foreign: words of prompt {other}"
    return "corrupt"


@dataclass(frozen=True, slots=True)
class Rest:
    """The fleet afterwards, from outside: pages in flight, pages that nobody accounts for, workers that were reaped."""

    at_rest: bool
    restarts: int = 0
    about: str = ""


@dataclass(frozen=True, slots=True)
class Exercised:
    """All answers of one exercise, counted. `refused` and `contained` by error code and by guard."""

    counts: Mapping[Kind, int]
    rest: Rest
    foreign: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    contained: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    seconds: float = 0.0

    def __getitem__(self, kind: Kind) -> int:
        return self.counts.get(kind, 0)

    @property
    def asked(self) -> int:
        return sum(self.counts.values())

    @property
    def all_right(self) -> bool:
        """Every client that waited got the right answer, and the fleet is at rest: what a healthy one gives."""
        return self.verdict == "right" and not self[Kind.REFUSED]

    @property
    def verdict(self) -> str:
        """The worst that happened."""
        if self[Kind.WRONG]:
            return "wrong tokens"
        if self[Kind.BORROWED]:
            return "another tenant's cache"
        if self.contained:
            return f"contained by {', '.join(sorted(self.contained))}"
        if self.rest.restarts:
            return "worker restarted"
        for kind in (Kind.SHORT, Kind.UNANSWERED, Kind.BROKEN):
            if self[kind]:
                return str(kind)
        if not self.rest.at_rest:
            return "not at rest"
        return "right" if self[Kind.RIGHT] else "nothing exercised"

    @property
    def told(self) -> str:
        """The verdict with its count, for a cell."""
        n = self.asked
        if self[Kind.WRONG]:
            corrupt = self[Kind.WRONG] - self.foreign
            return f"wrong tokens in {self[Kind.WRONG]} of {n} ({self.foreign} foreign, {corrupt} corrupt)"
        if self[Kind.BORROWED]:
            return f"another tenant's cache in {self[Kind.BORROWED]} of {n}"
        if self.contained:
            return f"{self.verdict}, {sum(self.contained.values())} of {n}"
        counted = next((k for k in (Kind.SHORT, Kind.UNANSWERED, Kind.BROKEN) if self.verdict == k), Kind.RIGHT)
        more = f": {self.rest.about}" if self.verdict in ("not at rest", "worker restarted") else ""
        return f"{self.verdict}, {self[counted]} of {n}{more}" if not more else f"{self.verdict}{more}"

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "verdict": self.verdict,
            "answers": {str(kind): self[kind] for kind in Kind},
            "foreign": self.foreign,
            "refused": dict(self.refused),
            "contained": dict(self.contained),
            "at_rest": self.rest.at_rest,
            "restarts": self.rest.restarts,
            "pages": self.rest.about,
            "examples": list(self.examples),
            "seconds": round(self.seconds, 1),
        }


def count(answers: Iterable[Seen], known: Sequence[Known], rest: Rest, seconds: float = 0.0) -> Exercised:
    """Judge every answer."""
    seen_all = list(answers)
    asked = sorted({seen.number for seen in seen_all})
    judged = [(seen, judge(seen, known, asked)) for seen in seen_all]
    bad = (Kind.WRONG, Kind.BORROWED, Kind.SHORT, Kind.BROKEN)
    return Exercised(
        counts=Counter(what.kind for _, what in judged),
        rest=rest,
        foreign=sum(what.kind is Kind.WRONG and what.about.startswith("foreign") for _, what in judged),
        refused=Counter(what.about for _, what in judged if what.kind is Kind.REFUSED),
        contained=Counter(what.about for _, what in judged if what.kind is Kind.CONTAINED),
        examples=tuple(_example(s, w, known) for s, w in judged if w.kind in bad)[:EXAMPLES],
        seconds=seconds,
    )


def _example(seen: Seen, what: Judged, known: Sequence[Known]) -> str:
    about = f" ({what.about})" if what.about else ""
    head = f"prompt {seen.number} of tenant {seen.tenant}, {what.kind}{about}"
    return f"{head}: {seen.text[:90]!r} for {known[seen.number].text[:90]!r}"
