"""`pagefence replay`: the findings of a report, asked for again."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.prompt import Confirm

from pagefence.consent import ASK_ABOVE, affordable
from pagefence.fleet import Fleet
from pagefence.mistakes import Usage
from pagefence.options import build
from pagefence.probes import Config, Examination
from pagefence.probes.estimate import in_words
from pagefence.probes.replay.judge import NAME, judge
from pagefence.probes.replay.manifest import Manifest, read_manifest
from pagefence.probes.replay.send import cost_of, send
from pagefence.run import terminated_is_interrupted
from pagefence.session import Declined, Options, check_reports, console, reported
from pagefence.ticker import Ticker
from pagefence.verdict.decide import decide
from pagefence.verdict.redaction import redaction
from pagefence.verdict.report import Run


def conduct_replay(given: Mapping[str, Any], environment: Mapping[str, str]) -> int:
    """Send what is behind each finding again and return the exit code. Raises Usage, CannotWrite and Declined."""
    evidence: Path = given["evidence"]
    manifest, folder = read_manifest(evidence)
    named = given.get("to")
    options = build("replay", (NAME,), {**given, "url": [named or manifest.url]}, environment)
    check_reports(options)
    if options.target is None or not manifest.findings:
        raise Usage(f"{evidence} names no finding to see again")
    _agreed(manifest, options, named is not None, given.get("ask_above"))
    examination = Examination(Config((NAME,), manifest.seed))
    examination.limits = manifest.limits
    started, interrupted = time.monotonic(), False
    with terminated_is_interrupted():
        try:
            with Ticker(console(stderr=True)) as ticker:
                asyncio.run(_send(options, manifest, folder, examination, ticker))
        except KeyboardInterrupt:
            interrupted = True
        allowed = redaction(examination, options.keys, options.unredacted)
        results = allowed.results((judge(manifest, examination.log.outcomes),))
        line = shlex.join(["pagefence", "replay", str(evidence), *([named] if named else [])])
        run = Run(
            command="replay",
            examination=examination,
            verdict=decide(results, interrupted),
            results=results,
            seconds=time.monotonic() - started,
            keys=options.keys,
            interrupted=interrupted,
            line=line,
            masked=not options.unredacted,
            at=time.time(),
        )
        return reported(run, options)


async def _send(options: Options, manifest: Manifest, folder: Path, examination: Examination, ticker: Ticker) -> None:
    assert options.target is not None
    async with Fleet(options.target, options.keys, options.timeout_s) as fleet:
        await send(fleet, manifest, folder, examination.log, ticker)


def _agreed(manifest: Manifest, options: Options, named: bool, above: int | None) -> None:
    """Keys go to an address that a file names only when the user agrees: the file may be anybody's."""
    assert options.target is not None
    cost, to = cost_of(manifest), options.target.router
    on_terminal = sys.stdin is not None and sys.stdin.isatty()
    if options.yes:
        return
    if on_terminal:
        console(stderr=True).print(f"{in_words(cost)}, to see {len(manifest.findings)} findings again", markup=False)
        if not Confirm.ask(
            f"Send this, with your keys, to {escape(str(to))}?", default=True, console=console(stderr=True)
        ):
            raise Declined("nothing was sent; --yes skips the question")
        return
    if not named:
        raise Usage(
            f"the findings name {to}, where your keys would go. Nothing was sent. Give the URL as well, or --yes"
        )
    affordable(cost, ASK_ABOVE if above is None else above, said_yes=False, can_be_asked=False)
