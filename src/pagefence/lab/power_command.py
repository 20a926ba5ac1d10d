"""`pagefence lab power`: measure how often each fault is found, for hours, and go on where it was stopped."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pagefence.files import READABLE, check_writable, write_atomically
from pagefence.lab import faults
from pagefence.lab.power import RACE_PROFILE, Plan, measure
from pagefence.lab.power_log import RACE, USUAL, VERIFY, PowerLog
from pagefence.lab.power_report import page
from pagefence.mistakes import Usage
from pagefence.run import terminated_is_interrupted
from pagefence.ticker import Ticker

_PROFILES = {"verify": VERIFY, "race": RACE, "usual": USUAL}


def power_command(
    state: Annotated[
        Path, typer.Option("--state", metavar="FILE", help="Finished runs, a line each; it goes on from them.")
    ],
    only: Annotated[list[str] | None, typer.Option("--fault", help="Only this fault; repeat for more.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=0, help="Runs of each profile for each fault.")] = 20,
    clean: Annotated[int, typer.Option("--clean", min=0, help="Runs of verify on the fleet without a fault.")] = 100,
    profile: Annotated[
        list[str] | None, typer.Option("--profile", help="verify, race or usual; repeat for more. Default: all.")
    ] = None,
    stop_early: Annotated[
        bool, typer.Option("--stop-early", help="Stop a run at its first violation: its detection is decided then.")
    ] = False,
    probes: Annotated[int, typer.Option("--probes", min=1, help="Requests of one race.")] = RACE_PROFILE.probes,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="The longest crowd of one race.")] = (
        RACE_PROFILE.seconds
    ),
    timeout: Annotated[float, typer.Option("--timeout", min=1.0, help="Seconds that one answer may take.")] = 120.0,
    model: Annotated[str | None, typer.Option("--model", help="A known name, GGUF file or folder.")] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write the page from what is there, and run nothing."),
    ] = None,
) -> None:
    """Run the probes again and again against each fault of the lab, and count how often they find it.

    One fleet serves all runs of a fault. Stop it when you like, also with kill -9: what is finished is kept.

    Example: pagefence lab power --state power.jsonl --fault stub-transfer --seeds 20 --clean 0
    """
    unknown = [name for name in profile or () if name not in _PROFILES]
    if unknown:
        raise Usage(f"--profile {unknown[0]!r} is none of {', '.join(_PROFILES)}")
    chosen = [faults.find(name) for name in only] if only else list(faults.FAULTS.values())
    if report is not None and os.path.realpath(report) == os.path.realpath(state):
        raise Usage(f"--report would write over {state}, which is the file of --state")
    log = PowerLog.at(state)
    if report is not None:
        write_atomically(report, page(log, faults.FAULTS).encode(), READABLE)
        return
    check_writable(state)
    plan = Plan(
        tuple(fault for fault in chosen if not fault.not_in_engine),
        seeds,
        clean,
        tuple(_PROFILES[name] for name in profile or _PROFILES),
        stop_early,
        model,
        replace(RACE_PROFILE, probes=probes, seconds=seconds),
        timeout,
    )
    left = sum(len(keys) for _, keys in plan.todo(log))
    with log.alone(), Ticker(Console(stderr=True)) as ticker, terminated_is_interrupted():
        ticker.say(f"{len(log.runs)} runs are done, {left} are left; {state} keeps each as it ends")
        measure(plan, log, ticker)
