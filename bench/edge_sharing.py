"""How long a fingerprint takes from one process of an edge to another through Redis, and what telling and hearing cost.

Two processes and a redis-server of its own on a Unix socket. A prompt of 200 tokens has some 72 fingerprints. The clock
is the machine's, so the lag is what lies between the prompt being noted here and known there: an answer that comes to
the other process within that time is not held against it.

    python -m bench.edge_sharing [--seconds 10]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import subprocess
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from pagefence.edge.sharing.settings import SharedSettings
from pagefence.edge.sharing.sharing import Sharing
from pagefence.edge.steps import Tells
from pagefence.edge.watching.grams import Words
from pagefence.edge.watching.memory import Memory

SECRET, TAG = b"a secret for a bench that is long enough", "0123456789abcdef"
RATES = (1, 100, 1000)  # prompts a second
PROMPT = 72  # fingerprints


class _Listening(Memory):
    """Notes when the first fingerprint of each prompt came, which is its number."""

    def __init__(self, sharing: Sharing) -> None:
        super().__init__(shared=sharing.shared)
        self.came: dict[int, float] = {}

    def heard(self, hashes: Words, tag: str, habit: bool, now: float) -> None:
        super().heard(hashes, tag, habit, now)
        self.came[int(hashes[0])] = time.monotonic()


async def _listen(url: str, ends: Connection) -> None:
    sharing = Sharing(SharedSettings(url), SECRET, Tells())
    memory = _Listening(sharing)
    sharing.start(memory)
    while not sharing.up:
        await asyncio.sleep(0.01)
    ends.send(None)
    again = True
    while again:
        began = time.process_time()
        await asyncio.to_thread(ends.recv)
        used = time.process_time() - began
        await asyncio.sleep(0.5)
        ends.send((memory.came, used))
        again = await asyncio.to_thread(ends.recv)
    sharing.stop()


def _listener(url: str, ends: Connection) -> None:
    asyncio.run(_listen(url, ends))


async def _tell(url: str, ends: Connection, seconds: float) -> None:
    sharing = Sharing(SharedSettings(url), SECRET, Tells())
    memory = Memory(shared=sharing.shared)
    sharing.start(memory)
    while not sharing.up:
        await asyncio.sleep(0.01)
    ends.recv()
    generator = np.random.default_rng(1)
    print("| prompts a second | lag p50 ms | p99 ms | worst ms | telling, us a prompt | hearing, us a prompt |")
    print("| --: | --: | --: | --: | --: | --: |")
    number = 1
    for rate in RATES:
        sent: dict[int, float] = {}
        began, cpu = time.monotonic(), time.process_time()
        while (elapsed := time.monotonic() - began) < seconds:
            while len(sent) <= elapsed * rate:
                hashes = generator.integers(2**40, 2**63, PROMPT, dtype=np.uint64)
                hashes[0] = number
                sent[number] = time.monotonic()
                sharing.shared.told(hashes, TAG, False)
                number += 1
            await asyncio.sleep(max(0.0, began + len(sent) / rate - time.monotonic()))
        told = time.process_time() - cpu
        ends.send("enough")
        came, heard = await asyncio.to_thread(ends.recv)
        ends.send(rate != RATES[-1])
        lags = sorted((came[each] - at) * 1000 for each, at in sent.items() if each in came)
        assert len(lags) == len(sent), f"{len(sent) - len(lags)} of {len(sent)} never came"
        p50, p99 = (lags[int(len(lags) * share)] for share in (0.5, 0.99))
        costs = f"{told / len(sent) * 1e6:.0f} | {heard / len(sent) * 1e6:.0f}"
        print(f"| {rate} | {p50:.1f} | {p99:.1f} | {lags[-1]:.1f} | {costs} |")
    sharing.stop()
    assert memory.prompts.turned_over == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each rate")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pf-bench-") as folder:
        path = Path(folder) / "s"
        flags = ["--port", "0", "--unixsocket", str(path), "--save", "", "--dir", folder]
        server = subprocess.Popen(["redis-server", *flags], stdout=subprocess.DEVNULL)
        here, there = multiprocessing.Pipe()
        other = multiprocessing.get_context("spawn").Process(
            target=_listener, args=(f"unix://{path}", there), daemon=True
        )
        try:
            while not path.exists():
                time.sleep(0.01)
            other.start()
            asyncio.run(_tell(f"unix://{path}", here, given.seconds))
            other.join(5)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
