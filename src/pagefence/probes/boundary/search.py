"""Where to ask next for the longest prompt that a fleet accepts, when no live figure tells it.

What is refused costs nothing, what is accepted costs its whole length. So the search comes from above: from the figure
that is advertised or that an error named, down one by one (most limits lie a few tokens under it), then in doubling
steps; the last gap is closed with as few questions as the rest of the budget allows. That is the puzzle of the two
eggs: an acceptance is an egg that breaks. With no figure at all it doubles upwards until something is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import comb

_FIRST = 256
_ONE_BY_ONE = 16
_MOST_QUESTIONS = 80


@dataclass(frozen=True, slots=True)
class Search:
    """What is known so far. All lengths and costs in prompt tokens.

    hint      the figure that is advertised, or None
    budget    what accepted prompts may cost in all
    accepted  the longest accepted length, 0 while none is known; `refused` the shortest refused one
    told      the limit that the last refusal named
    """

    hint: int | None
    budget: int
    accepted: int = 0
    refused: int | None = None
    told: int | None = None
    spent: int = 0
    questions: int = 0

    @property
    def left(self) -> int:
        return max(0, self.budget - self.spent)

    @property
    def exact(self) -> bool:
        return self.accepted > 0 and self.refused == self.accepted + 1

    def next(self) -> int | None:
        """The length to ask now; None when the limit is found, or when the next question may cost too much."""
        if self.exact or self.questions >= _MOST_QUESTIONS:
            return None
        wanted = self._upwards() if self.refused is None else self._downwards(self.refused)
        return wanted if wanted is not None and self.accepted < wanted <= self._affordable(wanted) else None

    def _affordable(self, wanted: int) -> int:
        """What is surely refused is free, so only a length that could be accepted has to be paid for."""
        sure = self.hint is not None and self.refused is None and wanted > self.hint
        return wanted if sure and self.accepted == 0 else self.left

    def _upwards(self) -> int:
        if self.hint is not None and self.accepted <= self.hint:
            return self.hint + 1
        return max(_FIRST, 2 * self.accepted)

    def _downwards(self, refused: int) -> int | None:
        if self.told is not None and self.accepted < self.told < refused:
            return self.told
        if self.accepted == self.told:  # the figure itself fits, so it most likely is the border
            return self.accepted + 1
        if self.accepted == 0:
            return max(
                1, refused - 1 if self.questions <= _ONE_BY_ONE else refused - 2 ** (self.questions - _ONE_BY_ONE)
            )
        return closing(self.accepted, refused, self.left // refused)

    def after(self, tokens: int, accepted: bool, told: int | None = None) -> Search:
        """What is known after the answer to a prompt of `tokens`."""
        told = self.told if told is None else told
        if accepted:
            longest = max(self.accepted, tokens)
            return replace(self, accepted=longest, spent=self.spent + tokens, questions=self.questions + 1, told=told)
        shortest = tokens if self.refused is None else min(self.refused, tokens)
        return replace(self, refused=shortest, questions=self.questions + 1, told=told)


def closing(accepted: int, refused: int, acceptances: int) -> int | None:
    """The next length between the two that needs the fewest questions in the worst case with so many acceptances to
    spend. With one it goes down one by one; with enough it halves the gap."""
    gap = refused - accepted - 1
    if gap <= 0 or acceptances <= 0:
        return None
    most = min(gap, _MOST_QUESTIONS)
    questions = next((n for n in range(1, most) if distinguished(n, acceptances) >= gap), most)
    return refused - 1 - min(gap - 1, distinguished(questions - 1, acceptances - 1))


@cache
def distinguished(questions: int, acceptances: int) -> int:
    """How many lengths can be told apart with so many questions, of which so many may be accepted."""
    return sum(comb(questions, i) for i in range(1, min(questions, acceptances) + 1))
