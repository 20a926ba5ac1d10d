"""Three upstream processes, and who kills them, stops them and starts them again."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

LISTENS_S = 30.0


@dataclass(slots=True)
class Upstream:
    """One place, and the process that is there now. `lives`: how many there were."""

    number: int
    port: int
    lies: float
    seed: int
    log: Path
    process: subprocess.Popen[bytes] | None = None
    lives: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        said = ["--lies", str(self.lies), "--seed", f"{self.seed}/{self.number}/{self.lives}", "--log", str(self.log)]
        command = [sys.executable, "-m", "tests.edge.honest", str(self.port), *said, "--parent", str(os.getpid())]
        self.process = subprocess.Popen(command)
        self.lives += 1

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    async def listens(self) -> None:
        """Wait for it."""
        async with asyncio.timeout(LISTENS_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                return


@dataclass(slots=True)
class Upstreams:
    """All of them. `trouble` until cancelled; `mended` afterwards."""

    all: list[Upstream]
    rng: Random
    every_s: float = 2.0
    counts: Counter[str] = field(default_factory=Counter)

    async def trouble(self) -> None:
        """Kill or stop one, at random moments; several at once may be down, and now and then all of them."""
        tasks: set[asyncio.Task[None]] = set()
        hang = True  # a death first, so that a short run has one
        try:
            while True:
                await asyncio.sleep(min(self.rng.expovariate(1 / self.every_s), 4 * self.every_s))
                one = self.rng.choice(self.all)
                hang, seconds = not hang, self.rng.uniform(0.05, 2.5)
                if one.process is None or any(task.get_name() == str(one.number) for task in tasks):
                    continue
                task = asyncio.create_task(self._one(one, hang, seconds), name=str(one.number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            for task in tuple(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, one: Upstream, hang: bool, seconds: float) -> None:
        if hang:
            self.counts["stopped"] += 1
            one.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                one.signal(signal.SIGCONT)
            return
        self.counts["killed"] += 1
        one.kill()
        try:
            await asyncio.sleep(seconds / 4)
        finally:
            one.start()

    def honest_again(self) -> None:
        """New processes in the same places, that tell no lie."""
        for one in self.all:
            one.kill()
            one.lies = 0.0
            one.start()


def upstreams(count: int, lies: float, seed: int, folder: Path) -> Upstreams:
    """Places on free ports. They are not started yet."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    made = [Upstream(number, port, lies, seed, folder / "lies.log") for number, port in enumerate(ports)]
    return Upstreams(made, Random(f"{seed}/trouble"))
