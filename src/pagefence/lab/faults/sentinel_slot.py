"""Wrong owner of a slot: what stands for "no slot" is the last slot of the pool."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.sim.memory import BLANK
from pagefence.sim.moves import Move
from pagefence.sim.processes import DecodeProcess
from pagefence.sim.scene import Scene


def padding_writes_the_last_page(scene: Scene, move: Move) -> None:
    """A batch with fewer requests than rows is padded, and a padding row's slot is -1: no slot at all.

    Taken for an index, it is the last slot of the last page, whoever holds that. The slot lies between the page's
    frames, so they stay as they are; the hand-off check sees bytes that were not digested yet, and nothing the others.
    """
    before = scene.before.process(move.who, scene.bounds) if move.kind == "generate" else None
    if not isinstance(before, DecodeProcess) or len(before.rows) == scene.bounds.rows:
        return
    process, last = scene.decode(move.who), scene.bounds.decode_pages - 1
    garbage = replace(process.memory.get(last, BLANK), tokens=(-1,), tenant="")
    scene.put(replace(process, memory=process.memory.set(last, garbage)))


FAULT = Fault(
    name="sentinel-slot",
    summary="padding slot -1 is taken for an index: it writes the last slot of the pool",
    mechanism=padding_writes_the_last_page.__doc__ or "",
    reference="vllm-project/vllm #43810",
    rules=("I2",),
    below=padding_writes_the_last_page,
    not_in_engine="its decode step has no padding rows: it computes exactly the requests that run",
    hidden_by=("handoff-check",),
)
