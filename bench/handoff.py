"""What a hand-off costs over each back-end: prefill's write, chunk by chunk, and decode's check of frames and digests.

    python bench/handoff.py [--tokens N] [--chunk N] [--rounds N]

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
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch

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


def main() -> None:
    """Start an owner for each back-end, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_024)
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    spawn = get_context("spawn")
    source = Segment.create(page_layout(options.tokens))
    source.kv.normal_()
    ways: dict[str, tuple[Transfer, Connection]] = {}
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as folder:
        for backend in BACKENDS:
            ours, theirs = spawn.Pipe()
            spawn.Process(target=own, args=(backend, folder, options.tokens, theirs), daemon=True).start()
            address = ours.recv()
            if isinstance(address, BackendMissing):
                print(f"{backend} is left out: {address}", file=sys.stderr)
                continue
            ways[backend] = (reach(address, TOKEN, PREFILL, DECODE), ours)
        writes: dict[str, list[float]] = {backend: [] for backend in ways}
        checks: dict[str, list[float]] = {backend: [] for backend in ways}
        for turn in range(options.rounds + 1):
            for backend, (transfer, owner) in ways.items():
                wrote = write(transfer, source, options.chunk)
                owner.send(True)
                checked = owner.recv()
                if turn:  # the first warms up
                    writes[backend].append(wrote)
                    checks[backend].append(checked)
        for _, owner in ways.values():
            owner.send(False)
    kilotokens = source.layout.tokens / 1000
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.rounds} rounds, chunks of {options.chunk}\n"
    )
    print(f"{'seconds per 1,000 tokens':<26}{'write':>10}{'best':>10}{'check':>10}{'hand-off':>10}")
    for backend in ways:
        wrote, checked = statistics.median(writes[backend]), statistics.median(checks[backend])
        row = (wrote, min(writes[backend]), checked, wrote + checked)
        print(f"{backend:<26}" + "".join(f"{value / kilotokens:>10.4f}" for value in row))


if __name__ == "__main__":
    main()
