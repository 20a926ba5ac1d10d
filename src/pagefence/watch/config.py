"""What is watched: targets, modules (sets of probes with their period and cost), budgets. Checked, not yet asked."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pagefence.fleet import Keys, Target
from pagefence.mistakes import Usage
from pagefence.probes import PROBES
from pagefence.probes.gate import Policy
from pagefence.probes.sentinel_file import SentinelFile
from pagefence.watch.budget import Allowance

PORT = 9779
HOUR_S = 3600.0
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,59}")
_GATE = "gate"


def _named(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Usage(f"{name[:60]!r} is no name of a {what}; use a-z, 0-9, '.', '_' and '-'")


@dataclass(frozen=True, slots=True)
class Module:
    """A named set of probes. Raises Usage for one that cannot be.

    every_s     seconds from one start to the next; None: only when `/probe` asks for it
    jitter      a part of the period, by which a start may be sooner or later
    tokens      the most that one run may cost, prompt and answer together: what it holds of its target's budget. A run
                that would need more sends no more and is INCONCLUSIVE. 0 for one that sends no prompt
    deadline_s  the most that one run may take; what was found until then counts
    """

    name: str
    probes: tuple[str, ...]
    every_s: float | None = 900.0
    jitter: float = 0.1
    tokens: int = 40_000
    deadline_s: float = 600.0

    def __post_init__(self) -> None:
        _named("module", self.name)
        unknown = [name for name in self.probes if name not in PROBES]
        if unknown or not self.probes or len(set(self.probes)) < len(self.probes):
            what = f"names the probe {unknown[0][:60]!r}" if unknown else "needs probes, each once"
            raise Usage(f"module {self.name} {what}; there are {', '.join(PROBES)}")
        if self.every_s is not None and not (math.isfinite(self.every_s) and self.every_s >= 1):
            raise Usage(f"module {self.name}: every = {self.every_s:g} is no period; it is 1 second or more")
        if not 0 <= self.jitter <= 0.5:
            raise Usage(f"module {self.name}: jitter = {self.jitter:g} is no part of a period from 0 to 0.5")
        if not (math.isfinite(self.deadline_s) and self.deadline_s > 0):
            raise Usage(f"module {self.name}: deadline = {self.deadline_s:g} is no time to answer in")
        if self.tokens < 0 or (self.tokens == 0 and self.prompts):
            raise Usage(f"module {self.name} sends prompts, so it needs tokens for them: tokens = 40000")

    @property
    def prompts(self) -> bool:
        """Whether a probe of it sends prompts."""
        return any(name != _GATE for name in self.probes)


GATE = Module("gate", (_GATE,), 60.0, tokens=0, deadline_s=60.0)
VERIFY = Module("verify", PROBES)


@dataclass(frozen=True, slots=True)
class Watched:
    """A target: a fleet under a name, with its keys, what it is asked, and how much it may be asked.

    `sentinels`: where each run writes down its words before it plants them.
    """

    name: str
    target: Target
    modules: tuple[Module, ...]
    allowance: Allowance
    keys: Keys = field(default_factory=Keys)
    timeout_s: float = 120.0
    policy: Policy = field(default_factory=Policy)
    sentinels: SentinelFile | None = None

    def __post_init__(self) -> None:
        _named("target", self.name)
        if not self.modules:
            raise Usage(f"target {self.name} has no module, so it would never be asked anything")
        for module in self.modules:
            if module.tokens > self.allowance.burst:
                raise Usage(
                    f"target {self.name}: a run of module {module.name} may cost {module.tokens:,} tokens, and its "
                    f"budget never holds more than {self.allowance.burst:,}; raise burst or lower the module's tokens"
                )
            if module.prompts and self.target.router is None:
                raise Usage(f"target {self.name}: module {module.name} sends prompts, so it needs the router's URL")

    @property
    def asked_for(self) -> float:
        """Tokens in a second that its schedule may cost at most."""
        return sum(m.tokens / m.every_s for m in self.modules if m.every_s is not None)

    def module(self, name: str) -> Module | None:
        return next((module for module in self.modules if module.name == name), None)

    def is_called(self, name: str) -> bool:
        """Its name, or the address of its router as it was configured."""
        return name == self.name or (self.target.router is not None and name == self.target.router)


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole watch.

    keep       finished runs that are kept for each module of each target; counters count on
    null_rate  how often own words may get lost before it is a trend (the e-process's null hypothesis)
    alpha      the chance that an honest fleet ever raises that alarm
    seed       repeats the prompts of all runs; None draws fresh ones, which no cache can hold
    """

    targets: tuple[Watched, ...]
    state: Path
    host: str = "127.0.0.1"
    port: int = PORT
    keep: int = 200
    null_rate: float = 0.05
    alpha: float = 0.001
    seed: int | None = None
    keep_answers: bool = False

    def __post_init__(self) -> None:
        names = [watched.name for watched in self.targets]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise Usage(f"two targets are called {twice}; each needs a name of its own")
        if not names:
            raise Usage("there is no target to watch; write a [[target]] table, or give a URL")

    def target(self, name: str) -> Watched | None:
        return next((watched for watched in self.targets if watched.is_called(name)), None)


def allowance(modules: Sequence[Module], tokens: int | None, window_s: float | None, burst: int | None) -> Allowance:
    """What a target may be asked. Unsaid: one and a half times what its schedule can cost in a window, and at once what
    one run of each module can. Raises Usage."""
    window = HOUR_S if window_s is None else window_s
    if not (math.isfinite(window) and window >= 1):
        raise Usage(f"a budget's window of {window:g} seconds is none; it is 1 or more")
    need = sum(m.tokens / m.every_s for m in modules if m.every_s is not None)
    each_once = max(1, sum(m.tokens for m in modules))
    granted = max(each_once, math.ceil(1.5 * need * window)) if tokens is None else tokens
    return Allowance(granted, window, each_once if burst is None else burst)
