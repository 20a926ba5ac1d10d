"""`pagefence lab`: the fault catalogue, a run of one fault, and the matrix fault x detector."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pagefence.files import check_writable
from pagefence.lab import faults, matrix_views
from pagefence.lab.exercise import exercise
from pagefence.lab.exercised import Kind
from pagefence.lab.explore import MOST_CORES, explore_command
from pagefence.lab.exploring import write
from pagefence.lab.fault import SMALL, Fault
from pagefence.lab.matrix import (
    COLUMNS,
    CONTROL,
    ENGINE,
    Mark,
    Results,
    Work,
    control,
    exercised,
    guarded,
    probed,
    quick,
)
from pagefence.lab.power_command import power_command
from pagefence.lab.traces import write_page
from pagefence.mistakes import EXIT_INCONCLUSIVE, Mistake
from pagefence.run import terminated_is_interrupted
from pagefence.sim.explorer import Search
from pagefence.ticker import Ticker

EXIT_ALL_CAUGHT, EXIT_UNCAUGHT = 0, 1
lab_app = typer.Typer(help="Known bugs of this class, as faults that can be switched on.", no_args_is_help=True)
Cores = Annotated[int, typer.Option("--cores", min=1, max=MOST_CORES, help="Processes for explorer and simulator.")]
_CORES = min(os.cpu_count() or 1, 8)


@lab_app.command("list")
def list_faults(as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False) -> None:
    """Every fault: what goes wrong, which rules it breaks, where it was seen.

    Run one with: pagefence lab run NAME, or in the real engine: pagefence verify --fault NAME [--guards on|off|LIST]
    """
    if as_json:
        print(json.dumps([_described(fault) for fault in faults.FAULTS.values()], indent=2))
        return
    table = Table("fault", "what goes wrong", "rules", "seen in", box=None, pad_edge=False)
    for fault in faults.FAULTS.values():
        table.add_row(fault.name, fault.summary, " ".join(fault.rules), fault.reference)
    Console().print(table)


def _described(fault: Fault) -> dict[str, Any]:
    return {
        "name": fault.name,
        "summary": fault.summary,
        "mechanism": " ".join(fault.mechanism.split()),
        "reference": fault.reference,
        "rules": fault.rules,
        "outside": fault.outside,
        "hidden_by": fault.hidden_by,
        "not_in_engine": fault.not_in_engine,
    }


@lab_app.command("run")
def run_fault(
    name: Annotated[str, typer.Argument(help="A name from `pagefence lab list`.")],
    guards: Annotated[str, typer.Option("--guards", help="on, off, or names; no-NAME leaves one out.")] = "off",
    random: Annotated[bool, typer.Option("--random", help="In the simulator instead of the explorer.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the trace.")] = None,
    as_json_to: Annotated[str | None, typer.Option("--json", metavar="FILE", help="JSON; - for stdout.")] = None,
    in_engine: Annotated[
        bool, typer.Option("--engine", help="In the real engine: every answer is held against the right one.")
    ] = False,
    cores: Cores = _CORES,
) -> None:
    """Play one fault in its small world and show the shortest way to a broken rule. Exit code 1: it was found.

    With --engine a real fleet is exercised by two tenants, half a minute and longer the first time.
    The probes take the same names: pagefence verify --fault NAME --guards off

    Example: pagefence lab run free-while-writing --svg trace.svg
    """
    fault = faults.find(name)
    if in_engine and (random or svg is not None):
        raise NotInEngine("--engine plays no schedule of its own: --random and --svg do not go with it")
    print(f"{fault.name}: {fault.summary}\n  {' '.join(fault.mechanism.split())}\n  {fault.reference}", file=sys.stderr)
    if in_engine:
        raise typer.Exit(_run_in_engine(fault, guards, as_json_to))
    explore_command(fault=name, guards=guards, random=random, svg=svg, as_json_to=as_json_to, cores=cores)


def _run_in_engine(fault: Fault, guards: str, as_json_to: str | None) -> int:
    """Exercise it, print what came of it. Exit codes: 0 all right, 1 it showed, 3 nothing was exercised."""
    if fault.not_in_engine:
        raise NotInEngine(f"{fault.name} cannot show in the real engine: {fault.not_in_engine}")
    if as_json_to not in (None, "-"):
        check_writable(Path(str(as_json_to)))
    with Ticker(Console(stderr=True)) as ticker:
        done = exercise(fault, guards, ticker)
    human = Console(stderr=as_json_to == "-")
    human.print(f"{done.told} (guards {guards}, {done.seconds:.0f} s)", highlight=False)
    counted = ", ".join(f"{kind} {done[kind]}" for kind in Kind if done[kind])
    human.print(f"  answers: {counted}; pages: {done.rest.about or 'all there'}", highlight=False)
    for example in done.examples:
        human.print(f"  {example}", highlight=False, markup=False)
    if as_json_to is not None:
        write(as_json_to, json.dumps({"fault": fault.name, "guards": guards, **done.as_json()}, indent=2))
    if done.verdict == "nothing exercised":
        return EXIT_INCONCLUSIVE
    return EXIT_ALL_CAUGHT if done.verdict == "right" else EXIT_UNCAUGHT


@lab_app.command("matrix")
def matrix(
    only: Annotated[list[str] | None, typer.Option("--fault", help="Only this fault; repeat for more.")] = None,
    with_engine: Annotated[
        bool, typer.Option("--engine", help="Also exercise the real engine, guards off and on: a minute per fault.")
    ] = False,
    with_probes: Annotated[
        bool, typer.Option("--probes", help="Also `pagefence verify` of the real engine: two minutes per fault.")
    ] = False,
    results: Annotated[
        Path | None, typer.Option("--results", metavar="FILE", help="Keep finished cells here and go on from them.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Run cells anew that --results holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="The matrix as a picture.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="As a page.")] = None,
    cores: Cores = _CORES,
) -> None:
    """Run every fault against every detector. Exit codes: 0 all caught and the control silent, 1 not, 3 not all ran.

    Without --engine and --probes explorer and simulator alone: a few minutes. Stop it when you like: --results keeps
    what is done.

    Example: pagefence lab matrix --results matrix.json --engine --probes
    """
    chosen = {name: faults.find(name) for name in only} if only else dict(faults.FAULTS)
    for place in (results, svg, markdown):
        if place is not None:
            check_writable(place)
    kept = Results.at(results)
    human = Console(stderr=as_json)
    work = [*_control_work(cores), *quick(chosen, cores)]
    control_row = {CONTROL: Fault(CONTROL, "", "", "", ())}
    if with_engine:
        work += [*exercised(control_row), *exercised(chosen)]
    if with_probes:
        work += [*probed(control_row), *probed(chosen)]
    with terminated_is_interrupted():
        _run(work, kept, again)
    names = [CONTROL, *chosen]
    human.print(matrix_views.terminal(kept, names))
    for path, text in ((svg, matrix_views.svg), (markdown, matrix_views.markdown)):
        if path is not None:
            write(path, text(kept, names))
    if as_json:
        print(json.dumps(kept.as_json(), indent=2))
    raise typer.Exit(_judge(kept, chosen, human))


lab_app.command("power")(power_command)


@lab_app.command("traces")
def traces(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Gets faults.md and traces/NAME.svg.")],
    cores: Cores = _CORES,
) -> None:
    """Write the page of faults with the shortest trace of each, as a table and as a picture.

    Example: pagefence lab traces docs/reference
    """
    with Ticker(Console(stderr=True)) as ticker:
        write_page(folder, cores, ticker)


def _control_work(cores: int) -> Iterable[Work]:
    """The same small world without a fault. What leaving guards out does by itself shows here."""
    healthy = Fault(CONTROL, "", "", "", (), bounds=SMALL)
    yield CONTROL, "explorer", lambda: control(healthy, Search(cores=cores))
    yield from guarded(healthy, Search(cores=cores))


def _run(work: list[Work], kept: Results, again: bool) -> None:
    with Ticker(Console(stderr=True)) as ticker:
        for number, (fault, column, fill) in enumerate(work):
            ticker(f"{fault}: {column}", number, len(work))
            try:
                if again or kept.get(fault, column).mark is Mark.NOT_RUN:
                    kept.put(fault, column, fill())
            except KeyboardInterrupt:
                where = f"{kept.path} keeps what is done" if kept.path else "--results FILE keeps what is done"
                ticker.say(f"stopped at {fault}: {column}; {where}")
                raise


def _judge(kept: Results, chosen: Mapping[str, Fault], human: Console) -> int:
    uncaught, loud = kept.uncaught(chosen), kept.loud()
    if uncaught or loud:
        human.print(f"[red]FAIL[/] caught by nothing: {', '.join(uncaught) or 'none'}; "
                    f"raised without a fault: {', '.join(loud) or 'none'}", highlight=False)  # fmt: skip
        return EXIT_UNCAUGHT
    open_ = sum(kept.get(name, column).mark is Mark.NOT_RUN for name in chosen for column in COLUMNS)
    rest = f"; {open_} cells not run" if open_ else ""
    human.print(f"[green]every fault is caught[/] ({len(chosen)}), the control is silent{rest}", highlight=False)
    open_ = sum(kept.get(n, c).mark is Mark.NOT_RUN for n in chosen for c in COLUMNS if c not in ENGINE)
    return EXIT_INCONCLUSIVE if open_ else EXIT_ALL_CAUGHT


class NotInEngine(Mistake):
    """The fault has no way to show there; the message says why."""
