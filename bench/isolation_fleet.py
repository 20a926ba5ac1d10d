"""A fleet whose guards are timed, or left out: for `bench/isolation.py` alone.

    python -m bench.isolation_fleet timed|plain|bare FOLDER [flags of pagefence serve]

The worker is the product's, started by a module that replaces functions before it runs them, as the lab does with
decisions; the product's code has no timer. `timed` puts a clock around each guard and each step, and writes what it
saw into FOLDER when the worker ends. `plain` changes nothing. `bare` leaves out what the guards do: the check of
frames, zeroing, the drain, and frames and digests on both sides of the hand-off.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagefence.engine import decode, prefill, worker
from pagefence.engine.command import World, serve_app
from pagefence.engine.kv import frames, transfer
from pagefence.engine.kv.segment import Segment
from pagefence.lab.guards import without
from pagefence.pool.pages import PagePool
from pagefence.protocol import prefill as prefill_machine
from pagefence.protocol.decisions import GUARDS, Decisions
from pagefence.run import run

MODES = ("timed", "plain", "bare")
LEFT_OUT = ("page-frames", "zero-on-lease", "drain", "handoff-check")

Spans = dict[str, list[tuple[float, float]]]
"""By name: when a call began (`time.perf_counter`, one clock for all processes) and how long it took."""

spans: Spans = {}


def clocked(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, noted under this name."""
    noted = spans.setdefault(name, [])

    def timed(*arguments: Any, **more: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(*arguments, **more)
        finally:
            noted.append((start, time.perf_counter() - start))

    return timed


def _replace(owner: Any, attribute: str, call: Callable[..., Any]) -> None:
    """In the module that calls it. A name that is not there any more must not go unnoticed."""
    assert callable(getattr(owner, attribute)), attribute
    setattr(owner, attribute, call)


def _clock(owner: Any, attribute: str, name: str) -> None:
    _replace(owner, attribute, clocked(name, getattr(owner, attribute)))


def time_guards() -> Decisions:
    """Put clocks around everything. Names ending in -digest run beside the step, on decode's helper thread."""
    _clock(decode.DecodeWork, "do_one", "decode-step")
    _clock(decode.DecodeWork, "_check_frames", "decode-frame-check")
    _clock(prefill.PrefillWork, "do_one", "prefill-chunk")
    _clock(Segment, "zero", "zero")
    for change in ("hold", "drained", "quarantine"):
        _clock(PagePool, change, "drain")
    # In the modules that call them: what decode checks at the hand-off, what prefill writes.
    _clock(decode, "page_digests", "decode-digest")
    _clock(transfer, "page_digest", "prefill-digest")
    for written in ("write_head", "write_tail"):
        _clock(transfer, written, "prefill-frames")
    _clock(frames, "write_frames", "decode-frames")
    # Once for a hand-off; the checks inside a step are counted above, in another name.
    verify = decode.DecodeWork._verify
    check = frames.check

    def verified(self: decode.DecodeWork, effect: Any) -> None:
        frames.check = clocked("decode-frames", check)
        try:
            verify(self, effect)
        finally:
            frames.check = check

    decode.DecodeWork._verify = verified  # type: ignore[method-assign]
    _clock(prefill_machine, "seal", "prefill-receipt")
    product = Decisions()
    return replace(
        product,
        may_release=clocked("drain", product.may_release),
        check_receipt=clocked("decode-receipt", product.check_receipt),
        check_digests=clocked("decode-receipt", product.check_digests),
    )


def leave_out_guards() -> Decisions:
    """Not only the verdicts of the guards but also the work that they need."""

    def nothing(*_: object) -> None:
        """In the place of a write of frames."""

    _replace(transfer, "write_head", nothing)
    _replace(transfer, "write_tail", nothing)
    _replace(frames, "write_frames", nothing)
    _replace(transfer, "page_digest", lambda segment, page: b"")
    _replace(decode, "page_digests", lambda segment, pages: tuple(b"" for _ in pages))
    return decisions_without()


def decisions_without() -> Decisions:
    """The product's, but for what is left out."""
    return without(Decisions(), (guard for guard in GUARDS if guard not in LEFT_OUT))


def work(mode: str, folder: Path) -> int:
    """One worker."""
    if mode == "plain":
        return worker.main()
    code = worker.main(leave_out_guards() if mode == "bare" else time_guards())
    if mode == "timed":
        # One worker for each role, and its own steps tell which it is.
        (folder / f"{os.getpid()}.spans.json").write_text(json.dumps(spans))
    return code


def main(arguments: Sequence[str]) -> int:
    """The fleet, or, with `worker` first, one of its workers."""
    if arguments[0] == "worker":
        return work(arguments[1], Path(arguments[2]))
    mode, folder = arguments[0], arguments[1]
    world = World(
        decisions=decisions_without() if mode == "bare" else None,
        worker_command=("bench.isolation_fleet", "worker", mode, folder),
    )
    return run(serve_app, list(arguments[2:]), world)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
