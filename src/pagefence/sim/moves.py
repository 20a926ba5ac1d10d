"""Everything that can happen next in a world, each thing by a name that means the same in every run.

A move names what happens, to whom and for which request; it holds no objects of one run, so a trace can be replayed,
shortened and printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "submit",
    "hang-up",
    "deliver",
    "overtake",
    "repeat",
    "echo",
    "lose",
    "compute",
    "compute-fails",
    "land",
    "write-fails",
    "land-late",
    "verify",
    "generate",
    "flip",
    "timer",
    "early",
    "crash",
    "reap",
    "restart",
]


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """`who`: a worker, or "sender>receiver" of a message; `what`: the kind of message or timer, or the part of a late
    write; `ticket`: whose."""

    kind: Kind
    who: str = ""
    what: str = ""
    ticket: int | None = None

    def __str__(self) -> str:
        words = [self.kind, self.what, self.who, "" if self.ticket is None else f"#{self.ticket}"]
        return " ".join(word for word in words if word)
