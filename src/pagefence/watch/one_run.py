"""One run against one target: ask, judge, and what is to be kept of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pagefence.fleet import Keys
from pagefence.probes import Config, Examination, Kind, ProbeResult, examine
from pagefence.verdict import Verdict, decide
from pagefence.verdict.redaction import redaction
from pagefence.verdict.report import Run, as_json
from pagefence.watch.config import Module, Watched
from pagefence.watch.metered import Metered
from pagefence.watch.records import Phase, Ran

_OWN_WORDS = ("canary",)


async def run_once(watched: Watched, module: Module, seed: int, fresh: bool = True, keep_answers: bool = False) -> Ran:
    """Ask a target once. Within the module's deadline and its tokens; what was found until either ended it counts.

    Cancelled, it comes back at once with what was found. `fresh`: no prompt of this seed can be in a cache yet.
    """
    declared = watched.target.disaggregated
    # The rest is for answers, controls, and second tries of what lost its words.
    planned = module.tokens * 3 // 4 or None
    examination = Examination(
        Config(module.probes, seed, declared, fresh, watched.policy, planned, sentinels=watched.sentinels)
    )
    log = _Log()
    started = time.monotonic()
    phase, late = Phase.FINISHED, False
    fleet = Metered(watched.target, watched.keys, watched.timeout_s, module.tokens)
    async with fleet:
        try:
            async with asyncio.timeout(module.deadline_s):
                await examine(fleet, examination, log.progress, log.line)
        except TimeoutError:
            late = True
            log.line(f"the deadline of {module.deadline_s:g} s came before the end")
        except asyncio.CancelledError:
            phase = Phase.INTERRUPTED
            log.line("the watch was stopped before the end")
    if fleet.turned_away:
        log.line(f"{fleet.turned_away} requests not sent: the run's {module.tokens:,} tokens were spent")
    results = examination.results()
    verdict = decide(results)
    allowed = redaction(examination, watched.keys, unredacted=keep_answers)
    seconds, kept = time.monotonic() - started, allowed.results(results)
    masked = not keep_answers
    report = as_json(Run("watch", examination, verdict, kept, seconds, watched.keys, masked=masked))
    return Ran(
        verdict=verdict.name,
        occurred=verdict.occurred,
        sentence=_sentence(verdict, watched.keys, module, late, phase),
        phase=phase,
        model=_model(examination, watched.keys),
        requests=examination.log.requests,
        prompt_tokens=examination.log.prompt_tokens,
        new_tokens=examination.log.new_tokens,
        charged=fleet.charged,
        saturated=fleet.saturated,
        findings=Counter(str(e.kind) for r in results for e in r.evidence),
        counts=counted(results),
        report=report,
        log=watched.keys.redact(log.text),
    )


def counted(results: tuple[ProbeResult, ...]) -> Mapping[str, tuple[int, int]]:
    """For each probe that asks for own words, how often it did and how often they were lost: a rate that may creep up
    without any single answer being proof. Other controls are no rate of that kind: a fleet may have no cache to hit."""
    asked = [r for r in results if r.name in _OWN_WORDS and r.controls[1]]
    return {r.name: (r.controls[1], r.controls[1] - r.controls[0]) for r in asked}


def _sentence(verdict: Verdict, keys: Keys, module: Module, late: bool, phase: Phase) -> str:
    said = keys.redact(verdict.sentence)
    if verdict.name != Kind.INCONCLUSIVE:
        return said
    if late:
        return f"no end within {module.deadline_s:g} s: {said}"
    return f"stopped before the end: {said}" if phase is Phase.INTERRUPTED else said


def _model(examination: Examination, keys: Keys) -> str | None:
    """The name under which the fleet serves it, fit for a label."""
    name = examination.facts.model if examination.facts is not None else None
    return "".join(c for c in keys.redact(name) if c.isprintable())[:120] or None if name else None


@dataclass(slots=True)
class _Log:
    """The lines of one run, each with the seconds since its start."""

    started: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    last: str = ""

    def progress(self, what: str, done: int, total: int) -> None:
        if what != self.last:
            self.last = what
            self.line(what)

    def line(self, text: str) -> None:
        self.lines.append(f"{time.monotonic() - self.started:7.2f} s  {text}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
