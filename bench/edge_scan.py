"""What watching answers costs at the edge: MB/s of the scan and of fingerprinting, memory for prompts, time per event.

    python -m bench.edge_scan [--rounds N] [--slots-log2 N]
    python -m bench.edge_scan --rates [--requests N] [--seed N]    detection and false alarms, a simulation

Processor time of one thread, the best and the median of interleaved rounds. The tables of fingerprints are half full,
of 200 tenants, and larger than the processor's caches. A prompt token is taken as four bytes of text.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable

import msgspec
import numpy as np

from bench import table
from bench.edge_rates import report
from bench.edge_texts import prose
from pagefence.edge.call import Operation
from pagefence.edge.watching.book import Book
from pagefence.edge.watching.expected import Expected
from pagefence.edge.watching.generations import FULL, SLOT_BYTES, Bounds
from pagefence.edge.watching.grams import library
from pagefence.edge.watching.memory import Memory
from pagefence.edge.watching.scanner import Scanner
from pagefence.edge.watching.sentinels import Reading, Sentinels
from pagefence.edge.watching.watch import Watch
from pagefence.probes.sentinel import Sentinel, draw

BYTES_PER_TOKEN = 4
SIZE = 1_000_000
EVENT = 4  # bytes of text in an event: about a token
NOBODY = np.empty(0, np.uint64)


def text_of(size: int, seed: str) -> bytes:
    """Prose of the simulation, so many bytes."""
    chance, parts, length = random.Random(seed), list[str](), 0
    while length < size:
        parts.append(" ".join(prose(chance, 2_000)))
        length += len(parts[-1])
    return "\n".join(parts).encode()[:size]


def filled(slots_log2: int, compiled: bool) -> Memory:
    """A memory whose tables are half full, of random hashes."""
    memory, chance = Memory(Bounds(slots_log2), compiled=compiled), np.random.default_rng(1)
    for _ in range(memory.bounds.generations):
        count = int(FULL * (1 << slots_log2)) // 2
        for tenant in range(200):
            memory.prompts.note(chance.integers(0, 2**63, count // 200).astype(np.uint64), f"{tenant}", 0.0)
        memory.prompts.turn_over(0.0)
    return memory


def scanned(memory: Memory, text: bytes, size: int) -> None:
    scanner = Scanner(memory, NOBODY, "reader")
    for start in range(0, len(text), size):
        scanner.feed(text[start : start + size])
    scanner.rest()


def watched(book: Book, events: list[bytes]) -> None:
    """A stream of events with all checks on."""
    expected = Expected("r", "reader", Operation.CHAT, True, prompt_tokens=100)
    watch = Watch(book, expected, 0.0)
    watch.headers(200, 0.0)
    for event in events:
        watch.event(event, 1.0)
    watch.end(2.0, complete=False)


def events_of(text: bytes) -> list[bytes]:
    """As an engine writes them."""
    said = text.decode("ascii", "replace")
    pieces = [said[i : i + EVENT] for i in range(0, len(said), EVENT)]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [
        msgspec.json.encode({**head, "choices": [{"index": 0, "delta": {"content": p}, "finish_reason": None}]})
        for p in pieces
    ]


def timed(rows: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of processor time of every row in every round, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    for turn in range(rounds + 1):
        for name, call in rows.items():
            start = time.thread_time()
            call()
            if turn:
                seconds[name].append(time.thread_time() - start)
    return seconds


def speeds(slots_log2: int, rounds: int) -> None:
    """The table of MB/s, and of a stream event by event."""
    text, small, prompt = text_of(SIZE, "answer"), text_of(100_000, "events"), text_of(SIZE, "prompt")
    memory, slow = filled(slots_log2, True), filled(16, False)
    drawn = draw(1)
    sentinels = Sentinels([Sentinel(f"{i}", "planter", next(drawn)) for i in range(300)])
    events = events_of(small)
    rows: dict[str, tuple[int, Callable[[], object]]] = {
        "prompt: hashed": (SIZE, lambda: memory.hashes([prompt])),
        "prompt: hashed and remembered": (SIZE, lambda: memory.sent([prompt], [], "writer", 0.0)),
        "answer: scanned whole": (SIZE, lambda: scanned(memory, text, SIZE)),
        "answer: its habits learned": (SIZE, lambda: memory.learn(memory.hashes([text]), "reader", 0.0)),
        "answer: 300 sentinels": (SIZE, lambda: Reading(sentinels).feed(text)),
        "answer: scanned whole, all of it another's": (SIZE, lambda: scanned(memory, prompt, SIZE)),
        "answer: scanned by 96 bytes": (len(small), lambda: scanned(memory, small, 96)),
        "answer: scanned whole, numpy": (len(small), lambda: scanned(slow, small, len(small))),
        "stream: all checks, no scan": (len(small), lambda: watched(Book(), events)),
        "stream: all checks and scans": (len(small), lambda: watched(Book(memory, sentinels), events)),
    }
    seconds = timed({name: call for name, (_, call) in rows.items()}, rounds)
    lines = []
    for name, (size, _) in rows.items():
        best, median = min(seconds[name]), statistics.median(seconds[name])
        event = f"{best / len(events) * 1e6:.2f}" if name.startswith("stream") else ""
        lines.append([name, f"{size / best / 1e6:.1f}", f"{size / median / 1e6:.1f}", event])
    print(table.text(["of text", "best MB/s", "median MB/s", "us an event"], lines))


def memory_used(slots_log2: int) -> None:
    """Slots that prompts take."""
    memory, text = Memory(Bounds(slots_log2)), text_of(SIZE, "prompt")
    own = memory.sent([text], [], "writer", 0.0)
    tokens, bounds = len(text) / BYTES_PER_TOKEN, memory.bounds
    each = len(own) / tokens * 1_000
    print(
        f"\nper 1,000 prompt tokens: {each:.0f} fingerprints, {each * SLOT_BYTES / FULL:,.0f} bytes of a full table, "
        f"{each * 8:,.0f} more while the request lives\n"
        f"bound: {(bounds.memory + memory.habits.bounds.memory) / 2**20:,.0f} MiB in all, for the last "
        f"{bounds.least_kept / each * 1_000 / 1e6:,.1f} to {bounds.least_kept * 2 / each * 1_000 / 1e6:,.1f} million "
        "prompt tokens"
    )


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", action="store_true", help="simulate detection and false alarms instead")
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slots-log2", type=int, default=21, help="of one table of fingerprints")
    options = parser.parse_args()
    if options.rates:
        print(report(options.seed, options.requests))
        return
    how = "compiled" if library() is not None else "not compiled: numpy stands in for it"
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, scan {how}\n")
    speeds(options.slots_log2, options.rounds)
    memory_used(options.slots_log2)


if __name__ == "__main__":
    main()
