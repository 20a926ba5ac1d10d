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
    """Of a pass of `tokens`, at least a page: the oldest prompt gets what it needs, each next one of what is left.

    A portion ends on a page border or with its prompt, so that whole pages are written once. Where what is left does
    not reach that far, the prompt gets nothing this time, and one behind it may. The order is the queue's.
    """
    shared: list[tuple[P, int]] = []
    for prompt in queue:
        end = min(prompt.computed + tokens, len(prompt.token_ids))
        if end < len(prompt.token_ids):
            end -= end % page_size
        if end > prompt.computed:
            shared.append((prompt, end - prompt.computed))
            tokens -= end - prompt.computed
    return shared
