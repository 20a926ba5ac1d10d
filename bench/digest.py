"""What the KV store's guards cost, against memcpy: digests, zeroing, one-sided writes, and the frame check.

    python -m bench.digest [--tokens N] [--pages N] [--rounds N]

One core, real shared memory, pages of the embedded model (30 layers, 3 KV heads of 64, 16-bit: 23,040 bytes a token).
Rounds are interleaved, so that a busy machine slows every row alike; the table shows the median and the best round.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import platform
import statistics
import time
from collections.abc import Callable

import torch
from blake3 import blake3

from bench import table
from pagefence.engine.kv.digest import page_digests
from pagefence.engine.kv.frames import check, expect, write_frames
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import RemotePages
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room

PAGE_SIZE = 64
ROOM = Room(1, 1, "bench")
PEER = "memcpy"


def page_layout(pages: int, page_size: int) -> Layout:
    """Pages of the embedded model."""
    return Layout(pages=pages, page_size=page_size, layers=30, kv_heads=3, head_dim=64, dtype="float16")


def timed(rows: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every row in every round, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    for turn in range(rounds + 1):
        for name, call in rows.items():
            start = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def bulk(tokens: int, rounds: int) -> None:
    """Work on every byte of `tokens` tokens, in ms per 1,000 tokens."""
    layout = page_layout(-(-tokens // PAGE_SIZE), PAGE_SIZE)
    source, target = Segment.create(layout), Segment.create(layout)
    source.kv.normal_()
    remote = RemotePages(Segment.map(target.fd, layout), epoch=1)
    pages = range(layout.pages)
    refs = [PageRef(page, 1) for page in pages]
    views = [(target.payload(page), source.payload(page)) for page in pages]
    addresses = [(to.ctypes.data, at.ctypes.data) for to, at in views]
    rows: dict[str, Callable[[], object]] = {
        PEER: lambda: [ctypes.memmove(to, at, layout.payload_bytes) for to, at in addresses],
        "copy, as the write does it": lambda: [to.__setitem__(slice(None), at) for to, at in views],
        "zero on lease": lambda: target.zero(pages),
        "blake3": lambda: [blake3(at.data).digest() for _, at in views],
        "hashlib.blake2b": lambda: [hashlib.blake2b(at.data, digest_size=32).digest() for _, at in views],
        "page_digests (blake3)": lambda: page_digests(source, pages),
        "RemotePages.write (all of it)": lambda: remote.write(source, pages, refs, ROOM),
    }
    seconds = timed(rows, rounds)
    peer = statistics.median(seconds[PEER])
    kilotokens, size = layout.tokens / 1000, layout.pages * layout.payload_bytes
    lines = []
    for name, values in seconds.items():
        median = statistics.median(values)
        figures = (median * 1e3 / kilotokens, min(values) * 1e3 / kilotokens, size / median / 1e9, median / peer)
        lines.append([name, *(f"{value:.2f}" for value in figures)])
    print(table.text(["per 1,000 tokens of KV", "median ms", "best ms", "GB/s", "x memcpy"], lines))


def frames(pages: int, rounds: int) -> None:
    """The check before a decode step, in microseconds per step; the caches are cold but for what the step brings."""
    layout = page_layout(pages, 16)
    pool = Segment.create(layout)
    refs = [PageRef(page, 1) for page in reversed(range(pages))]
    write_frames(pool, refs, ROOM)
    expected = expect(refs, ROOM)
    flush = torch.zeros(64 * 2**20, dtype=torch.uint8)
    rows: dict[str, Callable[[], object]] = {
        "flush": lambda: flush.add_(1),  # as attention does, which reads far more than the caches hold
        "cold": lambda: check(pool, expected),
        "warm": lambda: check(pool, expected),
    }
    seconds = timed(rows, rounds * 5)
    told = [
        [name, *(f"{value * 1e6:.0f}" for value in (statistics.median(seconds[name]), min(seconds[name])))]
        for name in ("cold", "warm")
    ]
    print(f"\n{table.text([f'frame check, {pages:,} pages', 'median us', 'best us'], told)}")


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_024)
    parser.add_argument("--pages", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}, {options.rounds} rounds\n")
    bulk(options.tokens, options.rounds)
    frames(options.pages, options.rounds)


if __name__ == "__main__":
    main()
