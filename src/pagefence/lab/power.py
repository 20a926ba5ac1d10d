"""How often the probes find each fault: many runs against one fleet, in process and over HTTP.

A fleet is started once for all runs of a fault. It is started anew where it no longer answers, and before every run of
a fault of `_FRESH`, whose earlier runs would help or hinder the later ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from pagefence import __version__
from pagefence.fleet import Fleet, Request
from pagefence.fleet.describe import describe
from pagefence.fleet.embedded import Recipe, Running, embedded
from pagefence.lab.fault import Fault
from pagefence.lab.power_log import CLEAN, RACE, USUAL, VERIFY, Line, PowerLog
from pagefence.lab.usual_script import run_script
from pagefence.mistakes import CouldNotAsk
from pagefence.probes import PROBES, Config, Examination, ProbeResult, examine
from pagefence.probes.gate import Policy
from pagefence.probes.race.plan import Profile
from pagefence.verdict.decide import decide

_CONTEXT = 2048  # where a fleet advertises none
VIOLATIONS = ("LEAK", "CORRUPT", "FAIL")
# Faults that show only, or mostly, beside others. Those that need hang-ups need others too.
_RACES = ("double-free", "duplicate-room", "early-send", "metadata-race")
_FRESH = {
    "page-leak": "each run takes pages that never come back, and the next would find fewer",
    "hash-collision": "what one run leaves in the cache is found by the first prompt of the next",
    "double-free": "a page with two owners stays so, and the next run would be hit by what this one did",
}
RACE_PROFILE = Profile(probes=400, tokens=80_000, seconds=300.0)
_LOOK_EVERY = 20  # answers of a crowd between two looks for a first violation
_ALIVE_S = 30.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. `profiles` of VERIFY, RACE, USUAL.

    `seeds`: runs of each profile for each fault, and without one. `clean`: runs of VERIFY without a fault, and the most
    of the other profiles.
    """

    faults: Sequence[Fault]
    seeds: int = 20
    clean: int = 100
    profiles: Sequence[str] = (VERIFY, RACE, USUAL)
    stop_early: bool = False
    model: str | None = None
    race: Profile = field(default_factory=lambda: RACE_PROFILE)
    timeout_s: float = 120.0

    def todo(self, log: PowerLog) -> list[tuple[Fault | None, list[tuple[str, int]]]]:
        """Runs that the log lacks, by fault (None: no fault). Profile by profile."""
        work: list[tuple[Fault | None, list[tuple[str, int]]]] = []
        for fault in (None, *self.faults):
            name = fault.name if fault is not None else CLEAN
            suited = [p for p in self.profiles if suits(fault, p)]
            keys = [(p, s) for p in suited for s in range(1, self._runs(fault, p) + 1)]
            left = [k for k in keys if (name, *k) not in log.runs or log.runs[name, *k].error]
            if left:
                work.append((fault, left))
        return work

    def _runs(self, fault: Fault | None, profile: str) -> int:
        if fault is not None:
            return self.seeds
        return self.clean if profile == VERIFY else min(self.clean, self.seeds)


def suits(fault: Fault | None, profile: str) -> bool:
    """Whether a profile is run for a fault; None: for the fleet without one. In the usual script nobody hangs up."""
    if fault is None:
        return True
    if fault.not_in_engine is not None:
        return False
    return not fault.needs_hang_ups if profile == USUAL else races(fault) == (profile == RACE)


def races(fault: Fault) -> bool:
    """Whether the race profile is for it, and not `verify`, which asks one prompt after the other."""
    return fault.needs_hang_ups or fault.name in _RACES


def measure(plan: Plan, log: PowerLog, tell: Tell) -> None:
    """Do what is left to do; each finished run is in the log at once. Raises CannotWrite, CouldNotStart."""
    for fault, keys in plan.todo(log):
        with contextlib.ExitStack() as stack:
            _of_one(_Fleets(plan, fault, stack, tell), keys, log, tell)


def _of_one(fleets: _Fleets, keys: Sequence[tuple[str, int]], log: PowerLog, tell: Tell) -> None:
    name = fleets.name
    for number, (profile, seed) in enumerate(keys):
        about = f"{name}: {profile}, seed {seed} ({number + 1} of {len(keys)})"
        tell(about)
        try:
            running = fleets.get()
            line = asyncio.run(_run(running, fleets, profile, seed, _about(tell, about)))
        except CouldNotAsk as error:
            line = Line(name, profile, seed, "", error=str(error).splitlines()[0][:200], version=__version__)
        log.put(line)
        if line.error and number == 0:
            return  # it does not even start; a second start of the command tries again


def _about(tell: Tell, about: str) -> Tell:
    return lambda what: tell(f"{about}: {what}")


class _Fleets:
    """One fleet for all runs of a fault, and another when it must be."""

    def __init__(self, plan: Plan, fault: Fault | None, stack: contextlib.ExitStack, tell: Tell) -> None:
        self.plan, self.fault, self.tell = plan, fault, tell
        self.name = fault.name if fault is not None else CLEAN
        self.started = 0
        self._stack = stack
        self._now: contextlib.ExitStack | None = None
        self._running: Running | None = None

    def get(self) -> Running:
        """The fleet to ask next."""
        fresh = self.name in _FRESH
        if self._running is not None and not fresh and (not self._running.ready or asyncio.run(self._alive())):
            return self._running
        if self._now is not None:
            self._now.close()
        self._now = self._stack.enter_context(contextlib.ExitStack())
        self.started += 1
        self._running = self._now.enter_context(embedded(self._recipe(), self.tell))
        return self._running

    def _recipe(self) -> Recipe:
        model = self.plan.model
        if self.fault is None:
            return Recipe(model=model, start_timeout_s=600.0, ready_timeout_s=300.0)
        return Recipe(model, fault=self.fault.name, guards="off", start_timeout_s=600.0, ready_timeout_s=300.0)

    async def _alive(self) -> bool:
        """Whether both tenants still get an answer to a word."""
        assert self._running is not None
        async with Fleet(self._running.target, self._running.keys, _ALIVE_S) as fleet:
            await describe(fleet)  # which model there is
            return all([(await fleet.complete(Request("Hello", 1), tenant)).answered for tenant in "ab"])


async def _run(running: Running, fleets: _Fleets, profile: str, seed: int, tell: Tell) -> Line:
    started = time.monotonic()
    async with Fleet(running.target, running.keys, fleets.plan.timeout_s) as fleet:
        if profile == USUAL:
            context = (await describe(fleet)).advertised.value or _CONTEXT
            said = await run_script(fleet, context, seed, tell)
            line = Line(
                fleets.name,
                profile,
                seed,
                "UUID seen" if said.found else "UUID not seen" if said.answered else "no answer",
                {"usual script": ("LEAK",)} if said.found else {},
                requests=said.requests,
                prompt_tokens=said.prompt_tokens,
                new_tokens=said.new_tokens,
                shown=said.answered,
            )
        else:
            line = await _examined(fleet, fleets, profile, seed, tell)
    seconds = round(time.monotonic() - started, 2)
    return msgspec.structs.replace(line, seconds=seconds, fleet=fleets.started, version=__version__)


async def _examined(fleet: Fleet, fleets: _Fleets, profile: str, seed: int, tell: Tell) -> Line:
    headroom = float(fleets.fault.world.get("headroom", 1.25)) if fleets.fault is not None else 1.25
    probes = ("race",) if profile == RACE else PROBES
    config = Config(probes, seed=seed, declared_pd=True, policy=Policy(headroom), race=fleets.plan.race)
    examination = Examination(config)
    decided = asyncio.Event()

    def progress(what: str, done: int, total: int) -> None:
        tell(f"{what} {done}/{total}" if total else what)
        due = profile != RACE or done % _LOOK_EVERY == 0
        if fleets.plan.stop_early and due and not decided.is_set() and _violated(examination.results()):
            decided.set()

    task = asyncio.create_task(examine(fleet, examination, progress, tell))
    waiting = asyncio.create_task(decided.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    early = not task.done()
    waiting.cancel()
    if early:
        task.cancel()
        await asyncio.wait({task})
    else:
        task.result()
    results, log = examination.results(), examination.log
    verdict = decide(results)
    kinds = {r.name: tuple(k for k in VIOLATIONS if any(e.kind == k for e in r.evidence)) for r in results}
    return Line(
        fleets.name,
        profile,
        seed,
        verdict.name,
        {name: found for name, found in kinds.items() if found},
        tuple(sorted({f"{e.probe}: {e.what[:120]}" for r in results for e in r.evidence if e.kind == "INCONCLUSIVE"}))[
            :5
        ],
        log.requests,
        log.prompt_tokens,
        log.new_tokens,
        shown=sum(r.shown for r in results),
        controls=(sum(r.controls[0] for r in results), sum(r.controls[1] for r in results)),
        early=early,
    )


def _violated(results: Sequence[ProbeResult]) -> bool:
    """By a probe that sends prompts: that the gate fails was known from the figures."""
    return any(e.kind in VIOLATIONS for r in results if r.name != "gate" for e in r.evidence)
