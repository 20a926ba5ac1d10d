"""What a hand-off costs over each back-end: prefill's write, chunk by chunk, and decode's check of frames and digests.

    python -m bench.handoff [--tokens N] [--chunk N] [--rounds N]

Two processes, pages of the embedded model (23,040 bytes a token). Rounds are interleaved, so that a busy machine slows
every row alike. Back-ends whose packages are missing are left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import torch

from bench import table
from pagefence.engine.kv.backends import offered, reach
from pagefence.engine.kv.digest import page_digests
from pagefence.engine.kv.frames import check, expect
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import BackendMissing, Transfer
from pagefence.engine.settings import Settings, WorkerOrders
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room, WorkerRef

PAGE_SIZE = 64
DECODE, PREFILL, ROUTER = WorkerRef("decode-0", 1), WorkerRef("prefill-0", 1), WorkerRef("router", 1)
TOKEN, ROOM = bytes(32), Room(1, 1, "bench")
BACKENDS = ("shm", "mooncake")


def page_layout(tokens: int) -> Layout:
    """Pages of the embedded model."""
    return Layout(-(-tokens // PAGE_SIZE), PAGE_SIZE, layers=30, kv_heads=3, head_dim=64, dtype="float16")


def own(backend: str, run_dir: str, tokens: int, said: Connection) -> None:
    """Decode's side: offer a segment; for each message, say how long checking all of it took, in seconds."""
    settings = Settings(model="", model_name="", transfer="mooncake" if backend == "mooncake" else "shm")
    orders = WorkerOrders(
        me=DECODE,
        role="decode",
        router=ROUTER,
        settings=settings,
        run_dir=run_dir,
        mac_key=TOKEN,
        segment_token=TOKEN,
        http_port=0,
        seat=0,
        memory_bytes=0,
    )
    segment = Segment.create(page_layout(tokens))
    refs = [PageRef(page, 1) for page in range(segment.layout.pages)]
    try:
        with offered(orders, segment) as offer:
            said.send(offer.address)
            while said.recv():
                start = time.perf_counter()
                assert not check(segment, expect(refs, ROOM))
                page_digests(segment, range(len(refs)))
                said.send(time.perf_counter() - start)
    except BackendMissing as missing:
        said.send(missing)


def write(transfer: Transfer, source: Segment, chunk: int) -> float:
    """Seconds that prefill takes to write its whole pool, a chunk of tokens at a time."""
    step = chunk // PAGE_SIZE
    pages = range(source.layout.pages)
    start = time.perf_counter()
    for first in range(0, len(pages), step):
        some = pages[first : first + step]
        transfer.write(source, some, [PageRef(page, 1) for page in some], ROOM)
    return time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds per 1,000 tokens, medians but for `best`, of one back-end."""

    write: float
    best: float
    check: float

    @property
    def whole(self) -> float:
        """Write and check."""
        return self.write + self.check


def measure(tokens: int = 1_024, chunk: int = 256, rounds: int = 15) -> dict[str, Found]:
    """Start an owner for each back-end and let them take turns."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    spawn = get_context("spawn")
    source = Segment.create(page_layout(tokens))
    source.kv.normal_()
    ways: dict[str, tuple[Transfer, Connection]] = {}
    owners: list[BaseProcess] = []
    writes: dict[str, list[float]] = {}
    checks: dict[str, list[float]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as folder:
            for backend in BACKENDS:
                ours, theirs = spawn.Pipe()
                owner: BaseProcess = spawn.Process(target=own, args=(backend, folder, tokens, theirs), daemon=True)
                owner.start()
                owners.append(owner)
                theirs.close()
                address = ours.recv()
                if isinstance(address, BackendMissing):
                    print(f"{backend} is left out: {address}", file=sys.stderr)
                    continue
                ways[backend] = (reach(address, TOKEN, PREFILL, DECODE), ours)
                writes[backend], checks[backend] = [], []
            for turn in range(rounds + 1):
                for backend, (transfer, line) in ways.items():
                    wrote = write(transfer, source, chunk)
                    line.send(True)
                    checked = line.recv()
                    if turn:  # the first warms up
                        writes[backend].append(wrote)
                        checks[backend].append(checked)
            for _, line in ways.values():
                line.send(False)
            for owner in owners:
                owner.join(10)
    finally:
        for owner in owners:
            owner.kill()
        torch.set_num_threads(before)
    kilotokens = source.layout.tokens / 1000
    return {
        backend: Found(
            statistics.median(writes[backend]) / kilotokens,
            min(writes[backend]) / kilotokens,
            statistics.median(checks[backend]) / kilotokens,
        )
        for backend in ways
    }


def shown(found: Mapping[str, Found], markdown: bool = False) -> str:
    """As a table."""
    head = ["hand-off, seconds per 1,000 tokens", "write", "best", "check", "whole"]
    rows = [
        [name, *(f"{value:.4f}" for value in (each.write, each.best, each.check, each.whole))]
        for name, each in found.items()
    ]
    return (table.markdown if markdown else table.text)(head, rows)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_024)
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    found = measure(options.tokens, options.chunk, options.rounds)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}, {options.rounds} rounds, chunks of {options.chunk}\n")
    print(shown(found))


if __name__ == "__main__":
    main()
