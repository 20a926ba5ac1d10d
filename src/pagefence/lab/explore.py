"""`pagefence explore`: the protocol checker, exhaustive or random, with or without a fault of the lab."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pagefence.lab import faults
from pagefence.lab.randomly import Seeds, play_seeds
from pagefence.mistakes import EXIT_INCONCLUSIVE, Mistake
from pagefence.protocol.invariants import RULES
from pagefence.sim.checkpoint import Checkpoint
from pagefence.sim.explorer import Progress, Search, explore, moves_of
from pagefence.sim.moves import Move
from pagefence.sim.report import FAIRNESS, Explored, as_json, rate, reached, summary
from pagefence.sim.step import World
from pagefence.sim.svg import trace_svg
from pagefence.sim.table import trace_table
from pagefence.sim.watch import retold
from pagefence.sim.worlds import WORLDS, Scenery
from pagefence.ticker import Ticker

EXIT_HOLDS, EXIT_VIOLATION = 0, 1


class Usage(Mistake):
    """Flags that do not go together, or name what is not there."""


def explore_command(
    world: Annotated[list[str] | None, typer.Option("--world", help="Only this world; repeat for more.")] = None,
    worlds: Annotated[bool, typer.Option("--worlds", help="List the worlds and stop.")] = False,
    fault: Annotated[str | None, typer.Option("--fault", help="With this fault of the lab, in its own world.")] = None,
    guards: Annotated[str | None, typer.Option("--guards", help="With --fault: on, off, names, no-NAME.")] = None,
    rules: Annotated[str | None, typer.Option("--rules", help="Stop only at these rules, as in I1,I2.")] = None,
    depth_first: Annotated[bool, typer.Option("--depth-first", help="Instead of breadth first.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Every raw state: no symmetry, no partial order.")] = False,
    cores: Annotated[int, typer.Option("--cores", min=1, help="Processes.")] = min(os.cpu_count() or 1, 8),
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop at so many states.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.1, help="Stop after so long, per world.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="FILE", help="Go on from FILE if it exists; keep it up to date."),
    ] = None,
    path: Annotated[str | None, typer.Option("--path", help="Only replay these numbered moves, as in 0.3.1.")] = None,
    random: Annotated[bool, typer.Option("--random", help="Seeded random schedules in virtual time.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="With --random: the first seed.")] = 0,
    runs: Annotated[int, typer.Option("--runs", min=1, help="With --random: how many seeds.")] = 300,
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
    if guards and not fault:
        raise Usage("--guards goes with --fault: without a fault every guard is on")
    if random:
        seeds = Seeds(seed, runs, events or (6_000 if large else 200), large, fault, guards or "off", cores)
        code, said = _random(seeds, human, svg)
    elif path is not None:
        code, said = _replay(_worlds(world, fault, guards, raw, rules), path, fault, guards, human, svg)
    else:
        search = Search("depth" if depth_first else "breadth", cores, states, seconds)
        code, said = _search(_worlds(world, fault, guards, raw, rules), search, fault, guards, resume, human, svg)
    if as_json_to is not None:
        _write(as_json_to, json.dumps(said, indent=2))
    raise typer.Exit(code)


def _worlds(
    names: list[str] | None, fault: str | None, guards: str | None, raw: bool, rules: str | None
) -> list[tuple[World, Scenery]]:
    """What to search. Raises Usage, UnknownFault, UnknownGuard."""
    unknown = [name for name in names or () if name not in WORLDS]
    if unknown:
        raise Usage(f"no world {unknown[0]!r}; worlds are {', '.join(WORLDS)}")
    watched = frozenset(RULES)
    if rules:
        watched = frozenset(rule.strip() for rule in rules.split(","))
        if not watched <= set(RULES):
            raise Usage(f"no rule {sorted(watched - set(RULES))[0]!r}; rules are {', '.join(RULES)}")
    chosen = [WORLDS[name] for name in names] if names else [s for s in WORLDS.values() if not s.long]
    if fault is None:
        return [(World(s.bounds, watched=watched, reduced=not raw), s) for s in chosen]
    found = faults.find(fault)
    small = found.small_world(guards or "off")
    sceneries = chosen if names else [Scenery(found.bounds, found.summary)]
    return [(replace(small, bounds=s.bounds, watched=small.watched & watched, reduced=not raw), s) for s in sceneries]


def _search(
    worlds: list[tuple[World, Scenery]],
    search: Search,
    fault: str | None,
    guards: str | None,
    resume: Path | None,
    human: Console,
    svg: Path | None,
) -> tuple[int, dict[str, Any]]:
    if resume is not None and len(worlds) > 1:
        raise Usage("--resume keeps one search: name its world with --world")
    done: list[Explored] = []
    with Ticker(Console(stderr=True)) as ticker:
        for world, scenery in worlds:
            about = f"{world.bounds!r} {fault} {guards} {sorted(world.watched)} {world.reduced} {search.order}"
            checkpoint = None if resume is None else Checkpoint(resume, about)

            def tell(p: Progress, name: str = world.bounds.name) -> None:
                ticker(f"{name}: {len(p.known):,} states, {len(p.frontier):,} to go, {rate(p):,.0f}/s", p.expanded)

            done.append(Explored(world.bounds, scenery.about, explore(world, search, tell, checkpoint), fault is None))
            if done[-1].result.found is not None:
                break
    human.print(summary(done))
    human.print()
    human.print(f"eventually: from every state to rest, where {FAIRNESS}", highlight=False)
    if fault is None:
        human.print(reached(done))
    found = done[-1].result.found
    if found is not None:
        numbers = ".".join(map(str, found.numbers))
        _show(worlds[len(done) - 1][0], found.path, fault, guards, _again(fault, guards, done[-1], numbers), human, svg)
    code = _code(done)
    if code == EXIT_INCONCLUSIVE:
        open_ = [one for one in done if one.verdict != "HOLDS"]
        why = "; ".join(f"{one.bounds.name}: {', '.join(one.missing) or 'not finished'}" for one in open_)
        human.print(f"[yellow]INCONCLUSIVE[/] not all was seen: {why}", highlight=False)
    return code, as_json(done, code, {"fault": fault, "guards": guards or ("off" if fault else "on")})


def _code(done: list[Explored]) -> int:
    if any(one.result.found is not None for one in done):
        return EXIT_VIOLATION
    return EXIT_HOLDS if all(one.verdict == "HOLDS" for one in done) else EXIT_INCONCLUSIVE


def _again(fault: str | None, guards: str | None, one: Explored, numbers: str) -> str:
    where = f"--fault {fault} --guards {guards or 'off'}" if fault else f"--world {one.bounds.name}"
    return f"pagefence explore {where} --path {numbers}"


def _replay(
    worlds: list[tuple[World, Scenery]],
    path: str,
    fault: str | None,
    guards: str | None,
    human: Console,
    svg: Path | None,
) -> tuple[int, dict[str, Any]]:
    if len(worlds) != 1:
        raise Usage("--path belongs to one world: name it with --world or --fault")
    world = worlds[0][0]
    try:
        numbers = [int(part) for part in path.split(".") if part]
    except ValueError:
        raise Usage(f"{path[:60]!r} is no path; a path is numbers and dots, as in 0.3.1") from None
    moves = tuple(moves_of(world, numbers))
    rule = _show(world, moves, fault, guards, f"--path {path}", human, svg)
    code = EXIT_HOLDS if rule is None else EXIT_VIOLATION
    return code, {"schema_version": 1, "exit_code": code, "moves": [str(move) for move in moves], "rule": rule}


def _random(seeds: Seeds, human: Console, svg: Path | None) -> tuple[int, dict[str, Any]]:
    started = time.monotonic()
    seen: Counter[str] = Counter()
    events, virtual, histories, bad = 0, 0.0, [], None
    with Ticker(Console(stderr=True)) as ticker:
        for number, run in enumerate(play_seeds(seeds), 1):
            events += run.events
            virtual += run.virtual_s
            seen.update(run.sometimes)
            histories.append(run.history)
            ticker(f"{events:,} events, {events / (time.monotonic() - started):,.0f}/s", number, seeds.runs)
            if run.rule is not None:
                bad = run
                break
    seconds = time.monotonic() - started
    human.print(
        f"{len(histories):,} runs, {events:,} events, {virtual:,.0f} s of virtual time in {seconds:,.1f} s "
        f"({events / seconds:,.0f} events/s)", highlight=False,
    )  # fmt: skip
    for what, count in seen.most_common():
        human.print(f"  {count:>9,}  {what}", highlight=False)
    said: dict[str, Any] = {
        "schema_version": 1, "runs": len(histories), "events": events, "seconds": round(seconds, 2),
        "sometimes": dict(seen), "history": histories[-1] if histories else None, "violation": None,
    }  # fmt: skip
    if bad is None:
        missing = [what for what in seeds.expected() if not seen[what]]
        code = EXIT_INCONCLUSIVE if missing else EXIT_HOLDS
        verdict = f"[yellow]INCONCLUSIVE[/] never happened: {', '.join(missing)}" if missing else "[green]HOLDS[/]"
        human.print(verdict, highlight=False)
        return code, {**said, "exit_code": code, "missing": missing}
    human.print(f"seed {bad.seed}: {bad.violation}; making its {bad.events} events fewer", highlight=False)
    world, moves = seeds.shrunk(bad.seed)
    _show(world, moves, seeds.fault, seeds.guards, seeds.again(bad.seed), human, svg)
    said["violation"] = {"seed": bad.seed, "rule": bad.rule, "message": bad.violation, "moves": [str(m) for m in moves]}
    return EXIT_VIOLATION, {**said, "exit_code": EXIT_VIOLATION}


def _show(
    world: World,
    moves: tuple[Move, ...],
    fault: str | None,
    guards: str | None,
    replay: str,
    human: Console,
    svg: Path | None,
) -> str | None:
    """Print and draw a trace; gives the rule that it breaks."""
    trace = retold(world, moves, fault, guards or ("off" if fault else "on"), replay)
    human.print()
    human.print(trace_table(trace))
    if svg is not None:
        _write(str(svg), trace_svg(trace))
        human.print(f"drawn in {svg}", highlight=False)
    return trace.rule


def _write(where: str, text: str) -> None:
    if where == "-":
        sys.stdout.write(text + "\n")
        return
    try:
        Path(where).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise Usage(f"cannot write {where}: {error.strerror}") from None
