"""What happened on the way to a violation, step by step, in a form that can be printed, drawn and replayed."""

from __future__ import annotations

from dataclasses import dataclass

from pagefence.sim.moves import Move


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a step sent (`sent`) or delivered. Lifelines are named "client", "router" or by worker."""

    sender: str
    receiver: str
    name: str
    ticket: int | None


@dataclass(frozen=True, slots=True)
class PageView:
    """One page after a step: whom it is let to, and whose bytes lie in it (tickets; None: nobody, nothing)."""

    index: int
    owner: int | None
    holds: int | None
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One move and what it caused. `pages` is every living worker's pool after it, by worker name."""

    number: int
    move: Move
    delivered: Message | None
    sent: tuple[Message, ...]
    did: tuple[str, ...]
    pages: tuple[tuple[str, tuple[PageView, ...]], ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A run from the start of a world to its end. `rule` and `violation` are None for a run that broke nothing."""

    world: str
    fault: str | None
    guards: str
    steps: tuple[TraceStep, ...]
    rule: str | None
    violation: str | None
    replay: str
