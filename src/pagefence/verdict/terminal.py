"""The report for a person: the verdict and its one sentence first, then what was checked, found, and is to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pagefence.probes import Check, Evidence, Kind, ProbeResult
from pagefence.verdict.advice import advice
from pagefence.verdict.decide import CLEAN, Verdict
from pagefence.verdict.nodes import show_nodes
from pagefence.verdict.plain import plain
from pagefence.verdict.report import Run
from pagefence.verdict.sureness import claims_table

_COLOUR = {"LEAK": "red", "CORRUPT": "red", "FAIL": "red", "INCONCLUSIVE": "yellow", CLEAN: "green"}


def show(run: Run, console: Console) -> None:
    """Print the whole report, keys redacted."""
    run = run.redacted()
    console.print()
    console.print(_banner(run.verdict, run.interrupted))
    if run.examination.facts is not None:
        show_nodes(run.examination.facts, run.line, console)
    for result in run.results:
        if result.checks:
            console.print(_table(result))
    if run.verdict.claims:
        console.print(claims_table(run.verdict.claims))
    for kind in Kind:
        _findings(run, kind, console)
    console.print(_cost(run))
    console.print(_next(run), soft_wrap=True)


def _banner(verdict: Verdict, interrupted: bool) -> Panel:
    colour = _COLOUR[verdict.name]
    title = verdict.headline + (f" (also {', '.join(verdict.besides)})" if verdict.besides else "")
    text = plain(verdict.sentence)
    if interrupted:
        text = Text("Interrupted; this is what was seen until then. ", style="bold") + text
    return Panel(text, title=f"[bold]{escape(title)}[/]", title_align="left", border_style=colour, padding=(0, 1))


def _table(result: ProbeResult) -> Table:
    table = Table(title=result.name, title_justify="left", title_style="bold", box=None, padding=(0, 1), pad_edge=False)
    table.add_column("", width=1, no_wrap=True)
    table.add_column("check", no_wrap=True, style="dim")
    table.add_column("where", overflow="fold")
    table.add_column("found", overflow="fold", ratio=1)
    for check in _folded(result.checks):
        mark, colour = _mark(check)
        found = plain(check.text, colour if check.kind else "")
        table.add_row(Text(mark, style=colour), Text(check.id), plain(check.where), found)
    return table


def _mark(check: Check) -> tuple[str, str]:
    if check.kind is None:
        return ("-", "dim") if check.undecided else ("+", "green")
    return ("?", "yellow") if check.kind is Kind.INCONCLUSIVE else ("!", "red")


def _folded(checks: Sequence[Check]) -> list[Check]:
    """Rows that are all alike say the same thing many times; one with their number, or their range, does."""
    alike: dict[tuple[object, ...], list[Check]] = {}
    for check in checks:
        text = check.text if check.id != "border" else re.sub("[0-9,]+", "#", check.text)
        alike.setdefault((check.id, check.kind, text), []).append(check)
    return [row for group in alike.values() for row in _row(group)]


def _row(group: Sequence[Check]) -> Sequence[Check]:
    if len(group) < 4:
        return group
    first, last = group[0], group[-1]
    if first.id != "border":
        return [Check(first.id, f"{first.where} and {len(group) - 1:,} like it", first.text, first.kind)]
    where = f"{first.where.split(' tokens')[0]} to {last.where.split(' tokens')[0]} tokens, both forms"
    return [Check(first.id, where, f"{len(group)} x {first.text}", first.kind)]


def _findings(run: Run, kind: Kind, console: Console) -> None:
    """One finding of every check: three of a kind tell no more than one. The JSON report has them all."""
    found = [e for r in run.results for e in r.evidence if e.kind is kind]
    shown = {(e.probe, e.check): e for e in reversed(found)}.values()
    for evidence in reversed(shown):
        console.print(_finding(evidence))
        repeat = run.repeat_of(evidence)
        for word, line in (("plant ", repeat.plant), ("repeat", repeat.read)) if repeat is not None else ():
            if line is not None:
                console.print(Text(f"  {word} {line}", style="cyan"), soft_wrap=True)
    if len(found) > len(shown):
        more = f"... and {len(found) - len(shown)} more {kind} findings (all are in the --json report)"
        console.print(Text(more, style="dim"))


def _finding(evidence: Evidence) -> Panel:
    body = plain(evidence.what)
    names = [f"rule {evidence.rule}" if evidence.rule else "", f"guard {evidence.guard}" if evidence.guard else ""]
    said = [name for name in names if name]
    if said:
        body.append(f"\n{', '.join(said)}", style="bold")
    details = evidence.details
    if "planted_words" in details:
        words = details["planted_words"]
        planted = " ".join(str(w) for w in words) if isinstance(words, list) else ""
        body.append(f"\nplanted by {details['planted_by']}: ")
        body.append(planted, style="bold red")
        body.append(
            f"\nHTTP {details['status']} answer to {details['read_by']}, "
            f"{details['prompt_tokens_sent']} prompt tokens:\n"
        )
        body.append_text(_marked(str(details["marked"]).strip()))
    elif evidence.check == "own-recall" and details.get("answer"):
        body.append("\nanswer: ", style="dim")
        body.append(repr(str(details["answer"])[:160]), style="dim")
    if evidence.remedy:
        body.append_text(plain(f"\nto do: {evidence.remedy}", "italic"))
    title = f"{evidence.kind} {evidence.probe}" + (f" {evidence.where}" if evidence.where else "")
    return Panel(body, title=plain(title), title_align="left", border_style=_COLOUR[evidence.kind], padding=(0, 1))


def _marked(text: str) -> Text:
    """Words between the marks in red; the marks stay, for a terminal without colour."""
    shown = Text()
    for i, part in enumerate(plain(text).plain.replace("»", "«").split("«")):
        shown.append(f"«{part}»" if i % 2 else part, style="bold red" if i % 2 else "")
    return shown


def _cost(run: Run) -> Text:
    log = run.examination.log
    text = f"\n{log.requests} requests, {log.prompt_tokens:,} prompt tokens, {log.new_tokens:,} new tokens"
    text += f", {run.seconds:.1f} s"
    chances = [r.coincidence for r in run.results if r.coincidence is not None]
    if chances and max(chances) > 0:
        text += f"; chance that foreign words are a coincidence <= {max(chances):.1g}"
    return Text(text, style="dim")


def _next(run: Run) -> Text:
    text = Text(f"next: {advice(run.verdict.name, run.command)}", style="bold")
    if run.again:
        text.append(f"\nagain: {run.again}", style="cyan")
        if run.replay:
            text.append(f"\nreplay: {run.replay}", style="cyan")
        if run.repeats and run.embedded:
            text.append("  (add --keep: the curl lines need the fleet alive)", style="dim")
    return text
