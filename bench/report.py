"""What a run found, as Markdown. Pure: all figures come in.

What is written by hand stands between two marks and survives a new run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench import table
from bench.engines import Engine
from bench.machine import Description, Limits, Shape
from bench.rows import FIRSTS, PROMPT, ROWS, STREAMS, Plan, Samples, title
from bench.stats import Target, median, paired_ratio, verdict
from bench.table import figure

BEGIN, END = "<!-- by hand -->", "<!-- end of what is by hand -->"
NOTHING = "Nothing yet."


@dataclass(slots=True)
class Run:
    """Everything that one run has to say."""

    date: str
    command: str
    machine: Description
    limits: Limits
    shape: Shape
    versions: Mapping[str, str]
    engines: Sequence[Engine]
    rows: Sequence[str]
    plan: Plan
    samples: Samples
    targets: Sequence[Target]
    seconds: float = 0.0
    sections: list[str] = field(default_factory=list)


def page(run: Run, old: str = "") -> str:
    """The page, with the hand-written part of the `old` one."""
    parts = [
        "# Performance",
        OPENING,
        about(run),
        "## Engines",
        comparison(run, markdown=True),
        lacking(run),
        "## Targets",
        against(run, markdown=True),
        "## Limits of this machine",
        limits(run, markdown=True),
        LIMITS,
        *run.sections,
        "## How it is measured",
        HOW.format(rounds=run.plan.rounds, tokens=run.plan.tokens, prompt=PROMPT, requests=run.plan.mixed_requests),
        "## Why",
        f"{BEGIN}\n\n{by_hand(old)}\n\n{END}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


OPENING = """\
Written by `make bench-engine`; only what stands under *Why* is written by hand and survives the next run. All figures
come from one run on one machine, with engines taking turns inside every row; they say nothing of other machines. In
brackets: the share of [this machine's limit](#limits-of-this-machine)."""

LIMITS = """\
The limit of decode is the smaller of two rates: all weights read once a step in the format served, at the speed at
which all cores read memory; and every weight multiplied once for each stream, at the faster of the two products. The
limit of a first token is the products of the prompt at that rate. A figure above 100 % means that the engine multiplies
in a format with faster products (integers), that caches held part of the weights, or that the machine was busy while
its limit was measured."""

HOW = """\
Medians of {rounds} rounds, one where the table says so; ratios of targets are medians of the ratios of single rounds.
Prompts are random token ids, the same for every engine, never repeated; answers are greedy and do not end early.

- *Decode*: n requests of {prompt} tokens at once, {tokens} tokens each. Tokens after each stream's first, over the time
  from the first token of all to the last; an engine that takes prompts one by one meanwhile pays for it.
- *First token*: from before the connection is opened until the first streamed event with a token; in process, until
  the first step is done.
- *Mixed load*: {requests} requests at Poisson arrivals, one in four of 800 to 1,200 tokens, the others of 32 to 128,
  answers of 16 to 64; sent at their time whether or not others are answered. Tokens/s over the time from the first
  request to the last token.
- *Peak memory*: PSS of all processes of the engine, the most of what was seen after each measurement.
- *Start*: from the start of the process to the end of the answer to one token, the engines before it idle or stopped.
  vLLM keeps what it compiled; the row without that is its very first start.
- Between measurements the engine that was asked comes to rest. One that still uses more than a tenth of a core then is
  stopped while others are measured."""


def by_hand(old: str) -> str:
    """What stands between the marks."""
    _, begun, rest = old.partition(BEGIN)
    text, ended, _ = rest.partition(END)
    return (text.strip() or NOTHING) if begun and ended else NOTHING


def about(run: Run) -> str:
    """Date, machine, versions, command."""
    machine = run.machine
    lines = [
        f"- {run.date}, {run.seconds / 60:.0f} minutes: `{run.command}`",
        f"- {machine.cpu}, {machine.cores} cores, {machine.memory_gib:.1f} GiB, {machine.flags}; "
        f"Linux {machine.kernel}, Python {machine.python}; load {machine.load:.1f} at the start",
        *(f"- {name} {version}" for name, version in run.versions.items()),
        *(f"- column `{engine.name}`: {engine.about}; weights in {engine.format()}" for engine in run.engines),
    ]
    return "\n".join(lines)


def comparison(run: Run, markdown: bool = False) -> str:
    """The table: one row a line, one column an engine, the share of the machine's limit in brackets."""
    head = ["", "unit", *(engine.name for engine in run.engines)]
    rows = []
    for name in run.rows:
        row = ROWS[name]
        if not run.samples.figures.get(name) and not run.samples.missing.get(name):
            continue
        rows.append([title(row), row.unit, *(_cell(run, name, engine) for engine in run.engines)])
    return _print(head, rows, markdown)


def _cell(run: Run, name: str, engine: Engine) -> str:
    by_round = run.samples.of(name, engine.name)
    value = median(list(by_round.values()))
    if value is None:
        return "-"
    limit = limit_of(run, name, engine)
    share = ""
    if limit:
        share = f" ({(value / limit if ROWS[name].sense == 'more' else limit / value):.0%})"
    once = ", 1 round" if ROWS[name].kind != "once" and len(by_round) < run.plan.rounds else ""
    return f"{figure(value)}{share}{once}"


def limit_of(run: Run, name: str, engine: Engine) -> float | None:
    """The machine's limit for this figure, where there is one."""
    row = ROWS[name]
    if row.kind == "decode":
        return run.shape.decode_limit(run.limits, engine.format(), row.size)
    return run.shape.first_limit(run.limits, row.size) if row.kind == "first" else None


def lacking(run: Run) -> str:
    """What could not be measured, with its reason, once for each reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, engines in run.samples.missing.items():
        for engine, why in engines.items():
            reasons.setdefault((engine, why), []).append(name)
    lines = [
        f"- `{engine}`, {', '.join(names)}: {' '.join(why.split())[:400]}" for (engine, why), names in reasons.items()
    ]
    return "\n".join(["Not measured:", "", *lines]) if lines else ""


def against(run: Run, markdown: bool = False) -> str:
    """Every target whose two engines are in the run."""
    names = {engine.name for engine in run.engines}
    rows = []
    for target in run.targets:
        if target.row not in run.rows or not {target.ours, target.peer} <= names:
            continue
        ratio = paired_ratio(run.samples.of(target.row, target.ours), run.samples.of(target.row, target.peer))
        if target.row == "start-up":  # starts are not paired
            ours, theirs = (median(list(run.samples.of(target.row, n).values())) for n in (target.ours, target.peer))
            ratio = ours / theirs if ours and theirs else None
        rows.append([title(ROWS[target.row]), str(target), figure(ratio), verdict(target.met(ratio))])
    return _print(["", "target", "ratio", ""], rows, markdown) if rows else "No target's engines were measured."


def limits(run: Run, markdown: bool = False) -> str:
    """What the machine can do, and what follows of it for each format."""
    found = run.limits
    rows = [
        ["memory read, all cores", f"{figure(found.read / 1e9)} GB/s"],
        ["product of matrices, float32", f"{figure(found.float32 / 1e9)} GFLOP/s"],
        ["product of matrices, bfloat16", f"{figure(found.bfloat16 / 1e9)} GFLOP/s"],
    ]
    for form, size in run.shape.weight_bytes.items():
        rates = ", ".join(figure(run.shape.decode_limit(found, form, n)) for n in STREAMS)
        what = f"decode at {', '.join(map(str, STREAMS))} streams, {form} ({size / 1e6:,.0f} MB)"
        rows.append([what, f"{rates} tokens/s"])
    times = ", ".join(figure(run.shape.first_limit(found, n)) for n in FIRSTS)
    rows.append([f"first token at {', '.join(f'{n:,}' for n in FIRSTS)} tokens", f"{times} s"])
    return _print(["limit", ""], rows, markdown)


def _print(head: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> str:
    return (table.markdown if markdown else table.text)(head, rows)
