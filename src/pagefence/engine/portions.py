"""Which prompts share one forward pass of prefill, and how many tokens of each go into it. Data in, data out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Progress(Protocol):
    """A prompt, computed up to a page border or to its end."""

    @property
    def token_ids(self) -> Sequence[int]:
        """All of it."""

    @property
    def computed(self) -> int:
        """How many of its tokens, from the first one on, lie in its pages."""


P = TypeVar("P", bound=Progress)


def portions(queue: Iterable[P], tokens: int, page_size: int) -> list[tuple[P, int]]:
    """Of a pass of `tokens`, at least a page: half is the oldest prompt's, if it needs it. Whoever ends in the other
    half comes next, so that a short prompt does not wait for a long one. What is left goes to all, in their order.

    A portion ends on a page border or with its prompt, so that whole pages are written once. Where what is left does
    not reach that far, the prompt gets nothing this time, and one behind it may. The order is the queue's.
    """
    waiting = [prompt for prompt in queue if prompt.computed < len(prompt.token_ids)]
    given = [0] * len(waiting)

    def give(place: int, most: int) -> None:
        prompt = waiting[place]
        done = prompt.computed + given[place]
        end = min(done + most, len(prompt.token_ids))
        if end < len(prompt.token_ids):
            end -= end % page_size
        given[place] += max(0, end - done)

    for place in range(len(waiting)):
        left = tokens - sum(given)
        if place == 0:
            give(0, max(page_size, tokens // 2))
        elif len(waiting[place].token_ids) - waiting[place].computed <= left:
            give(place, left)
    for place in range(len(waiting)):
        give(place, tokens - sum(given))
    return [(prompt, count) for prompt, count in zip(waiting, given, strict=True) if count]
