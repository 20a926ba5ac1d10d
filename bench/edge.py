"""What the edge costs, beside LiteLLM's proxy and sglang-router, in front of one and the same upstream.

    python -m bench.edge [--seconds 8] [--rounds 3] [--only edge,router] [--parts plain,streams,long,late] [--quick]

plain    nginx gives a constant answer, wrk asks with 200-token prompts at 1, 16 and 128 connections
streams  an upstream drips 200 chunks, 5 ms apart; the time to the first chunk and the processor time for each chunk
long     prompts of 100,000 and 1,000,000 tokens through the edge: its decision and its memory (`bench.edge_long`)
late     what others wait while bodies of 1 MiB come one after another

Who is who: `bench.edge_who`. Everybody has one worker process. Proxies take turns within a round, and medians over the
rounds are shown; `added` is the difference of medians to asking the upstream directly. Processor time is what the
processes used, user and system: of all figures it suffers least from what else the machine does. Sets its peers up
(`bench.edge_peers`). `--quick` is for trying: seconds for each part, no figure worth keeping.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import edge_long, edge_peers
from bench.edge_load import ANSWER, CHUNKS, GAP_S, NGINX, WITHOUT, WRK, Row, body, dripped, started, wrk
from bench.edge_who import EVERYBODY, KEY, command
from bench.load import free_port
from bench.peers import CannotSetUp
from bench.processes import Tree
from bench.stats import median
from bench.table import figure, markdown, text

CONNECTIONS = (1, 16, 128)
PARTS = ("plain", "streams", "long", "late")


class Measured(dict[tuple[str, str], list[Row]]):
    """Rows of all rounds by proxy and load."""

    def of(self, who: str, load: str, name: str) -> float | None:
        """The median over the rounds."""
        return median([getattr(row, name) for row in self.get((who, load), [])])


@dataclass(frozen=True, slots=True)
class Load:
    """How much is asked. `sizes`: tokens of long prompts; `times`: of each."""

    parts: Sequence[str] = PARTS
    rounds: int = 3
    seconds: float = 8.0
    connections: Sequence[int] = CONNECTIONS
    streams: Sequence[int] = (1, 16)
    sizes: Sequence[int] = (100_000, 1_000_000)
    times: int = 20


Tables = list[tuple[Sequence[str], list[list[str]]]]


def measure(who: Sequence[str], load: Load, config: Path | None, folder: Path) -> Tables:
    """Everything that was asked for, as tables."""
    plain, uncounted, found = free_port(), free_port(), Tables()
    conf = NGINX.format(folder=folder, port=plain, answer=ANSWER, uncounted=uncounted, without=WITHOUT)
    (folder / "nginx.conf").write_text(conf)
    nginx = [str(edge_peers.tool("nginx")), "-e", str(folder / "nginx.log"), "-c", str(folder / "nginx.conf")]

    def start(name: str, line: Sequence[str], port: int) -> contextlib.AbstractContextManager[Tree]:
        _say(f"{name}: starting")
        return started(name, line, port, folder, edge_long.CHAT)

    with start("nginx", nginx, plain):
        if {"plain", "streams"} & set(load.parts):
            found += tables(against_others(who, load, config, folder, plain), who, load)
        if "long" in load.parts:
            long = edge_long.rows(load.sizes, load.times, uncounted, folder, start)
            found.append((edge_long.HEAD, [_shown(row) for row in long]))
        if "late" in load.parts:
            late = edge_long.late_rows(load.seconds, uncounted, folder, start)
            found.append((edge_long.LATE_HEAD, [_shown(row) for row in late]))
    return found


def against_others(who: Sequence[str], load: Load, config: Path | None, folder: Path, plain: int) -> Measured:
    """Plain answers and streams, with every proxy that is named; "direct" is always there."""
    measured, script, drip = Measured(), folder / "post.lua", free_port()
    script.write_text(WRK.format(body=body(), key=KEY))
    upstreams = {"plain": plain} if "plain" in load.parts else {}
    with contextlib.ExitStack() as running:
        if "streams" in load.parts:
            upstreams["drip"] = drip
            dripping = [sys.executable, "-m", "bench.edge_stream", str(drip), str(CHUNKS), str(GAP_S)]
            running.enter_context(started("dripping", dripping, drip, folder, edge_long.CHAT))
        places: dict[str, dict[str, tuple[int, Tree | None]]] = {
            "direct": {kind: (port, None) for kind, port in upstreams.items()}
        }
        for each in who:
            places[each] = {}
            for kind, upstream in upstreams.items():
                port = free_port()
                _say(f"{each}: starting in front of {kind}")
                line = command(each, port, upstream, folder, config)
                begun = started(f"{each}-{kind}", line, port, folder, edge_long.CHAT)
                places[each][kind] = (port, running.enter_context(begun))
        for number in range(load.rounds):
            for each, kinds in places.items():
                _say(f"round {number + 1} of {load.rounds}: {each}")
                for kind, (port, tree) in kinds.items():
                    for at_once in load.connections if kind == "plain" else load.streams:
                        one = asked(kind, port, at_once, load, script, tree)
                        measured.setdefault((each, f"{kind} {at_once}"), []).append(one)
    return measured


def asked(kind: str, port: int, at_once: int, load: Load, script: Path, tree: Tree | None) -> Row:
    """One load on one proxy."""
    if kind == "drip":
        return dripped(port, at_once, 2, tree)
    wrk(port, at_once, 1, script, tree)  # warm
    return wrk(port, at_once, load.seconds, script, tree)


def _shown(row: list[str]) -> list[str]:
    _say(": ".join((row[0], ", ".join(row[1:]))))
    return row


def tables(measured: Measured, who: Sequence[str], load: Load) -> Tables:
    """Plain answers, then streams; ratios are the edge to the others."""
    plain, streamed = list[list[str]](), list[list[str]]()
    for at_once in load.connections if "plain" in load.parts else ():
        key = f"plain {at_once}"
        for each in ("direct", *who):
            p50, base = measured.of(each, key, "p50_s"), measured.of("direct", key, "p50_s")
            p99, base99 = measured.of(each, key, "p99_s"), measured.of("direct", key, "p99_s")
            rate, ours = measured.of(each, key, "rate"), measured.of("edge", key, "rate")
            errors = sum(row.errors for row in measured.get((each, key), []))
            plain.append(
                [
                    f"{each}, {at_once}", figure(rate), figure(_less(p50, base, 1e3)), figure(_less(p99, base99, 1e3)),
                    figure(_times(measured.of(each, key, "cpu_s"), 1e6)), figure(_ratio(ours, rate)), str(errors),
                ]
            )  # fmt: skip
    for at_once in load.streams if "streams" in load.parts else ():
        key = f"drip {at_once}"
        for each in ("direct", *who):
            p50, base = measured.of(each, key, "p50_s"), measured.of("direct", key, "p50_s")
            cpu, ours = measured.of(each, key, "cpu_s"), measured.of("edge", key, "cpu_s")
            cells = [figure(_less(p50, base, 1e3)), figure(_times(cpu, 1e6)), figure(_ratio(cpu, ours))]
            streamed.append([f"{each}, {at_once}", *cells])
    found: Tables = [
        (["plain, connections", "requests/s", "p50 added ms", "p99 added ms", "cpu us", "edge is x", "errors"], plain),
        (["streams at once", "first chunk added ms", "cpu us a chunk", "x edge"], streamed),
    ]
    return [(head, rows) for head, rows in found if rows]


def _less(value: float | None, base: float | None, by: float) -> float | None:
    return None if value is None or base is None else (value - base) * by


def _times(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> int:
    """Parse, set up, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each run of wrk")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=20, help="each long prompt")
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas")
    parser.add_argument("--only", help=f"proxies, with commas, of {','.join(EVERYBODY)}")
    parser.add_argument("--config", type=Path, help="an edge.toml of your own for the rows edge and noscan")
    parser.add_argument("--write", type=Path, help="a Markdown file for the tables")
    parser.add_argument("--quick", action="store_true", help="try it: a second for each, small prompts")
    options = parser.parse_args()
    load = Load(options.parts.split(","), options.rounds, options.seconds, times=options.times)
    if options.quick:
        load = Load(load.parts, 1, 1.0, (1, 16), (1,), (20_000,), 2)
    who = (options.only or ("edge,proxy" if options.quick else ",".join(EVERYBODY))).split(",")
    unknown = [*set(who) - set(EVERYBODY), *set(load.parts) - set(PARTS)]
    if unknown:
        parser.error(f"there is no {unknown[0]}; proxies are {', '.join(EVERYBODY)}, parts {', '.join(PARTS)}")
    busy = os.getloadavg()[0]
    try:
        edge_peers.set_up(_say, {*who, *edge_peers.TOOLS, *(() if options.quick else (edge_peers.COUNTERS,))})
        with tempfile.TemporaryDirectory(prefix="pagefence-bench-") as folder:
            Path(folder).chmod(0o755)  # nginx' worker is nobody
            shown = measure(who, load, options.config, Path(folder))
    except CannotSetUp as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    said = f"{os.cpu_count()} cores, load {busy:.1f} before it began, {load.rounds} rounds of {load.seconds:g} s"
    print("\n\n".join(text(head, rows) for head, rows in shown), f"\n{said}", sep="\n")
    if options.write is not None:
        parts = [f"Measured by `make bench-edge`: {said}.", *(markdown(head, rows) for head, rows in shown)]
        options.write.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
