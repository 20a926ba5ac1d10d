"""The words that the renderers of a trace share: letters for requests, sentences for moves, names for lifelines."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_uppercase

from pagefence.sim.moves import Kind, Move
from pagefence.sim.trace import Message, PageView, Trace, TraceStep

# {who}: the worker; {what}: the kind of message or timer; {of}: " of A" or nothing; {to}: the receiver of a message.
_SENTENCES: dict[Kind, str] = {
    "submit": "the client submits {ticket}",
    "hang-up": "the client{of} hangs up",
    "deliver": "{what}{of} reaches {to}",
    "overtake": "{what}{of} overtakes and reaches {to}",
    "repeat": "{what}{of} reaches {to}, and a copy stays on the way",
    "echo": "an old copy of {what}{of} reaches {to}",
    "lose": "{what}{of} is lost on its way to {to}",
    "compute": "{who} computes {ticket}",
    "compute-fails": "{who} fails to compute {ticket}",
    "land": "a write of {who} for {ticket} lands",
    "write-fails": "a write of {who} for {ticket} fails",
    "land-late": "{what} of a failed write of {who} for {ticket} lands all the same",
    "verify": "{who} digests the pages{of}",
    "generate": "{who} generates for {ticket}",
    "flip": "{who} finds a broken {what} frame{of}",
    "timer": "the {what} timer{of} fires at {who}",
    "early": "the {what} timer{of} fires early at {who}",
    "crash": "{who} crashes",
    "reap": "{who} is reaped",
    "restart": "{who} starts again",
}
_ROLES = ("client", "router", "prefill", "decode")


def letters(trace: Trace) -> dict[int, str]:
    """A letter for every request in the trace, by ticket: A to Z, then AA and so on."""
    return {ticket: _letter(rank) for rank, ticket in enumerate(sorted(set(_tickets(trace))))}


def in_words(step: TraceStep, names: dict[int, str]) -> str:
    """What happened, as a sentence without its full stop."""
    move = step.move
    letter = "" if move.ticket is None else names[move.ticket]
    # A move that names no message is still told by the one that it delivered.
    travelling = step.delivered or Message("", receiver_of(move), move.what, move.ticket)
    what = move.what or travelling.name
    sentence = _SENTENCES[move.kind].format(
        who=named(move.who.partition(">")[0]) or "a worker",
        what=what if what or move.kind == "flip" else "message",
        of=f" of {letter}" if letter else "",
        to=named(travelling.receiver) or "its receiver",
        ticket=letter or "a request",
    )
    return " ".join(sentence.split())


def receiver_of(move: Move) -> str:
    """Whom a move on a message reaches."""
    return move.who.rpartition(">")[2]


def message_in_words(message: Message, names: dict[int, str]) -> str:
    """A message and whose it is."""
    return message.name if message.ticket is None else f"{message.name} {names[message.ticket]}"


def named(worker: str) -> str:
    """A worker's lifeline: its name without the number of its incarnation."""
    return worker.partition("#")[0]


def role(worker: str) -> str:
    """Workers are named by their role or by its first letter: "decode-0", "d1"."""
    return next((known for known in _ROLES if worker and known[0] == worker[0]), "other")


def lifelines(trace: Trace) -> tuple[str, ...]:
    """Everybody who takes part, from the client to the decode workers."""
    order = (*_ROLES, "other")
    return tuple(sorted({named(name) for name in _participants(trace)} - {""}, key=lambda n: (order.index(role(n)), n)))


def is_foreign(page: PageView) -> bool:
    """A let page in which another request's bytes lie. In a free page they are leftovers, which nobody can read."""
    return page.owner is not None and page.holds is not None and page.holds != page.owner


def _letter(rank: int) -> str:
    before, last = divmod(rank, len(ascii_uppercase))
    return (_letter(before - 1) if before else "") + ascii_uppercase[last]


def _tickets(trace: Trace) -> Iterator[int]:
    for step in trace.steps:
        found = [step.move.ticket, *(message.ticket for message in _messages(step))]
        for _, pages in step.pages:
            found += [ticket for page in pages for ticket in (page.owner, page.holds)]
        yield from (ticket for ticket in found if ticket is not None)


def _participants(trace: Trace) -> Iterator[str]:
    for step in trace.steps:
        yield from step.move.who.split(">")
        yield from (worker for worker, _ in step.pages)
        for message in _messages(step):
            yield from (message.sender, message.receiver)
        if step.move.kind in ("submit", "hang-up"):
            yield from ("client", "router")


def _messages(step: TraceStep) -> tuple[Message, ...]:
    return step.sent if step.delivered is None else (step.delivered, *step.sent)
