"""A watch without a fleet, a disk that forgets or a clock that runs: the run, the time and chance are the test's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pagefence.fleet import Keys, Target
from pagefence.watch.config import Module, Settings, Watched, allowance
from pagefence.watch.records import Ran
from pagefence.watch.state import State
from pagefence.watch.watcher import Watcher

CLEAN = Ran("CLEAN", ("CLEAN",), "no leak", charged=100, prompt_tokens=90, new_tokens=10, requests=3, model="toy")
CHEAP = Module("gate", ("gate",), 60.0, 0.0, tokens=0)
DEAR = Module("verify", ("gate", "canary"), 900.0, 0.0, tokens=1000)


def watched(
    name: str = "eu", modules: tuple[Module, ...] = (CHEAP, DEAR), tokens: int = 1000, burst: int = 1000
) -> Watched:
    """A budget of `tokens` an hour."""
    return Watched(
        name, Target(f"http://{name}.example"), modules, allowance(modules, tokens, 3600, burst), Keys("ka", "kb")
    )


@dataclass
class Scene:
    """`answers` is what the next runs come to, CLEAN when there is none; `gate` holds runs until it is set."""

    path: Path
    targets: tuple[Watched, ...] = field(default_factory=lambda: (watched(),))
    now: float = 1000.0
    said: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    answers: list[Ran | Exception] = field(default_factory=list)
    gate: asyncio.Event | None = None
    change: Callable[[Settings], Settings] = lambda settings: settings

    def opened(self) -> Watcher:
        """The watch starts, or starts again."""
        settings = self.change(Settings(self.targets, self.path))
        state = State(self.path, self.now, settings.seed)
        return Watcher(settings, state, self.run, lambda: self.now, self.say, random.Random(7))

    async def run(self, target: Watched, module: Module, seed: int) -> Ran:
        self.asked.append((target.name, module.name, seed))
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else CLEAN
        if isinstance(answer, Exception):
            raise answer
        return answer if module.tokens else replace(answer, charged=0)

    def say(self, event: str, /, **fields: object) -> None:
        self.said.append((event, fields))

    def events(self, event: str) -> list[dict[str, object]]:
        return [fields for name, fields in self.said if name == event]

    async def until(self, watcher: Watcher, now: float, step: float = 10.0) -> None:
        """Let time pass, looking at the clock as the service does; runs end at once unless they are held."""
        while self.now < now:
            self.now = min(now, self.now + step)
            await self.look(watcher)

    async def look(self, watcher: Watcher) -> None:
        for _ in range(4):
            watcher.tick()
            if self.gate is None:
                await asyncio.gather(*(flight.task for flight in list(watcher.flights())))
            else:
                await asyncio.sleep(0)

    def runs_of(self, module: str) -> int:
        return sum(name == module for _, name, _ in self.asked)
