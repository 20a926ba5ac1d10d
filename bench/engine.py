"""PageFence beside other engines on this machine: one model, one run, one table, and whether the targets are met.

    python -m bench.engine                                     all of it (sets the peers up first)
    python -m bench.engine --quick --engines pagefence,llama   a try, minutes
    python -m bench.engine --only decode-1,first-1000 --rounds 5
    python -m bench.engine --only isolation                    what the guards cost, no other engine
    python -m bench.engine --write docs/reference/performance.md

Rows: {rows}, handoff, isolation.
Engines: {engines}.

All engines are up at once, idle or stopped, and take turns inside every row, so that a slow minute of the machine slows
each of them. Peers are set up by `python -m bench.peers`; --vllm-python, --llama-server and --model-folder (or the
variables PAGEFENCE_VLLM_PYTHON, PAGEFENCE_LLAMA_SERVER, PAGEFENCE_MODEL_FOLDER) name those that exist elsewhere. An
engine that cannot start says why and is left out. Ctrl-C ends everything that was started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench import engines as known
from bench import handoff, isolation, machine, peers, report, rows
from bench.engines import CannotStart, Engine, Running
from bench.rows import ROWS, Plan, Samples, targets

IDLE_S = 3.0
OTHERS = ("handoff", "isolation")


def say(text: str) -> None:
    """A line of progress."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


async def run_engines(
    chosen: Sequence[Engine], names: Sequence[str], plan: Plan, places: peers.Peers, folder: Path, samples: Samples
) -> None:
    """Start all, one after the other, measure, end all."""
    running: list[Running] = []
    try:
        for engine in chosen:
            try:
                running.append(await _started(engine, names, plan, places, folder, samples))
                await _idle(running[-1], samples)
            except (CannotStart, TimeoutError, OSError) as error:
                say(f"{engine.name} is left out: {error}")
                for name in names:
                    samples.lack(name, engine.name, str(error) or type(error).__name__)
        await rows.measure(running, names, plan, samples, say)
        for engine_up in running:
            samples.add("peak-memory", engine_up.engine.name, 0, engine_up.peak_bytes / 2**30)
    finally:
        for engine_up in running:
            say(f"ending {engine_up.engine.name}")
            engine_up.tree.end()


async def _started(
    engine: Engine, names: Sequence[str], plan: Plan, places: peers.Peers, folder: Path, samples: Samples
) -> Running:
    """Started as often as its start is measured; the last one stays."""
    mark = peers.compiled(engine.name)
    cold = engine.kind == "vllm" and not mark.exists()
    times = min(engine.starts, plan.rounds) if "start-up" in names else 1
    up: Running | None = None
    for turn in range(times + (cold and "start-up" in names)):
        if up is not None:
            up.tree.end()
        say(f"starting {engine.name}")
        up = await known.start(engine, places, folder)
        first = cold and turn == 0
        samples.add("first-start" if first else "start-up", engine.name, turn, up.start_s)
        say(f"{engine.name} answered after {up.start_s:.1f} s{', nothing compiled before' if first else ''}")
    if engine.kind == "vllm":
        mark.touch()
    assert up is not None
    up.weigh()
    return up


async def _idle(up: Running, samples: Samples) -> None:
    """What it uses while nobody asks it anything; one that spins is stopped at once."""
    await up.settle()
    up.idle_cores = await up.cores(IDLE_S)
    samples.add("idle", up.engine.name, 0, up.idle_cores)
    if up.stops:
        up.tree.stop()
        say(f"{up.engine.name} uses {up.idle_cores:.2f} cores while idle: stopped while others are measured")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; wrong names are refused with those that there are."""
    all_rows, all_engines = (*ROWS, *OTHERS), tuple(known.engines(1))
    said = (__doc__ or "").format(rows=", ".join(ROWS), engines=", ".join(all_engines))
    parser = argparse.ArgumentParser(
        prog="python -m bench.engine", description=said, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="these rows; several or with commas")
    parser.add_argument("--engines", nargs="+", default=[], metavar="NAME", help=f"default: {', '.join(known.DEFAULT)}")
    parser.add_argument("--rounds", type=int, help="rounds of every row (3)")
    parser.add_argument("--quick", action="store_true", help="one round, short answers: to try the script, no figures")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="for every engine (all cores)"
    )
    parser.add_argument("--pairs", type=int, help="of isolation: runs with and without the guards (8)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page, keeping what is by hand in it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="where engines' logs go (a new one in /tmp)")
    for flag, name in (("vllm-python", "PYTHON"), ("model-folder", "FOLDER"), ("llama-server", "FILE")):
        variable = f"PAGEFENCE_{flag.replace('-', '_').upper()}"
        parser.add_argument(f"--{flag}", type=Path, metavar=name, default=_named(variable), help=f"also {variable}")
    options = parser.parse_args(arguments)
    options.only = _names(parser, "row", options.only, all_rows) or list(all_rows)
    options.engines = _names(parser, "engine", options.engines, all_engines) or list(known.DEFAULT)
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if options.pairs is not None and options.pairs < 2:
        parser.error("--pairs must be 2 or more: an interval needs two")
    return options


def _named(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None


def _names(parser: argparse.ArgumentParser, what: str, said: Sequence[str], known_names: Sequence[str]) -> list[str]:
    names = [name for word in said for name in word.split(",") if name]
    for name in names:
        if name not in known_names:
            parser.error(f"no {what} {name!r}; there are {', '.join(known_names)}")
    return [name for name in known_names if name in names]  # in the order of the table


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, set up, measure, print, write. 130 after Ctrl-C."""
    options = parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell in the background had us ignore the first
        signal.signal(number, signal.default_int_handler)
    try:
        return _run(options)
    except KeyboardInterrupt:
        say("interrupted; everything that was started has ended")
        return 130
    except peers.CannotSetUp as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    began = time.monotonic()
    plan = rows.QUICK if options.quick else Plan()
    plan = replace(plan, rounds=options.rounds or plan.rounds)
    names = [name for name in options.only if name in ROWS]
    chosen = [known.engines(options.threads)[name] for name in options.engines] if names else []
    places = peers.located(options.vllm_python, options.model_folder, options.llama_server)
    needed = {"model", *(part for engine in chosen for part in engine.needs)}
    peers.set_up([part for part in peers.PARTS if part in needed] if chosen else [], places, say)
    folder = options.logs or Path(tempfile.mkdtemp(prefix="pagefence-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    here = machine.Description.here()
    say(f"{here.cores} cores, load {here.load:.1f}; logs in {folder}")
    samples, sections = Samples(), list[str]()
    extra: dict[str, object] = {}
    run = None
    if chosen:
        say("limits of this machine")
        limits = machine.measure(options.threads)
        shape = machine.Shape.of(places.model, places.gguf)
        told = known.versions(options.engines, places)
        asyncio.run(run_engines(chosen, names, plan, places, folder, samples))
        run = report.Run(
            time.strftime("%Y-%m-%d"), _command(), here, limits, shape, told, chosen, names, plan, samples, targets()
        )
        again = machine.measure(options.threads)
        run.limits = limits.best(again)
        print(f"\n{report.comparison(run)}\n\n{report.lacking(run)}\n\n{report.against(run)}\n\n{report.limits(run)}")
    if "handoff" in options.only:
        say("hand-off")
        found = handoff.measure(rounds=3 if options.quick else 15)
        sections.append(f"## Hand-off\n\n{handoff.shown(found, markdown=True)}")
        extra["handoff"] = {name: asdict(each) for name, each in found.items()}
        print(f"\n{handoff.shown(found)}")
    if "isolation" in options.only:
        pairs = options.pairs or (2 if options.quick else 8)
        costs = asyncio.run(isolation.measure(pairs, options.threads, folder, say))
        sections.append(isolation.section(costs))
        extra["isolation"] = costs.as_json()
        print(f"\n{isolation.shown(costs)}")
    seconds = time.monotonic() - began
    if options.json:
        _write_json(options.json, run, samples, extra, seconds)
    if options.write:
        if run is None:
            say(f"{options.write} is left as it is: no engine was measured")
        else:
            run.seconds, run.sections = seconds, sections
            old = options.write.read_text() if options.write.exists() else ""
            options.write.write_text(report.page(run, old))
            say(f"wrote {options.write}")
    say(f"{seconds / 60:.1f} minutes")
    return 0


def _command() -> str:
    """As it was typed, without what only this machine knows."""
    hidden = ("--vllm-python", "--model-folder", "--llama-server", "--logs", "--json", "--write")
    words, skip = [], False
    for word in sys.argv[1:]:
        if skip or word.partition("=")[0] in hidden:
            skip = not skip and word in hidden
            continue
        words.append(word)
    return " ".join(["python -m bench.engine", *words])


def _write_json(path: Path, run: report.Run | None, samples: Samples, extra: dict[str, object], seconds: float) -> None:
    body: dict[str, object] = {"seconds": seconds, "figures": samples.figures, "missing": samples.missing, **extra}
    if run is not None:
        body |= {
            "date": run.date,
            "machine": run.machine.as_json(),
            "limits": asdict(run.limits),
            "versions": dict(run.versions),
            "plan": asdict(run.plan),
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
