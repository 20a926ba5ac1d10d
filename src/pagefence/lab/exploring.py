"""What `pagefence explore` does once its flags are read: search, play, replay or check, and show what came of it."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from pagefence.files import READABLE, write_atomically
from pagefence.lab import faults
from pagefence.lab.randomly import Seeds, play_seeds
from pagefence.mistakes import EXIT_INCONCLUSIVE, Usage
from pagefence.protocol.invariants import RULES
from pagefence.sim.checkpoint import Checkpoint, code_version
from pagefence.sim.correspondence import check_recordings, describe
from pagefence.sim.explorer import Progress, Search, explore, moves_of
from pagefence.sim.moves import Move
from pagefence.sim.report import FAIRNESS, Explored, as_json, rate, reached, summary
from pagefence.sim.svg import trace_svg
from pagefence.sim.table import trace_table
from pagefence.sim.watch import retold
from pagefence.sim.world import World
from pagefence.sim.worlds import WORLDS, Scenery
from pagefence.ticker import Ticker

EXIT_HOLDS, EXIT_VIOLATION = 0, 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What every way of exploring needs to know."""

    human: Console
    worlds: tuple[str, ...] = ()
    fault: str | None = None
    guards: str | None = None
    rules: str | None = None
    raw: bool = False
    svg: Path | None = None

    @property
    def in_force(self) -> str:
        """Guards as they are said: all without a fault, and with one those that do not hide it."""
        if self.guards is not None:
            return self.guards
        return "off" if self.fault else "on"


Answer = tuple[int, dict[str, Any]]


def check_recorded(asked: Asked, folder: Path) -> Answer:
    """Was every step of a real fleet a legal one? Raises BadRecordings."""
    decisions = faults.find(asked.fault).decisions(asked.in_force) if asked.fault else None
    checked = check_recordings(folder, decisions)
    asked.human.print(describe(checked), highlight=False, markup=False)
    code = EXIT_HOLDS if checked.legal else EXIT_VIOLATION
    return code, {
        "schema_version": 1, "exit_code": code, "legal": checked.legal, "steps": dict(checked.steps),
        "outcomes": dict(checked.outcomes), "rooms": checked.rooms, "unread": checked.unread,
        "crashes": checked.crashes, "at_rest": checked.at_rest,
        "illegal": None if checked.illegal is None else str(checked.illegal),
    }  # fmt: skip


def chosen_worlds(asked: Asked) -> list[tuple[World, Scenery]]:
    """What to search. Raises Usage, UnknownFault, UnknownGuard."""
    unknown = [name for name in asked.worlds if name not in WORLDS]
    if unknown:
        raise Usage(f"no world {unknown[0]!r}; worlds are {', '.join(WORLDS)}")
    watched = frozenset(RULES)
    if asked.rules is not None:
        watched = frozenset(rule.strip() for rule in asked.rules.split(","))
        if not watched <= set(RULES):
            raise Usage(f"no rule {sorted(watched - set(RULES))[0]!r}; rules are {', '.join(RULES)}")
    named = [WORLDS[name] for name in asked.worlds]
    if asked.fault is None:
        sceneries = named or [scenery for scenery in WORLDS.values() if not scenery.long]
        return [(World(s.bounds, watched=watched, reduced=not asked.raw), s) for s in sceneries]
    fault = faults.find(asked.fault)
    small = fault.small_world(asked.in_force)
    if not small.watched & watched:
        raise Usage(f"nothing would be watched: with {asked.fault}, a guard that {asked.rules} speaks of is left out")
    small = replace(small, watched=small.watched & watched, reduced=not asked.raw)
    return [(replace(small, bounds=s.bounds), s) for s in named or [Scenery(fault.bounds, fault.summary)]]


def search_all(asked: Asked, search: Search, resume: Path | None) -> Answer:
    """Every interleaving of every chosen world, until the first violation. Raises Usage, BadCheckpoint, CannotWrite."""
    worlds, human, fault = chosen_worlds(asked), asked.human, asked.fault
    if resume is not None and len(worlds) > 1:
        raise Usage("--resume keeps one search: name its world with --world")
    done: list[Explored] = []
    with Ticker(Console(stderr=True)) as ticker:
        for world, scenery in worlds:
            about = f"{world.bounds!r} {fault} {asked.in_force} {sorted(world.watched)} {world.reduced} {search.order}"
            checkpoint = None if resume is None else Checkpoint(resume, f"{about} {code_version()}")

            def tell(p: Progress, name: str = world.bounds.name) -> None:
                ticker(f"{name}: {len(p.known):,} states, {len(p.frontier):,} to go, {rate(p):,.0f}/s", p.expanded)

            try:
                result = explore(world, search, tell, checkpoint)
            except KeyboardInterrupt:
                kept = f"{resume} keeps what was done, the same command goes on" if resume else "--resume FILE keeps it"
                ticker.say(f"stopped in {world.bounds.name}; {kept}")
                raise
            done.append(Explored(world.bounds, scenery.about, result, fault is None))
            if done[-1].result.found is not None:
                break
    human.print(summary(done))
    human.print()
    if all(one.result.rests for one in done):
        human.print(f"eventually: from every state to rest, where {FAIRNESS}", highlight=False)
    if fault is None:
        human.print(reached(done))
    found = done[-1].result.found
    if found is not None:
        if fault is not None and found.rule not in faults.find(fault).rules:
            human.print(f"[yellow]for another reason than its own[/] ({', '.join(faults.find(fault).rules)})")
        _show(asked, worlds[len(done) - 1][0], found.path, _again(asked, done[-1].bounds.name, found.numbers))
    code = _code(done)
    if code == EXIT_INCONCLUSIVE:
        open_ = [one for one in done if one.verdict != "HOLDS"]
        why = "; ".join(f"{one.bounds.name}: {_unseen(one)}" for one in open_)
        human.print(f"[yellow]INCONCLUSIVE[/] {why}", highlight=False)
    return code, as_json(done, code, {"fault": fault, "guards": asked.in_force})


def _unseen(one: Explored) -> str:
    return f"never happened: {', '.join(one.missing)}" if one.result.complete else "not finished"


def _code(done: list[Explored]) -> int:
    if any(one.result.found is not None for one in done):
        return EXIT_VIOLATION
    return EXIT_HOLDS if all(one.verdict == "HOLDS" for one in done) else EXIT_INCONCLUSIVE


def _again(asked: Asked, world: str, numbers: Iterable[int]) -> str:
    """The command that replays it: with whatever decides which moves there are and which rule ends the path."""
    flags = ["--fault", asked.fault, "--guards", asked.in_force] if asked.fault else []
    flags += ["--world", world] if asked.worlds or not asked.fault else []
    flags += ["--rules", "".join(asked.rules.split())] if asked.rules else []
    flags += ["--raw"] if asked.raw else []
    return replay_command(numbers, *flags)


def replay_command(numbers: Iterable[int], *flags: str) -> str:
    """The command that plays the moves of these numbers, with flags that choose the world; for a shell."""
    return shlex.join(["pagefence", "explore", *flags, "--path", ".".join(map(str, numbers))])


def replay(asked: Asked, path: str) -> Answer:
    """The moves that a path names. Raises Usage, NoSuchPath, CannotWrite."""
    worlds = chosen_worlds(asked)
    if len(worlds) != 1:
        raise Usage("--path belongs to one world: name it with --world or --fault")
    world = worlds[0][0]
    try:
        numbers = [int(part) for part in path.split(".") if part]
    except ValueError:
        raise Usage(f"{path[:60]!r} is no path; a path is numbers and dots, as in 0.3.1") from None
    moves = tuple(moves_of(world, numbers))
    rule = _show(asked, world, moves, _again(asked, world.bounds.name, numbers))
    code = EXIT_HOLDS if rule is None else EXIT_VIOLATION
    return code, {"schema_version": 1, "exit_code": code, "moves": [str(move) for move in moves], "rule": rule}


def play_random(asked: Asked, seeds: Seeds) -> Answer:
    """Seeded histories, until the first violation, which is made smaller. Raises LostProcess, CannotWrite."""
    human = asked.human
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
    _show(asked, world, moves, seeds.again(bad.seed))
    said["violation"] = {"seed": bad.seed, "rule": bad.rule, "message": bad.violation, "moves": [str(m) for m in moves]}
    return EXIT_VIOLATION, {**said, "exit_code": EXIT_VIOLATION}


def _show(asked: Asked, world: World, moves: tuple[Move, ...], again: str) -> str | None:
    """Print and draw a trace; gives the rule that it breaks."""
    trace = retold(world, moves, asked.fault, asked.in_force, again)
    asked.human.print()
    asked.human.print(trace_table(trace), crop=False)
    if asked.svg is not None:
        write(asked.svg, trace_svg(trace))
        asked.human.print(f"drawn in {asked.svg}", highlight=False)
    return trace.rule


def write(where: str | Path, text: str) -> None:
    """Text for whoever asked for it, with one line end; - is standard output. Raises CannotWrite."""
    text = text.rstrip() + "\n"
    if str(where) == "-":
        sys.stdout.write(text)
    else:
        write_atomically(Path(where), text.encode(), READABLE)
