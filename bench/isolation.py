"""What isolation costs: the time inside each guard, and a fleet with the guards beside one without them.

    python -m bench.isolation [--pairs N] [--threads N]

First a fleet with a clock around every guard (`isolation_fleet.py`; the product has no timer): its share of the decode
steps, or of the request, that it belongs to. Then two fleets, the product and one that leaves the guards' work out,
take turns; the ratio has a 95 % interval. Shares say where time goes; the pair says what a user would notice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import load, table
from bench.engines import KEY, MODEL, CannotStart, until_answer
from bench.load import Answer, Prompts, Server
from bench.processes import Tree, environment
from bench.stats import Interval, ratio_interval, verdict

PROMPT, TOKENS = 1_000, 128
STREAMS, SHORT, SHORT_TOKENS = 16, 64, 64
SEED = 7
DECODE_BOUND, REQUEST_BOUND = 0.01, 0.02
FLAGS = ("--context", "2048", "--kv-pool-tokens", "12288", "--no-prefix-cache")
NO_END = {"logit_bias": {"0": -100, "2": -100}}

IN_DECODE = {"check of frames, before and after": "decode-frame-check", "zeroing": "zero", "drain": "drain"}
IN_REQUEST = {
    "prefill: digests": "prefill-digest",
    "prefill: frames": "prefill-frames",
    "prefill: receipt sealed": "prefill-receipt",
    "decode: frames written and checked": "decode-frames",
    "decode: digests": "decode-digest",
    "decode: receipt and digests compared": "decode-receipt",
}

Spans = Mapping[str, Sequence[Sequence[float]]]
Window = tuple[float, float]


def inside(spans: Spans, name: str, windows: Sequence[Window]) -> float:
    """Seconds of the calls of this name that began in one of the windows."""
    return sum(took for start, took in spans.get(name, ()) if any(low <= start <= high for low, high in windows))


@dataclass(frozen=True, slots=True)
class Share:
    """Parts of a whole, in seconds."""

    what: str
    whole: float
    parts: Mapping[str, float]
    bound: float

    @property
    def sum(self) -> float:
        """Of all parts, as a share."""
        return sum(self.parts.values()) / self.whole


@dataclass(frozen=True, slots=True)
class Costs:
    """All that is known of it."""

    shares: Sequence[Share]
    intervals: Mapping[str, Interval]

    def as_json(self) -> dict[str, Any]:
        """For the file of samples."""
        return {
            "shares": [{**asdict(share), "share": share.sum} for share in self.shares],
            "intervals": {name: asdict(interval) for name, interval in self.intervals.items()},
        }


@dataclass(frozen=True, slots=True)
class _Fleet:
    tree: Tree
    server: Server

    async def long(self, *seed: object) -> Answer:
        """One request alone."""
        return await load.ask(self.server, Prompts(SEED, *seed).of(PROMPT), TOKENS)

    async def wide(self, *seed: object) -> list[Answer]:
        """A full batch."""
        prompts = Prompts(SEED, "wide", *seed)
        return await load.together(self.server, [prompts.of(SHORT) for _ in range(STREAMS)], SHORT_TOKENS)


async def measure(pairs: int, threads: int, folder: Path, say: Callable[[str], None]) -> Costs:
    """Both measurements. Raises CannotStart, AskFailed; nothing is left running."""
    shares = await _shares(max(2, pairs // 2), threads, folder, say)
    return Costs(shares, await _pairs(pairs, threads, folder, say))


async def _shares(turns: int, threads: int, folder: Path, say: Callable[[str], None]) -> list[Share]:
    seen = Path(tempfile.mkdtemp(prefix="spans-", dir=folder))
    long: list[Window] = []
    wide: list[Window] = []
    say("isolation: a fleet with a clock around each guard")
    fleet = await _start("timed", threads, folder, seen)
    try:
        await fleet.long("warm")
        for turn in range(turns):
            answer = await fleet.long(turn)
            long.append((answer.asked, answer.events[-1]))
            answers = await fleet.wide(turn)
            wide.append((answers[0].asked, max(answer.events[-1] for answer in answers)))
            say(f"isolation: shares, {turn + 1} of {turns}")
    finally:
        fleet.tree.end()
    workers: list[Spans] = [json.loads(path.read_text()) for path in seen.glob("*.spans.json")]
    decode = next((spans for spans in workers if spans["decode-step"]), None)
    prefill = next((spans for spans in workers if spans["prefill-chunk"]), None)
    if decode is None or prefill is None:
        raise CannotStart(f"the workers left no clock's readings; log: {fleet.tree.log}")
    return [
        _of_decode("decode alone, after 1,000 tokens", decode, long),
        _of_decode(f"decode of {STREAMS} streams, after {SHORT} tokens", decode, wide),
        Share(
            f"a request of {PROMPT:,} tokens in, {TOKENS} out",
            sum(high - low for low, high in long),
            {what: inside(prefill, name, long) + inside(decode, name, long) for what, name in IN_REQUEST.items()},
            REQUEST_BOUND,
        ),
    ]


def _of_decode(what: str, spans: Spans, windows: Sequence[Window]) -> Share:
    parts = {part: inside(spans, name, windows) for part, name in IN_DECODE.items()}
    return Share(what, inside(spans, "decode-step", windows), parts, DECODE_BOUND)


async def _pairs(pairs: int, threads: int, folder: Path, say: Callable[[str], None]) -> dict[str, Interval]:
    say("isolation: the product, and a fleet without the guards")
    fleets: dict[str, _Fleet] = {}
    found: dict[str, list[dict[str, float]]] = {}
    try:
        for mode in ("plain", "bare"):
            fleets[mode] = await _start(mode, threads, folder, folder)
            await fleets[mode].long("warm")
        for turn in range(pairs):
            both: dict[str, dict[str, float]] = {mode: {} for mode in fleets}
            order = list(fleets) if turn % 2 == 0 else list(reversed(fleets))
            for mode in order:
                answer = await fleets[mode].long(turn)
                both[mode]["a request, seconds"] = answer.events[-1] - answer.asked
                both[mode]["decode alone, tokens/s"] = load.decode_rate([answer])
            for mode in order:
                answers = await fleets[mode].wide(turn)
                both[mode][f"{STREAMS} streams from prompt to end, tokens/s"] = load.summary(answers).rate
            for mode, values in both.items():
                found.setdefault(mode, []).append(values)
            said = ", ".join(f"{both['plain'][what] / both['bare'][what]:.3f}" for what in both["plain"])
            say(f"isolation: pair {turn + 1} of {pairs}: {said}")
    finally:
        for fleet in fleets.values():
            fleet.tree.end()
    together = list(zip(found["plain"], found["bare"], strict=True))
    return {what: ratio_interval([(ours[what], bare[what]) for ours, bare in together]) for what in together[0][0]}


async def _start(mode: str, threads: int, folder: Path, seen: Path) -> _Fleet:
    port = load.free_port()
    flags = ("--port", str(port), "--model-name", MODEL, "--threads", str(threads), *FLAGS)
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    tree = Tree(
        [sys.executable, "-m", "bench.isolation_fleet", mode, str(seen), *flags],
        environment(PAGEFENCE_API_KEYS=f"bench={KEY}", PYTHONPATH=path),
        folder / f"isolation-{mode}.log",
    )
    server = Server("127.0.0.1", port, MODEL, KEY, NO_END)
    try:
        await until_answer(f"the fleet {mode}", tree, server, 120.0)
    except BaseException:
        tree.end()
        raise
    return _Fleet(tree, server)


def tables(costs: Costs) -> list[tuple[list[str], list[list[str]]]]:
    """Heads and rows: a table of shares for each whole, and one of ratios."""
    found = []
    for share in costs.shares:
        met = verdict(share.sum < share.bound)
        parts = {**share.parts, f"together: target under {share.bound:.0%}, {met}": share.sum * share.whole}
        rows = [[part, f"{took * 1e3:,.1f}", f"{took / share.whole:.2%}"] for part, took in parts.items()]
        found.append(([f"{share.what} ({share.whole:,.1f} s)", "ms", "share"], rows))
    ratios = [
        [what, f"{each.ratio:.4f}", f"{each.low:.4f} to {each.high:.4f}", str(each.pairs)]
        for what, each in costs.intervals.items()
    ]
    found.append((["with the guards / without them", "ratio", "95 % interval", "pairs"], ratios))
    return found


def shown(costs: Costs) -> str:
    """For a terminal."""
    return "\n\n".join(table.text(head, rows) for head, rows in tables(costs))


_HOW = """\
Time inside each guard, by a clock around it in a worker of the benchmark's own, as a share of the decode steps or of
the request that it belongs to. Digests on decode run on a thread beside the steps, so their time is not all waited
for. Zeroing is decode's, of pages leased in that time."""
_PAIRED = """\
The fleet without guards checks and writes no frames, zeroes and digests nothing, and releases without a drain.
Student's t over the logarithms of the ratios of pairs that ran one right after the other."""


def section(costs: Costs) -> str:
    """For the page."""
    shown_tables = (table.markdown(head, rows) for head, rows in tables(costs))
    return "\n\n".join(["## What isolation costs", _HOW, *shown_tables, _PAIRED])


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pagefence-bench-"))
    costs = asyncio.run(measure(options.pairs, options.threads, folder, lambda text: print(text, file=sys.stderr)))
    print(shown(costs))


if __name__ == "__main__":
    main()
