"""The whole protocol as one page: every message, every timer, and what each machine does with them in each phase.

`python -m pagefence.protocol.table` prints it; `docs/reference/protocol.md` is its output, and a test keeps it so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, get_args

from pagefence.protocol import decode, decode_state, invariants, membership, prefill, router
from pagefence.protocol import messages as m

Cell = Callable[..., object] | str


@dataclass(frozen=True, slots=True)
class MachinePage:
    """One machine: its phases, the messages about a room, its table, and the inputs that name no phase."""

    name: str
    phases: type[StrEnum]
    room_messages: tuple[type, ...]
    table: Mapping[Any, Mapping[type, Cell]]
    always: Mapping[type, Cell]


_MEMBERS: Mapping[type, Cell] = {
    m.PeerUp: membership.Membership.up,
    m.Envelope: "dropped unless both incarnations are the living ones; what only the router may say, unless it did",
}
PAGES = (
    MachinePage(
        "router",
        router.Phase,
        get_args(router.RoomMessage),
        router.TABLE,
        {
            m.Submit: router.submit,
            m.ClientGone: router.client_gone,
            m.LastOrders: router.last_orders,
            m.WorkerUp: router.worker_up,
            m.WorkerGone: router.worker_gone,
            m.Recycle: "kill, reap and restart that incarnation, if it is still the living one",
            m.Envelope: "dropped when its receiver is not this router or its sender is not alive",
        },
    ),
    MachinePage(
        "prefill",
        prefill.Phase,
        get_args(prefill.RoomMessage),
        prefill.TABLE,
        {m.Reaped: prefill._reaped, **_MEMBERS},
    ),
    MachinePage(
        "decode",
        decode_state.Phase,
        get_args(decode.RoomMessage),
        decode.TABLE,
        {m.Reaped: decode._reaped, **_MEMBERS},
    ),
)

# Who says what to whom. "driver" is the process around the machine: clients, supervisor, compute, clock.
SAYS: Mapping[type, tuple[tuple[str, str], ...]] = {
    m.Offer: (("router", "decode"),),
    m.Start: (("router", "prefill"),),
    m.Abort: (("router", "prefill"), ("router", "decode"), ("decode", "prefill")),
    m.PeerUp: (("router", "prefill"), ("router", "decode")),
    m.Reaped: (("router", "prefill"), ("router", "decode")),
    m.Reservation: (("decode", "router"),),
    m.Rejected: (("decode", "router"), ("prefill", "router"), ("prefill", "decode")),
    m.Committed: (("decode", "router"),),
    m.Tokens: (("decode", "router"),),
    m.Finished: (("decode", "router"),),
    m.Failed: (("decode", "router"), ("prefill", "router")),
    m.Recycle: (("decode", "router"),),
    m.Receipt: (("prefill", "decode"),),
    m.Drained: (("prefill", "decode"),),
    m.Ack: (("decode", "prefill"),),
    m.Submit: (("driver", "router"),),
    m.ClientGone: (("driver", "router"),),
    m.LastOrders: (("driver", "router"),),
    m.WorkerUp: (("driver", "router"),),
    m.WorkerGone: (("driver", "router"),),
    m.Timer: (("driver", "router"), ("driver", "prefill"), ("driver", "decode")),
    m.ChunkComputed: (("driver", "prefill"),),
    m.Landed: (("driver", "prefill"),),
    m.WriteFailed: (("driver", "prefill"),),
    m.ComputeFailed: (("driver", "prefill"), ("driver", "decode")),
    m.PagesDigested: (("driver", "decode"),),
    m.Generated: (("driver", "decode"),),
    m.FrameBroken: (("driver", "decode"),),
}


@dataclass(frozen=True, slots=True)
class TimerPage:
    """One timer: which machine sets it, when, and the rule that runs when it fires in time."""

    kind: m.TimerKind
    machine: str
    set_when: str
    fires: Cell


TIMERS = (
    TimerPage("deadline", "router", "a room is minted", router.deadline),
    TimerPage("hand-off", "decode", "pages are leased", decode.handoff_timer),
    TimerPage("drain", "decode", "a room goes to quarantine; again after each firing", decode.drain_timer),
    TimerPage("resend", "prefill", "a receipt is sent; again after each firing", prefill.resend_timer),
)


def said(cell: Cell) -> str:
    """What a cell of a table does, in words: the first line of the rule's docstring, or why the message is dropped."""
    if isinstance(cell, str):
        return cell
    text = (cell.__doc__ or "").strip().splitlines()[0]
    return text[:1].lower() + text[1:].rstrip(".")


def render() -> str:
    """The page, in Markdown."""
    return "\n".join([*_head(), *_rules(), *_messages(), *_timers(), *_machines()])


def _head() -> Iterable[str]:
    yield "# The protocol of the hand-off"
    yield ""
    yield "Written by `python -m pagefence.protocol.table` from the machines that run. Do not edit."
    yield ""


def _rules() -> Iterable[str]:
    yield from ("## The rules", "", "| id | rule | |", "|---|---|---|")
    for rule in invariants.RULES.values():
        yield f"| {rule.id} | {rule.name} | {rule.statement} |"
    yield ""


def _messages() -> Iterable[str]:
    yield from (
        "## Messages",
        "",
        "The driver is the process around a machine: clients, supervisor, compute, clock.",
        "",
    )
    yield from ("| message | from → to | says |", "|---|---|---|")
    for message, ways in SAYS.items():
        paths = ", ".join(f"{sender} → {receiver}" for sender, receiver in ways)
        yield f"| `{message.__name__}` | {paths} | {(message.__doc__ or '').strip().splitlines()[0]} |"
    yield ""


def _timers() -> Iterable[str]:
    yield from (
        "## Timers",
        "",
        "A timer may resend, abort, quarantine or ask for a recycling. It never releases (I2).",
        "",
    )
    yield from ("| timer | set by | when | acts in | does |", "|---|---|---|---|---|")
    for timer in TIMERS:
        table = next(page.table for page in PAGES if page.name == timer.machine)
        acts = ", ".join(phase for phase, row in table.items() if row[m.Timer] is timer.fires)
        yield f"| {timer.kind} | {timer.machine} | {timer.set_when} | {acts} | {said(timer.fires)} |"
    yield ""


def _machines() -> Iterable[str]:
    for page in PAGES:
        yield from (f"## The {page.name} machine", "", "In every phase:", "", "| message | does |", "|---|---|")
        for message, cell in page.always.items():
            yield f"| `{message.__name__}` | {said(cell)} |"
        yield from ("", "By the phase of the room; *italics*: dropped, and why.", "")
        yield from ("| phase | message | does |", "|---|---|---|")
        for phase, row in page.table.items():
            for message, cell in row.items():
                words = f"*{cell}*" if isinstance(cell, str) else said(cell)
                yield f"| {phase} | `{message.__name__}` | {words} |"
        yield ""


if __name__ == "__main__":
    print(render(), end="")
