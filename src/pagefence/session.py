"""One run of `verify`, `gate` or `canary`, from its options to its exit code: start or find the fleet, ask, report."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.prompt import Confirm

from pagefence.files import CannotWrite, check_writable, write_atomically
from pagefence.fleet import Fleet, Keys, Target
from pagefence.fleet.embedded import Recipe, Running, embedded
from pagefence.mistakes import EXIT_INCONCLUSIVE, CouldNotAsk
from pagefence.probes import Config, Examination, ProbeResult, examine
from pagefence.probes.gate import Policy
from pagefence.probes.race.plan import Profile
from pagefence.run import terminated_is_interrupted
from pagefence.ticker import Ticker
from pagefence.verdict.decide import EXIT_CLEAN, decide
from pagefence.verdict.junit import as_junit
from pagefence.verdict.power import LEAK_RATE
from pagefence.verdict.repeat import save
from pagefence.verdict.report import Repeat, Run, as_json
from pagefence.verdict.sarif import as_sarif
from pagefence.verdict.terminal import show


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for, checked."""

    command: str
    probes: tuple[str, ...]
    target: Target | None
    keys: Keys = field(default_factory=Keys)
    recipe: Recipe = field(default_factory=Recipe)
    timeout_s: float = 120.0
    seed: int | None = None
    leak_rate: float = LEAK_RATE
    headroom: float = 1.25
    edge_limit: int | None = None
    active: bool = False
    inside: bool = False
    lock: Path | None = None
    approve: bool = False
    json: str | None = None
    junit: str | None = None
    sarif: str | None = None
    yes: bool = False
    keep: bool = False
    race: Profile = field(default_factory=Profile)
    line: str = "pagefence verify"

    @property
    def reports(self) -> dict[str, Callable[[Run], bytes]]:
        """Where each report goes (`-`: standard output), and how it is made."""
        wanted = ((self.json, as_json), (self.junit, as_junit), (self.sarif, as_sarif))
        return {place: made for place, made in wanted if place is not None}


class Declined(CouldNotAsk):
    """The user did not want the cost."""


def conduct(options: Options) -> int:
    """Do the run and return the exit code. Raises CannotWrite, CouldNotStart and Declined, each with its message."""
    for place in options.reports:
        if place != "-":
            check_writable(Path(place))
    human = _console(stderr="-" in options.reports)
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    examination = Examination(_config(options, seed))
    started = time.monotonic()
    interrupted = False
    with contextlib.ExitStack() as stack, terminated_is_interrupted():
        target, keys, running = options.target, options.keys, None
        try:
            with Ticker(_console(stderr=True)) as ticker:
                if target is None:
                    running = stack.enter_context(embedded(options.recipe, ticker, keys=options.keys))
                    target, keys = running.target, running.keys
                asyncio.run(_examine(target, keys, options, examination, ticker))
        except KeyboardInterrupt:
            interrupted = True
        results = examination.results()
        verdict = decide(results, interrupted, options.leak_rate)
        beside = Path(options.json) if options.json not in (None, "-") else None
        run = Run(
            command=options.command,
            examination=examination,
            verdict=verdict,
            results=results,
            seconds=time.monotonic() - started,
            keys=keys,
            interrupted=interrupted,
            embedded=running is not None and not options.keep,
            line=options.line,
            again=f"{options.line} --seed {seed}" if options.command != "gate" else None,
            repeats=_saved(examination, results, beside),
        )
        show(run, human)
        written = [_written(place, made(run)) for place, made in options.reports.items()]
        if not all(written) and verdict.exit_code == EXIT_CLEAN:
            return EXIT_INCONCLUSIVE
        if options.keep and running is not None and not interrupted:
            _keep(running, human)
    return verdict.exit_code


async def _examine(target: Target, keys: Keys, options: Options, examination: Examination, ticker: Ticker) -> None:
    def announce(line: str) -> None:
        ticker.say(line)
        if options.target is not None and not options.yes and sys.stdin.isatty():
            with ticker.paused():
                if not Confirm.ask(f"Send this to {target.router}?", default=True, console=_console(stderr=True)):
                    raise Declined("nothing was asked; --yes skips the question")

    async with Fleet(target, keys, options.timeout_s) as fleet:
        await examine(fleet, examination, ticker, announce)


def _saved(examination: Examination, results: tuple[ProbeResult, ...], beside: Path | None) -> dict[str, Repeat]:
    """As `save`; where there is no place for request bodies, what was found is reported all the same."""
    try:
        return save(examination, results, beside)
    except (CannotWrite, OSError) as error:
        print(f"pagefence: no request bodies to repeat with: {error}", file=sys.stderr)
        return {}


def _written(place: str, report: bytes) -> bool:
    """Write a report. A disk that filled up meanwhile must not turn a violation into a usage error."""
    if place == "-":
        sys.stdout.buffer.write(report)
        sys.stdout.flush()
        return True
    try:
        write_atomically(Path(place), report)
    except CannotWrite as error:
        print(f"pagefence: {error}", file=sys.stderr)
        return False
    return True


def _config(options: Options, seed: int) -> Config:
    """What to ask."""
    declared_pd = options.target is None or options.target.disaggregated
    policy = Policy(options.headroom, options.edge_limit, options.inside, options.lock, options.approve, options.active)
    return Config(options.probes, seed, declared_pd, options.seed is None, policy, race=options.race)


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 120
    return Console(stderr=stderr, width=width, highlight=False)


def _keep(running: Running, console: Console) -> None:
    """Leave the embedded fleet up until Ctrl-C, so that the curl lines of the report can be used. Keys go to a file."""
    with tempfile.TemporaryDirectory(prefix="pagefence-keys-") as folder:
        path = Path(folder) / "keys.env"
        path.touch(mode=0o600)
        path.write_text(
            f"export PAGEFENCE_KEY_A={shlex.quote(running.keys.a or '')}\n"
            f"export PAGEFENCE_KEY_B={shlex.quote(running.keys.b or '')}\n"
        )
        console.print(f"\nThe fleet stays at {running.target.router} until Ctrl-C. Its keys: . {path}", soft_wrap=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
