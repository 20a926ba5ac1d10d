"""Partial-order reduction, where it is sound: what can only be dropped, now and for ever, is dropped at once.

A message to an incarnation that is over, or about a room that is over where it arrives, changes nothing whenever it
comes: no room is opened twice and no incarnation returns. So its delivery commutes with everything, is seen by no
property, and cannot be enabled or disabled by anything: it is an ample set of its own. The same holds for a timer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pagefence.protocol import decode, prefill, router
from pagefence.protocol.decisions import ANY, Cells, Table, rule_in
from pagefence.protocol.messages import Abort, Envelope, Offer, Start, Timer, WorkerRef
from pagefence.sim.processes import DecodeProcess
from pagefence.sim.state import ROUTER, WorldState, room_of

Names = Sequence[str]
_TABLES: Mapping[str, Table] = {
    "router": router.TABLE,
    "prefill": prefill.TABLE,
    "decode": decode.TABLE,
}


def without_the_dead(before: WorldState, state: WorldState, names: Names, cells: Cells) -> WorldState:
    """The state after every message and timer that can only be dropped was dropped.

    `before`: the reduced state from which one move led here. What was alive there still is, unless the machine that it
    is for has taken a step.
    """
    moved = {name for name, was, now in _machines(names, before, state) if was is not now}
    known = set(map(id, before.network))
    network = tuple(
        e
        for e in state.network
        if (id(e) in known and e.receiver.name not in moved) or not _is_dead(state, e, names, cells)
    )
    echoes = tuple(e for e in state.echoes if not _is_dead(state, e, names, cells))
    timers = state.timers
    if timers is not before.timers or moved:
        old = before.timers
        timers = frozenset(
            t for t in timers if (t[0].name not in moved and t in old) or not _never_acts(state, *t, names, cells)
        )
    if (len(network), len(echoes), len(timers)) == (len(state.network), len(state.echoes), len(state.timers)):
        return state
    return replace(state, network=network, echoes=echoes, timers=timers)


def _machines(names: Names, before: WorldState, state: WorldState) -> Iterator[tuple[str, object, object]]:
    yield ROUTER.name, before.router, state.router
    yield from zip(names, before.processes, state.processes, strict=True)


def _is_dead(state: WorldState, envelope: Envelope, names: Names, cells: Cells) -> bool:
    sender, receiver, body = envelope.sender, envelope.receiver, envelope.body
    if receiver == ROUTER:
        up = state.router.workers.get(sender.name)
        gone = up is None or up.worker != sender
        return gone or _dropped(cells, "router", state.router, body)
    process = state.processes[names.index(receiver.name)]
    if process is None or process.ref != receiver:
        return True
    members = process.state.members
    if sender in members.reaped:
        return True
    if isinstance(body, Offer | Start | Abort) and body.floor > members.floor:
        return False  # it still raises the floor
    return _dropped(cells, "decode" if isinstance(process, DecodeProcess) else "prefill", process.state, body)


def _never_acts(state: WorldState, ref: WorkerRef, timer: Timer, names: Names, cells: Cells) -> bool:
    if ref == ROUTER:
        return _dropped(cells, "router", state.router, timer)
    process = state.processes[names.index(ref.name)]
    if process is None or process.ref != ref:
        return True
    return _dropped(cells, "decode" if isinstance(process, DecodeProcess) else "prefill", process.state, timer)


def _dropped(cells: Cells, machine: str, state: Any, message: object) -> bool:
    """The room is over here and the table only says why the message is dropped."""
    room = room_of(message)
    if room is None:
        return False
    phase, kind = state.phase(room), type(message)
    if phase != "over" or (machine, ANY, kind) in cells:
        return False
    return isinstance(rule_in(cells, _TABLES[machine], machine, phase, kind), str)
