"""The rows of the table, the targets, and the rounds that fill them: engines take turns inside every row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.engines import Running
from bench.load import AskFailed, Prompts, arrivals
from bench.stats import Target

SEED = 20260819
STREAMS = (1, 4, 16, 64)
FIRSTS = (100, 1_000, 4_000)
PROMPT = 16
"""Tokens of a prompt in the decode rows: short, so that all streams soon generate."""
SLOW_S = 30.0
"""A row that takes an engine longer than this is measured in the first round only."""

Sense = Literal["more", "less"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `sense`: which way is better."""

    name: str
    unit: str
    sense: Sense
    kind: Literal["decode", "first", "mixed", "once"]
    size: int = 0


ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        *(Row(f"decode-{n}", "tokens/s", "more", "decode", n) for n in STREAMS),
        *(Row(f"first-{n}", "s", "less", "first", n) for n in FIRSTS),
        Row("mixed-rate", "tokens/s", "more", "mixed"),
        Row("mixed-first-p50", "s", "less", "mixed"),
        Row("mixed-first-p95", "s", "less", "mixed"),
        Row("mixed-between-p95", "s", "less", "mixed"),
        Row("start-up", "s", "less", "once"),
        Row("first-start", "s", "less", "once"),
        Row("peak-memory", "GiB", "less", "once"),
        Row("idle", "cores", "less", "once"),
    )
}

ABOUT: Mapping[str, str] = {
    "decode": "decode, streams: {size}",
    "first": "first token, {size:,} tokens",
    "mixed-rate": "mixed load, tokens/s",
    "mixed-first-p50": "mixed load, first token p50",
    "mixed-first-p95": "mixed load, first token p95",
    "mixed-between-p95": "mixed load, between tokens p95",
    "start-up": "start to first answer",
    "first-start": "the same, nothing compiled before",
    "peak-memory": "peak memory (PSS)",
    "idle": "idle, cores used",
}


def title(row: Row) -> str:
    """How a row is called in the table."""
    return (ABOUT.get(row.name) or ABOUT[row.kind]).format(size=row.size)


def targets() -> list[Target]:
    """What the project wants of itself. vLLM is held to both of its formats: the faster one is the peer that counts."""
    ours, quantised, llama = "pagefence", "pagefence-quantised", "llama"
    found = []
    for peer in ("vllm", "vllm-float32"):
        found += [
            Target("decode-1", ours, peer, "at least", 1.7),
            Target("decode-1", quantised, peer, "at least", 3.0),
            Target("decode-16", ours, peer, "at least", 1.5),
            Target("first-1000", ours, peer, "at most", 0.6),
            Target("start-up", ours, peer, "at most", 0.2),
        ]
    return [
        *found,
        Target("decode-1", quantised, llama, "at least", 1.0),
        Target("decode-16", quantised, llama, "at least", 1.0),
        Target("first-1000", ours, llama, "at most", 1.0),
        Target("first-1000", quantised, llama, "at most", 1.0),
    ]


@dataclass(slots=True)
class Samples:
    """Every figure by row, engine and round, and why one is missing."""

    figures: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    missing: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, row: str, engine: str, turn: int, value: float) -> None:
        """One figure."""
        self.figures.setdefault(row, {}).setdefault(engine, {})[turn] = value

    def lack(self, row: str, engine: str, why: str) -> None:
        """One that could not be had."""
        self.missing.setdefault(row, {})[engine] = why

    def of(self, row: str, engine: str) -> dict[int, float]:
        """By round."""
        return self.figures.get(row, {}).get(engine, {})


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is asked. `tokens`: of an answer in the decode rows."""

    rounds: int = 3
    tokens: int = 64
    mixed_requests: int = 16
    mixed_per_second: float = 1.0
    slow_s: float = SLOW_S


QUICK = Plan(rounds=1, tokens=24, mixed_requests=6, mixed_per_second=1.0, slow_s=20.0)


def steps(names: Sequence[str]) -> list[tuple[Row, ...]]:
    """What is measured at a time: each row alone, but the rows of the mixed load come of one measurement."""
    rows = [ROWS[name] for name in names]
    mixed = tuple(row for row in rows if row.kind == "mixed")
    alone = [(row,) for row in rows if row.kind in ("decode", "first")]
    return [*alone, *([mixed] if mixed else [])]


async def measure(
    running: Sequence[Running], names: Sequence[str], plan: Plan, samples: Samples, say: Callable[[str], None]
) -> None:
    """All rounds. Within a row engines take turns, in another order each round; one that fails a row says why."""
    slow: set[tuple[str, str]] = set()
    for engine in running:
        if engine.stops:
            engine.tree.stop()
    for turn in range(plan.rounds):
        for group in steps(names):
            for place in range(len(running)):
                engine = running[(place + turn) % len(running)]
                name, row = engine.engine.name, group[0]
                if (row.name, name) in slow:
                    continue
                began = time.perf_counter()
                engine.tree.go_on()
                try:
                    await _one(engine, group, turn, plan, samples)
                    told = ", ".join(f"{samples.of(r.name, name)[turn]:.3g} {r.unit}" for r in group)
                except AskFailed as error:
                    told = f"not measured: {error}"
                    for each in group:
                        samples.lack(each.name, name, str(error))
                finally:
                    engine.weigh()
                    took = time.perf_counter() - began
                    await engine.settle()
                    if engine.stops:
                        engine.tree.stop()
                if took > plan.slow_s:
                    slow.add((row.name, name))
                what = title(row) if row.kind != "mixed" else "mixed load"
                say(f"round {turn + 1}/{plan.rounds}  {what:<30}{name:<22}{told}  ({took:.0f} s)")
    for engine in running:
        engine.tree.go_on()


async def _one(engine: Running, group: Sequence[Row], turn: int, plan: Plan, samples: Samples) -> None:
    row, name = group[0], engine.engine.name
    # The same prompts for every engine, and others in every round and row.
    prompts = Prompts(SEED, turn, row.name)
    await engine.asked.rate([Prompts(SEED, turn, "warm", row.name).of(PROMPT)], 4)  # what was asleep is awake
    if row.kind == "decode":
        if row.size > engine.engine.most:
            raise AskFailed(f"asked for {engine.engine.most} streams at most")
        batch = [prompts.of(PROMPT) for _ in range(row.size)]
        samples.add(row.name, name, turn, await engine.asked.rate(batch, plan.tokens))
    elif row.kind == "first":
        samples.add(row.name, name, turn, await engine.asked.first(prompts.of(row.size)))
    else:
        schedule = arrivals(SEED + turn, plan.mixed_requests, plan.mixed_per_second)
        seen = await engine.asked.mix(schedule, prompts)
        values = {
            "mixed-rate": seen.rate,
            "mixed-first-p50": seen.first_p50,
            "mixed-first-p95": seen.first_p95,
            "mixed-between-p95": seen.between_p95,
        }
        for each in group:
            samples.add(each.name, name, turn, values[each.name])
