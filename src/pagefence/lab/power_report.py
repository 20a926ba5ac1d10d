"""The page about power: what was found how often, by what, at which cost, beside the usual script; and false alarms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from pagefence.lab.fault import Fault
from pagefence.lab.power import VIOLATIONS, races, suits
from pagefence.lab.power_log import CLEAN, RACE, USUAL, VERIFY, Line, PowerLog
from pagefence.lab.usual_script import ROUNDS
from pagefence.verdict.intervals import interval

GATE = "gate"


def page(log: PowerLog, faults: Mapping[str, Fault]) -> str:
    """The whole page, from whatever the log holds by now."""
    lines = [
        "# Detection power, measured",
        "",
        "Written by `make power` from its finished runs ([power.jsonl](power.jsonl)). Do not edit.",
        "",
        "Each row is a fault of the lab in the embedded fleet, guards off: a run for each seed against the same fleet,",
        "over HTTP. *Found*: runs that ended with a violation. *By a prompt*: those in which an answer showed it, and",
        "not only the figures that the gate reads. Intervals are exact (Clopper and Pearson, 95 %). Cost is that of a",
        "median run; where runs were stopped at the first violation it is the cost until then (*). What says *not run*",
        "is not measured yet: `make power` goes on with it.",
        "",
        "## Default `verify`, and the usual script",
        "",
        "The usual script: a UUID before a long filler prompt, then another prompt with the same key and 16 new",
        f"tokens, {ROUNDS} times; found when the UUID comes back",
        "([source](../../src/pagefence/lab/usual_script.py), with its flaws).",
        "",
        *_table(log, [f for f in faults.values() if suits(f, VERIFY)], VERIFY),
        "",
        "## Races",
        "",
        "For faults that need others beside them. `pagefence race`: short requests beside each other, a third of which",
        "hang up; in the usual script nobody does (*cannot*). One race is one run" + _long(log),
        "",
        *_table(log, [f for f in faults.values() if suits(f, RACE)], RACE),
        "",
        "## Cannot show from outside",
        "",
        *_hidden(log, faults.values()),
        "",
        "## False alarms",
        "",
        *_alarms(log),
        "",
    ]
    return "\n".join(lines)


def _table(log: PowerLog, faults: Sequence[Fault], profile: str) -> list[str]:
    head = "| fault | found | 95 % | by a prompt | verdicts | found by | tokens | seconds | usual script | 95 % |"
    rows = [head, "|" + "---|" * 10]
    rows += ["| " + " | ".join([*_cells(log, f.name, profile), *_usual(log, f)]) + " |" for f in faults]
    return rows


def _usual(log: PowerLog, fault: Fault) -> list[str]:
    if not suits(fault, USUAL):
        return ["cannot", "-"]
    runs = log.of(fault.name, USUAL)
    seen = sum(bool(r.found) for r in runs)
    return [f"{seen} of {len(runs)}", shown_interval(seen, len(runs))] if runs else ["not run", "-"]


def _cells(log: PowerLog, name: str, profile: str) -> list[str]:
    runs = log.of(name, profile)
    if not runs:
        return [name, "not run", *[""] * 6]
    found = [r for r in runs if r.found]
    failed = log.failed(name, profile)
    return [
        name,
        f"{len(found)} of {len(runs)}" + (f" ({failed} more could not be made)" if failed else ""),
        shown_interval(len(found), len(runs)),
        f"{sum(by_prompts(r) for r in runs)} of {len(runs)}",
        _counted(r.verdict for r in runs),
        _counted(f"{p} {k}" for r in runs for p, kinds in r.found.items() for k in kinds) or "-",
        f"{median(r.prompt_tokens + r.new_tokens for r in runs):,.0f}{'*' if any(r.early for r in runs) else ''}",
        f"{median(r.seconds for r in runs):,.0f}",
    ]


def by_prompts(run: Line) -> bool:
    """Whether a probe that sends prompts found a violation."""
    return any(kinds for probe, kinds in run.found.items() if probe != GATE)


def shown_interval(k: int, n: int) -> str:
    """Ends rounded outwards to three digits."""
    low, high = interval(k, n)
    return f"{int(low * 1000) / 1000:.3f} to {min(1.0, -int(-high * 1000 // 1) / 1000):.3f}"


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{word} {n}" for word, n in Counter(words).most_common())


def _hidden(log: PowerLog, faults: Iterable[Fault]) -> list[str]:
    rows = [f"- **{fault.name}**: {fault.not_in_engine}." for fault in faults if fault.not_in_engine]
    rows.append("")
    rows.append("What shows in no run although it could (its interval above says how seldom it would have to be):")
    rows.append("")
    for fault in faults:
        runs = log.of(fault.name, RACE if races(fault) else VERIFY)
        if runs and not fault.not_in_engine and not any(r.found for r in runs):
            rows.append(f"- **{fault.name}**: 0 of {len(runs)}; {fault.summary}.")
    return rows


def _long(log: PowerLog) -> str:
    """How many requests a race has, by those that were not stopped early: more of them find more."""
    sizes = [line.requests for line in log.runs.values() if line.profile == RACE and not line.early]
    return (
        f"; one that\ncame to its end had {median(sizes):,.0f} requests (`--probes`), controls among them."
        if sizes
        else "."
    )


def _alarms(log: PowerLog) -> list[str]:
    rows = [
        "| profile | runs | false alarms | 95 % | inconclusive | tokens | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    told: list[str] = []
    for profile in (VERIFY, RACE, USUAL):
        runs = log.of(CLEAN, profile)
        if not runs:
            rows.append(f"| {profile} | 0 | not run | | | | |")
            continue
        alarms = [r for r in runs if any(k in VIOLATIONS for kinds in r.found.values() for k in kinds)]
        open_ = sum(r.verdict == "INCONCLUSIVE" for r in runs)
        rows.append(
            f"| {profile} | {len(runs)} | {len(alarms)} | {shown_interval(len(alarms), len(runs))} | {open_} | "
            f"{median(r.prompt_tokens + r.new_tokens for r in runs):,.0f} | {median(r.seconds for r in runs):,.0f} |"
        )
        told += [
            f"- {profile}, seed {r.seed}: {_counted(f'{p} {k}' for p, ks in r.found.items() for k in ks)}"
            for r in alarms
        ]
        told += [f"- {profile}, seed {r.seed}: {'; '.join(r.doubts)}" for r in runs if r.verdict == "INCONCLUSIVE"]
    return [*rows, "", *told]
