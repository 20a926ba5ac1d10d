"""A world to search or to play: its sizes, decisions and watched rules, and what a move of it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Effect
from pagefence.protocol.invariants import RULES
from pagefence.protocol.messages import Envelope, Tokens, WorkerRef
from pagefence.sim.bounds import Bounds
from pagefence.sim.moves import Move
from pagefence.sim.state import WorldState, room_of

if TYPE_CHECKING:
    from pagefence.sim.scene import Scene

# Called after a move of this kind, with the world as it then is; a fault below the protocol lives here.
Below = Callable[["Scene", Move], None]


class NotPossible(Exception):
    """The move is not one that this state has."""


@dataclass(frozen=True, slots=True)
class World:
    """What stays the same during a run: sizes, decisions, the rules that are watched, and what is broken below.

    `reduced`: what can only be dropped is dropped at once (`reduction`). `only_harm`: rules may break inside as long as
    no other request's bytes or tokens reach a client. `forgiving`: a machine that a fault makes stop on an error of its
    own has crashed; without it, that is a defect of ours.
    """

    bounds: Bounds
    decisions: Decisions = field(default_factory=Decisions)
    watched: frozenset[str] = frozenset(RULES)
    below: Below | None = None
    reduced: bool = True
    only_harm: bool = False
    forgiving: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names."""
        return self.bounds.names()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state after a move; `sometimes`: the interesting things that happened; `effects`: who did what."""

    state: WorldState
    sometimes: tuple[str, ...] = ()
    effects: tuple[tuple[WorkerRef, Effect], ...] = ()
    delivered: Envelope | None = None


def delivery(kind: Any, envelope: Envelope, state: WorldState) -> Move:
    """The move that delivers (loses, repeats, ...) this message."""
    room = room_of(envelope.body)
    ticket = None if room is None else state.minted.get(room)
    body = envelope.body
    about = body.index if isinstance(body, Tokens) else getattr(body, "worker", None)
    what = type(body).__name__ if about is None else f"{type(body).__name__} {about}"
    return Move(kind, _channel(envelope.sender, envelope.receiver), what, ticket)


@lru_cache(10_000)
def _channel(sender: WorkerRef, receiver: WorkerRef) -> str:
    return f"{sender}>{receiver}"
