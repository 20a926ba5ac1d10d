"""Whether the difference of the fleet's counters over a wave can be put down to our own requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pagefence.fleet.counters import Window
from pagefence.probes.run import Outcome


@dataclass(frozen=True, slots=True)
class Traffic:
    """A window and what was ours in it.

    answered  answers to our requests, first tries included
    tokens    prompt tokens that we counted for them; None where the fleet counts none for us
    doubt     why nothing follows from the window, if nothing does
    """

    window: Window
    outcomes: tuple[Outcome, ...]
    answered: int
    tokens: int | None
    doubt: str | None


def traffic(window: Window, outcomes: Sequence[Outcome]) -> Traffic:
    """Hold what a window's nodes counted against what we sent in it.

    It is conclusive when every request was answered, or refused without reaching a worker, and each side that counts
    requests counted exactly ours; where no side does, when the tokens are exactly ours.
    """
    names = set(window.requests)
    mine = tuple(o for o in outcomes if o.shot.id in names)
    pairs = [(o.prompt if a is o.answer else (o.first_prompt or o.prompt), a) for o in mine for a in o.answers]
    told = [prompt for prompt, answer in pairs if answer.answered]
    tokens = sum(p.tokens for p in told) if all(p.counted for p in told) else None
    odd = sum(not (a.answered or a.refused_as_too_long) for _, a in pairs) + len(names) - len(mine)
    return Traffic(window, mine, len(told), tokens, _doubt(window, len(told), tokens, odd))


def _doubt(window: Window, answered: int, tokens: int | None, odd: int) -> str | None:
    if odd:
        return f"{odd} requests were neither answered nor refused for their length"
    if not answered:
        return "nothing was answered"
    counted = [window.moved(side, "requests") for side in (window.entry, window.exit)]
    requests = [count for count in counted if count is not None]
    if any(count != answered for count in requests):
        return f"the fleet counted {max(requests):,} requests while {answered:,} of ours were answered: not ours alone"
    if not requests:
        moved = window.moved(window.entry, "prompt")
        if moved is None:
            return "no node tells what it counts"
        if moved != tokens:
            said = "an unknown number" if tokens is None else f"{tokens:,}"
            return f"the fleet counted {moved:,} prompt tokens, {said} of them ours"
    return None
