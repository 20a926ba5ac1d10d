"""A room in each phase of each worker's machine, brought there by the whole protocol."""

from __future__ import annotations

from collections.abc import Callable

from pagefence.protocol.messages import Abort, Offer, Room, Start

from .stage import Stage

Scene = Callable[[], tuple[Stage, Room]]


def _at(name: str) -> Scene:
    def scene() -> tuple[Stage, Room]:
        stage = Stage()
        room: Room = getattr(stage, name)()
        return stage, room

    return scene


def _unheard_of_by_decode() -> tuple[Stage, Room]:
    stage = Stage()
    room = stage.submit()
    stage.take(Offer)
    return stage, room


def _waits_on_decode() -> tuple[Stage, Room]:
    stage = Stage(decode_pages=8)
    stage.decoding(prompt=20, max_new=4)
    room = stage.submit(prompt=20, max_new=4, ticket=1)
    stage.flush()
    return stage, room


def _quarantined() -> tuple[Stage, Room]:
    stage = Stage()
    room = stage.computing()
    stage.fire("hand-off", room)
    stage.post.clear()
    return stage, room


def _over() -> tuple[Stage, Room]:
    stage = Stage()
    room = stage.decoding(max_new=1)
    stage.generate(room)
    stage.at_rest()
    return stage, room


def _unheard_of_by_prefill() -> tuple[Stage, Room]:
    stage = Stage()
    room = stage.reserved()
    stage.take(Start)
    return stage, room


def _waits_on_prefill() -> tuple[Stage, Room]:
    stage = Stage(decode_pages=20, prefill_pages=8)
    stage.computing(prompt=20, ticket=0)
    return stage, stage.computing(prompt=20, ticket=1)


def _draining() -> tuple[Stage, Room]:
    stage = Stage()
    room = stage.computing()
    stage.hang_up()
    stage.deliver(Abort, to=stage.p.ref)
    stage.post.clear()
    return stage, room


DECODE: dict[str, Scene] = {
    "new": _unheard_of_by_decode,
    "waiting": _waits_on_decode,
    "reserved": _at("reserved"),
    "verifying": _at("verifying"),
    "decoding": _at("decoding"),
    "quarantined": _quarantined,
    "over": _over,
}
PREFILL: dict[str, Scene] = {
    "new": _unheard_of_by_prefill,
    "waiting": _waits_on_prefill,
    "computing": _at("computing"),
    "sent": _at("sent"),
    "draining": _draining,
    "over": _over,
}
ROUTER: dict[str, Scene] = {
    "offered": _unheard_of_by_decode,
    "started": _at("verifying"),
    "committed": _at("decoding"),
    "over": _over,
}
