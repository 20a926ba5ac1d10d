"""`pagefence explore`: the protocol checker, exhaustive or random, with or without a fault of the lab."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pagefence.files import check_writable
from pagefence.lab.exploring import Asked, check_recorded, play_random, replay, search_all, write
from pagefence.lab.randomly import Seeds
from pagefence.mistakes import Usage
from pagefence.run import terminated_is_interrupted
from pagefence.sim.explorer import Order, Search
from pagefence.sim.worlds import WORLDS

MOST_CORES = 256
# What each way of exploring heeds besides --fault, --guards, --cores and --json.
_HEEDED = {
    "--recorded": {"--recorded"},
    "--random": {"--random", "--seed", "--runs", "--events", "--large", "--svg"},
    "--path": {"--path", "--world", "--rules", "--raw", "--svg"},
}
_SEARCH = {"--world", "--rules", "--raw", "--depth-first", "--states", "--seconds", "--resume", "--svg"}


def explore_command(
    world: Annotated[list[str] | None, typer.Option("--world", help="Only this world; repeat for more.")] = None,
    worlds: Annotated[bool, typer.Option("--worlds", help="List the worlds and stop.")] = False,
    fault: Annotated[str | None, typer.Option("--fault", help="With this fault of the lab, in its own world.")] = None,
    guards: Annotated[str | None, typer.Option("--guards", help="With --fault: on, off, names, no-NAME.")] = None,
    rules: Annotated[str | None, typer.Option("--rules", help="Stop only at these rules, as in I1,I2.")] = None,
    depth_first: Annotated[bool, typer.Option("--depth-first", help="Instead of breadth first.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Every raw state: no symmetry, no partial order.")] = False,
    cores: Annotated[int, typer.Option("--cores", min=1, max=MOST_CORES, help="Processes.")] = min(
        os.cpu_count() or 1, 8
    ),
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop at so many states.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.1, help="Stop after so long, per world.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="FILE", help="Go on from FILE if it exists; keep it up to date."),
    ] = None,
    path: Annotated[str | None, typer.Option("--path", help="Only replay these numbered moves, as in 0.3.1.")] = None,
    recorded: Annotated[
        Path | None, typer.Option("--recorded", metavar="DIR", help="Check what `serve --record DIR` wrote.")
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Seeded random schedules in virtual time.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="With --random: the first seed, or 0.")] = None,
    runs: Annotated[int | None, typer.Option("--runs", min=1, help="With --random: how many seeds, or 300.")] = None,
    events: Annotated[int | None, typer.Option("--events", min=1, help="With --random: hostile moves per run.")] = None,
    large: Annotated[bool, typer.Option("--large", help="With --random: 20 workers, 200 requests.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw a violation's trace.")] = None,
    as_json_to: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="JSON; - for standard output.")
    ] = None,
) -> None:
    """Check the hand-off protocol: the machines that serve, in small worlds, under every schedule.

    Without flags: every short world, exhaustively, with all rules watched (*always*), rest reached from every state
    (*eventually*), and the places where bugs live really visited (*sometimes*). Exit codes: 0 holds, 1 violation,
    3 not all was seen.

    Examples:

    pagefence explore                                      the correct protocol

    pagefence explore --fault free-while-writing --guards off      the shortest trace to a violation

    pagefence explore --world two-by-two --resume two.search       minutes; Ctrl-C and go on later

    pagefence explore --random --runs 1000                 random schedules; --seed repeats one
    """
    human = Console(stderr=as_json_to == "-")
    if worlds:
        for name, scenery in WORLDS.items():
            human.print(f"{name:12} {scenery.about}{' (minutes)' if scenery.long else ''}", highlight=False)
        return
    if guards is not None and fault is None:
        raise Usage("--guards goes with --fault: without a fault every guard is on")
    _check_heeded({
        "--world": world or None, "--rules": rules, "--raw": raw, "--depth-first": depth_first, "--states": states,
        "--seconds": seconds, "--resume": resume, "--path": path, "--recorded": recorded, "--random": random,
        "--seed": seed, "--runs": runs, "--events": events, "--large": large, "--svg": svg,
    })  # fmt: skip
    if large and fault is not None:
        raise Usage("--large does not go with --fault, which brings its own world")
    for place in (svg, None if as_json_to in (None, "-") else Path(str(as_json_to))):
        if place is not None:
            check_writable(place)
    asked = Asked(human, tuple(world or ()), fault, guards, rules, raw, svg)
    with terminated_is_interrupted():
        if recorded is not None:
            code, said = check_recorded(asked, recorded)
        elif random:
            most = events or (6_000 if large else 200)
            code, said = play_random(asked, Seeds(seed or 0, runs or 300, most, large, fault, asked.in_force, cores))
        elif path is not None:
            code, said = replay(asked, path)
        else:
            order: Order = "depth" if depth_first else "breadth"
            code, said = search_all(asked, Search(order, cores, states, seconds), resume)
    if as_json_to is not None:
        write(as_json_to, json.dumps(said, indent=2))
    raise typer.Exit(code)


def _check_heeded(flags: Mapping[str, object]) -> None:
    """A flag that would be passed over is a mistake, and never a silent one. Raises Usage."""
    given = [flag for flag, value in flags.items() if value is not None and value is not False]
    way = next((way for way in _HEEDED if way in given), None)
    for flag in given:
        if way is None and flag not in _SEARCH:
            raise Usage(f"{flag} goes with --random")
        if way is not None and flag not in _HEEDED[way]:
            raise Usage(f"{flag} does not go with {way}")
