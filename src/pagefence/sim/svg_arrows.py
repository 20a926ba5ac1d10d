"""Which arrows a sequence diagram of a trace needs: every message from the step that sent it to the one it arrived."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pagefence.sim.moves import Kind
from pagefence.sim.trace import Message, PageView, Trace, TraceStep
from pagefence.sim.wording import lifelines, named, role

Shape = Literal["message", "lost", "write", "under way"]
_ON_MESSAGES: tuple[Kind, ...] = ("deliver", "overtake", "repeat", "echo", "lose")
_NOTES: dict[Kind, str] = {
    "overtake": "overtakes",
    "repeat": "will come again",
    "echo": "an old copy",
    "land-late": "late",
}


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message from its row to its row (indices into the steps). `note` says what was odd about its way.

    `slot` keeps apart what one step says beside the message that it is about.
    """

    message: Message
    sent: int
    arrived: int
    shape: Shape
    note: str = ""
    slot: int = 0


def arrows(trace: Trace) -> tuple[Arrow, ...]:
    """All arrows, in order of arrival; then what was still under way at the end."""
    return tuple(_arrows(trace))


def _arrows(trace: Trace) -> Iterator[Arrow]:
    waiting: list[tuple[int, Message]] = []
    taken: dict[Message, int] = {}
    for row, step in enumerate(trace.steps):
        kind, message = step.move.kind, _travelling(step)
        if kind in ("land", "land-late"):
            yield Arrow(_write(trace, row), row, row, "write", _NOTES.get(kind, ""))
        elif message is not None:
            sent = _sent(waiting, taken, message, kind)
            shape: Shape = "lost" if kind == "lose" else "message"
            yield Arrow(message, row if sent is None else sent, row, shape, _NOTES.get(kind, ""))
        for new in map(_by_lifelines, step.sent):
            # What is sent again while the first is on its way is not put there twice. Tokens differ by their index.
            if new.ticket is None or new.name == "Tokens" or all(new != other for _, other in waiting):
                waiting.append((row, new))
    said = [row for row, _ in waiting]
    for i, (row, message) in enumerate(waiting):
        slot = 1 + said[:i].count(row)
        # The way to the client is no part of the world: what the router says, the client has heard.
        yield Arrow(message, row, row, "message" if message.receiver == "client" else "under way", slot=slot)


def _travelling(step: TraceStep) -> Message | None:
    """The message that a step is about; a move that has none but is one (submit, lose) is read as one."""
    move = step.move
    if step.delivered is not None:
        return _by_lifelines(step.delivered)
    if move.kind in ("submit", "hang-up"):
        return Message("client", "router", move.kind.capitalize(), move.ticket)
    if move.kind in _ON_MESSAGES and ">" in move.who:
        sender, _, receiver = move.who.partition(">")
        return _by_lifelines(Message(sender, receiver, move.what, move.ticket))
    return None


def _by_lifelines(message: Message) -> Message:
    return replace(message, sender=named(message.sender), receiver=named(message.receiver))


def _sent(waiting: list[tuple[int, Message]], taken: dict[Message, int], message: Message, kind: Kind) -> int | None:
    """The row that sent the message: the oldest that still waits, or for a copy the one that it is a copy of."""
    if kind == "echo" and message in taken:
        return taken[message]
    place = next((i for i, (_, other) in enumerate(waiting) if other == message), None)
    if place is None:
        return taken.get(message)
    taken[message] = waiting.pop(place)[0]
    return taken[message]


def _write(trace: Trace, row: int) -> Message:
    """A one-sided write. A move that names one end leaves the other to be read off the pages that changed."""
    move = trace.steps[row].move
    ends = [named(name) for name in move.who.split(">") if name]
    everybody = lifelines(trace)
    prefills = [name for name in ends if role(name) == "prefill"] or [n for n in everybody if role(n) == "prefill"]
    decodes = [name for name in ends if role(name) == "decode"] or [
        *_changed(trace, row),
        *(name for name in everybody if role(name) == "decode"),
    ]
    here = ends[0] if ends else ""
    return Message(prefills[0] if prefills else here, decodes[0] if decodes else here, "write", move.ticket)


def _changed(trace: Trace, row: int) -> list[str]:
    before = dict(trace.steps[row - 1].pages) if row else {}
    return [
        named(worker)
        for worker, pages in trace.steps[row].pages
        if role(worker) == "decode" and _holds(pages) != _holds(before.get(worker, ()))
    ]


def _holds(pages: tuple[PageView, ...]) -> list[int | None]:
    return [page.holds for page in pages]
