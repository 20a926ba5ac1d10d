"""What each step of one request takes, everything on: where an edge's processor time goes.

    python -m bench.edge_steps [--rounds 40] [--each 50]

The request is that of `bench.edge`'s plain load, the answer its upstream's. Steps are called one after another in one
thread, no socket in between; of the rounds the fastest counts, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import TypeVar, cast

from bench import table
from bench.edge_load import ANSWER, body
from bench.edge_who import ENVIRONMENT, KEY, MODEL, PLENTY, edge_toml
from pagefence.edge.call import Call, Operation, Tenant
from pagefence.edge.demand import Admitted
from pagefence.edge.edge_file import read_edge_file
from pagefence.edge.joined import Joined
from pagefence.edge.logs import Log
from pagefence.edge.mark import Recorder
from pagefence.edge.metrics import Meters, families
from pagefence.edge.refusal import Refusal
from pagefence.edge.steps import Steps, Tells
from pagefence.edge.tenant_file import read_identity
from pagefence.edge.wire.heads import request_head
from pagefence.models import DEFAULT_MODEL

_RAW = body().encode()
_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nauthorization: Bearer %b\r\n\r\n" % (len(_RAW), KEY.encode())
)
_T = TypeVar("_T")


class Clock:
    """Adds up what each part of a round takes; keeps of each the fastest round."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}
        self._now: dict[str, int] = defaultdict(int)

    def step(self, name: str, work: Callable[..., _T], *given: object) -> _T:
        began = perf_counter_ns()
        result = work(*given)
        self._now[name] += perf_counter_ns() - began
        return result

    def round(self, each: int) -> None:
        for name, took in self._now.items():
            self.best[name] = min(self.best.get(name, 1e9), took / each / 1000)
        self._now.clear()


def steps_of(folder: Path) -> Steps:
    """Those of an edge that `bench.edge` would start."""
    settings = read_edge_file(edge_toml(folder / "edge.toml", PLENTY, scan=True), ENVIRONMENT)
    tables = {**settings.tables, "admission": {"model": DEFAULT_MODEL}}
    joined = Joined(read_identity(ENVIRONMENT), {**os.environ, **ENVIRONMENT}, folder)
    return joined.steps(replace(settings, tables=tables), Tells())


def one(clock: Clock, steps: Steps, recorder: Recorder, number: int) -> None:
    """One request through all of its steps."""
    mark = recorder.begin(f"{number:032x}")
    head = clock.step("head of the request", request_head, _HEAD)
    tenant = clock.step("tenant", steps.tenant, head.fields, None)
    read = clock.step("read the body", steps.read, _RAW, head.fields)
    assert isinstance(tenant, Tenant)
    assert isinstance(read, dict)
    call = clock.step("policy", steps.clean, Operation.CHAT, tenant, mark.request_id, read, head.fields)
    assert isinstance(call, Call)
    admitted = clock.step("admission", _now, steps.admit(call))
    assert isinstance(admitted, Admitted)
    clock.step("written anew", steps.outgoing, call, admitted, head.fields)
    watch = clock.step("watching: the prompt", _now, steps.watch(admitted))
    assert watch is not None
    assert not isinstance(watch, Refusal)
    answer = ANSWER.replace("$request_id", mark.request_id).encode()

    def judged() -> None:
        watch.sent(perf_counter())
        watch.begins(200, False, perf_counter())
        watch.part(answer, perf_counter())
        watch.ends(True, perf_counter())

    clock.step("watching: the answer", judged)
    mark.operation, mark.model, mark.tenant, mark.status = "chat/completions", MODEL, tenant.tag, 200
    mark.read_at = mark.asked_at = mark.first_byte_at = perf_counter()
    clock.step("counters and the log's line", recorder.end, mark)


def _now(step: Awaitable[_T]) -> _T:
    """What a coroutine gives that waits for nothing."""
    try:
        next(iter(step.__await__()))
    except StopIteration as done:
        return cast("_T", done.value)
    raise RuntimeError("a step of a short request waited for something")


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--each", type=int, default=50, help="requests of a round")
    said = parser.parse_args()
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        steps = steps_of(Path(folder))
        quiet = os.open(os.devnull, os.O_WRONLY)
        recorder = Recorder(Meters(families(1), 1).row(0), Log(quiet), each=True)
        if steps.start is not None:
            asyncio.run(_started(steps))
        for number in range(said.rounds):
            for place in range(said.each):
                one(clock, steps, recorder, number * said.each + place)
            clock.round(said.each)
    total = sum(clock.best.values())
    rows = [[name, table.figure(took), f"{took / total:.0%}"] for name, took in clock.best.items()]
    print(table.markdown(["step", "us", "share"], [*rows, ["all", table.figure(total), "100%"]]))
    return 0


async def _started(steps: Steps) -> None:
    assert steps.start is not None
    await steps.start()
    steps.stop()


if __name__ == "__main__":
    sys.exit(main())
