"""One run of `verify` or of one probe, from its options to its exit code: start or find the fleet, ask, report."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.markup import escape
from rich.prompt import Confirm

from pagefence.consent import affordable
from pagefence.files import CannotWrite, check_writable, write_atomically
from pagefence.fleet import Fleet, Keys, Target
from pagefence.fleet.declared import declared_facts
from pagefence.fleet.embedded import Recipe, Running, embedded
from pagefence.mistakes import EXIT_INCONCLUSIVE, CouldNotAsk
from pagefence.probes import Config, Examination, ProbeResult, examine
from pagefence.probes.estimate import Estimate
from pagefence.probes.gate import Policy
from pagefence.probes.latency import calibration
from pagefence.probes.latency.judge import certified
from pagefence.probes.latency.offline import Source
from pagefence.probes.latency.policy import Timing
from pagefence.probes.race.plan import Profile
from pagefence.probes.rehearsal import rehearse
from pagefence.probes.salt.sharing import Sharing
from pagefence.probes.sentinel_file import SentinelFile
from pagefence.run import terminated_is_interrupted
from pagefence.ticker import Ticker
from pagefence.verdict.decide import CLEAN, EXIT_CLEAN, decide
from pagefence.verdict.html import as_html
from pagefence.verdict.junit import as_junit
from pagefence.verdict.power import LEAK_RATE
from pagefence.verdict.redaction import redaction
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
    budget: int | None = None
    dry_run: bool = False
    ask_above: int | None = None
    declared: Mapping[str, int] | None = None
    lock: Path | None = None
    approve: bool = False
    json: str | None = None
    junit: str | None = None
    sarif: str | None = None
    html: str | None = None
    unredacted: bool = False
    salt_field: str | None = None
    salt_timing: bool = False
    yes: bool = False
    keep: bool = False
    timing: Timing = field(default_factory=Timing)
    calibrate: Path | None = None
    race: Profile = field(default_factory=Profile)
    sentinels: SentinelFile | None = None
    line: str = "pagefence verify"

    @property
    def reports(self) -> dict[str, Callable[[Run], bytes]]:
        """Where each report goes (`-`: standard output), and how it is made."""
        wanted = ((self.json, as_json), (self.junit, as_junit), (self.sarif, as_sarif), (self.html, as_html))
        return {place: made for place, made in wanted if place is not None}


class Declined(CouldNotAsk):
    """The user did not want the cost."""


def conduct(options: Options) -> int:
    """Do the run and return the exit code. Raises CannotWrite, CouldNotStart and Declined, each with its message."""
    check_reports(options)
    if options.calibrate is not None:
        check_writable(options.calibrate)
    if options.sentinels is not None:
        options.sentinels.check()
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    examination = Examination(_config(options, seed))
    started = time.monotonic()
    interrupted = False
    with contextlib.ExitStack() as stack, terminated_is_interrupted():
        target, keys, running = options.target, options.keys, None
        try:
            with Ticker(console(stderr=True)) as ticker:
                if target is None and options.dry_run:
                    _rehearse(options, examination, ticker)
                elif target is None:
                    running = stack.enter_context(embedded(options.recipe, ticker, keys=options.keys))
                    target, keys = running.target, running.keys
                if target is not None:
                    asyncio.run(_examine(target, keys, options, examination, ticker))
        except KeyboardInterrupt:
            interrupted = True
        own = options.target is None
        allowed = redaction(examination, keys, unredacted=own or options.unredacted)
        results = allowed.results(examination.results())
        examination.facts = allowed.keyless(examination.facts)
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
            masked=allowed.planted is not None,
            at=time.time(),
        )
        code = reported(run, options)
        if not _calibrated(options.calibrate, examination, verdict.name, console(stderr="-" in options.reports)):
            code = code or EXIT_INCONCLUSIVE
        if options.keep and running is not None and not interrupted:
            _keep(running, console(stderr="-" in options.reports))
    return code


def check_reports(options: Options) -> None:
    """Find out before the run whether its reports have a place. Raises CannotWrite."""
    for place in options.reports:
        if place != "-":
            check_writable(Path(place))


def reported(run: Run, options: Options) -> int:
    """Print and write every report of a run, and say its exit code: a report that is lost is never a success."""
    _shown(run, console(stderr="-" in options.reports))
    written = [_written(place, made(run)) for place, made in options.reports.items()]
    lost = not all(written) and run.verdict.exit_code == EXIT_CLEAN
    return EXIT_INCONCLUSIVE if lost else run.verdict.exit_code


def conduct_offline(options: Options, source: Source) -> int:
    """Judge times that somebody else took and return the exit code. Raises CannotWrite, Usage and CouldNotAsk."""
    check_reports(options)
    started, results, interrupted = time.monotonic(), tuple[ProbeResult, ...](), False
    with terminated_is_interrupted():
        try:
            with Ticker(console(stderr=True)) as ticker:
                results = (source.read(ticker),)
        except KeyboardInterrupt:
            interrupted = True
    verdict = decide(results, interrupted)
    run = Run(
        command=options.command,
        examination=Examination(Config(options.probes, timing=options.timing)),
        verdict=verdict,
        results=results,
        seconds=time.monotonic() - started,
        keys=options.keys,
        interrupted=interrupted,
        line=options.line,
        at=time.time(),
    )
    return reported(run, options)


def _calibrated(path: Path | None, examination: Examination, verdict: str, human: Console) -> bool:
    """Write what a clean run measured, if that was asked for. False when a clean run gives no calibration."""
    seen = examination.seen()
    if path is None or seen is None:
        return path is None
    if verdict != CLEAN:
        human.print(f"no calibration was written: the run is {verdict}, so nothing certifies it", soft_wrap=True)
        return True
    found = certified(seen)
    if isinstance(found, str):
        print(f"pagefence: no calibration was written: {found}", file=sys.stderr)
        return False
    try:
        calibration.write(path, found)
    except CannotWrite as error:
        print(f"pagefence: {error}", file=sys.stderr)
        return False
    human.print(f"calibration: {path} ({found.model} on {found.engine} {found.version})", soft_wrap=True)
    return True


async def _examine(target: Target, keys: Keys, options: Options, examination: Examination, ticker: Ticker) -> None:
    def announce(line: str) -> None:
        ticker.say(line)
        if _asked(options):
            with ticker.paused():
                if not Confirm.ask(
                    f"Send this to {escape(str(target.router))}?", default=True, console=console(stderr=True)
                ):
                    raise Declined("nothing was asked; --yes skips the question")

    def consent(cost: Estimate) -> None:
        affordable(cost, options.ask_above, options.yes, _asked(options))

    async with Fleet(target, keys, options.timeout_s) as fleet:
        await examine(fleet, examination, ticker, announce, consent)


def _asked(options: Options) -> bool:
    """Whether somebody will be asked before prompts go to a fleet that is not ours."""
    ours = options.target is None
    return not ours and not options.yes and not options.dry_run and sys.stdin is not None and sys.stdin.isatty()


def _rehearse(options: Options, examination: Examination, ticker: Ticker) -> None:
    """Plan for a fleet that is not there: its figures are declared, or those that the embedded one would have."""
    recipe = options.recipe
    figures = options.declared or {"pool": recipe.pool_tokens, "context": recipe.context, "page_size": 64}
    examination.rehearsed = True
    rehearse(examination, declared_facts(figures), examination.config.sharing, True, ticker.say)


def _saved(examination: Examination, results: tuple[ProbeResult, ...], beside: Path | None) -> dict[str, Repeat]:
    """As `save`; where there is no place for request bodies, what was found is reported all the same."""
    try:
        return save(examination, results, beside)
    except (CannotWrite, OSError) as error:
        print(f"pagefence: no request bodies to repeat with: {error}", file=sys.stderr)
        return {}


def _shown(run: Run, console: Console) -> None:
    """Print the report for a person. Nobody who reads it to the end must cost neither the verdict nor a file."""
    try:
        show(run, console)
        console.file.flush()
    except (OSError, SystemExit) as error:  # rich ends a program whose reader is gone, with the code of a violation
        _give_up(console.file)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            _complain(f"cannot print the report: {error.strerror or error}")


def _give_up(stream: IO[str]) -> None:
    """What is still held back for a stream that takes nothing more must not fail at the end of the program."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _complain(line: str) -> None:
    with contextlib.suppress(OSError):
        print(f"pagefence: {line}", file=sys.stderr)


def _written(place: str, report: bytes) -> bool:
    """Write a report. A disk that filled up meanwhile must not turn a violation into a usage error."""
    if place == "-":
        if sys.stdout is None:  # as the shell's >&- leaves it
            _complain("cannot write the report: standard output is closed")
            return False
        try:
            sys.stdout.buffer.write(report)
            sys.stdout.flush()
        except OSError as error:
            _give_up(sys.stdout)
            _complain(f"cannot write the report to standard output: {error.strerror or error}")
            return False
        return True
    try:
        write_atomically(Path(place), report)
    except CannotWrite as error:
        _complain(str(error))
        return False
    return True


def _config(options: Options, seed: int) -> Config:
    """What to ask."""
    declared_pd = options.target is None or options.target.disaggregated
    policy = Policy(options.headroom, options.edge_limit, options.inside, options.lock, options.approve, options.active)
    fresh = options.seed is None or options.target is None  # what has just been started has seen nothing
    sharing = Sharing(options.salt_field, options.salt_timing)
    return Config(
        options.probes,
        seed,
        declared_pd,
        fresh,
        policy,
        options.budget,
        options.dry_run,
        sharing,
        options.timing,
        _asked(options),
        options.race,
        options.sentinels,
    )


def console(stderr: bool) -> Console:
    stream: IO[str] | None = sys.stderr if stderr else sys.stdout
    if stream is None:
        return Console(file=io.StringIO(), width=120, highlight=False)
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
