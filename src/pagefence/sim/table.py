"""A trace as a table: for a terminal and, as Markdown, for the documentation."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pagefence.sim.trace import PageView, Trace, TraceStep
from pagefence.sim.wording import in_words, is_foreign, letters, lifelines, message_in_words, named, role

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue")
_KEY = "upper case: let, lower case: in quarantine, .: free, !: another request's bytes lie in it"


def trace_table(trace: Trace) -> RenderableType:
    """The trace for a terminal."""
    names = letters(trace)
    workers = _decode_workers(trace)
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("#", justify="right", style="dim")
    table.add_column("what happened", overflow="fold", ratio=2)
    table.add_column("what it caused", overflow="fold", ratio=3)
    for worker in workers:
        table.add_column(f"pages of {worker}", no_wrap=True)
    for step in trace.steps:
        strips = [_strip(_pages_of(step, worker), names) for worker in workers]
        table.add_row(str(step.number), Text(in_words(step, names)), Text("\n".join(_caused(step, names))), *strips)
    table.add_row("", Text(trace.rule or "", style="bold red"), _outcome(trace))
    # Never broken into lines: the last one is a command to be copied.
    head = [
        Text.assemble((f"{word}  ", "dim"), value, no_wrap=True, overflow="ignore") for word, value in _header(trace)
    ]
    key = [Text(_KEY, style="dim")] if workers else []
    return Group(*head, Text(), table, Text(), *key)


def trace_markdown(trace: Trace) -> str:
    """The trace for a page of documentation."""
    names = letters(trace)
    workers = _decode_workers(trace)
    rows = [
        ["#", "what happened", "what it caused", *(f"pages of {worker}" for worker in workers)],
        ["--:", "---", "---", *("---" for _ in workers)],
    ]
    for step in trace.steps:
        caused = "<br>".join(_escaped(line) for line in _caused(step, names))
        strips = [_code(_strip(_pages_of(step, worker), names).plain) for worker in workers]
        rows.append([str(step.number), _escaped(in_words(step, names)), caused, *strips])
    rule = f"**{_escaped(trace.rule)}**" if trace.rule else ""
    rows.append(["", rule, _escaped(_outcome(trace).plain), *("" for _ in workers)])
    head = [f"- {word}: {_code(value)}" for word, value in _header(trace)]
    body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*head, "", *body, *(["", f"Pages: {_KEY}."] if workers else []), ""])


def _header(trace: Trace) -> list[tuple[str, str]]:
    requests = ", ".join(f"{letter} = #{ticket}" for ticket, letter in letters(trace).items())
    return [
        ("world", trace.world),
        ("fault", trace.fault or "none"),
        ("guards", trace.guards),
        *([("requests", requests)] if requests else []),
        ("replay", trace.replay),
    ]


def _outcome(trace: Trace) -> Text:
    if trace.violation is None and trace.rule is None:
        return Text("no rule was broken", style="green")
    return Text(trace.violation or "broken", style="bold red")


def _caused(step: TraceStep, names: dict[int, str]) -> list[str]:
    sends = [f"{named(m.sender)} → {named(m.receiver)}: {message_in_words(m, names)}" for m in step.sent]
    return [*step.did, *sends]


def _decode_workers(trace: Trace) -> list[str]:
    shown = {named(worker) for step in trace.steps for worker, _ in step.pages}
    return [worker for worker in lifelines(trace) if worker in shown and role(worker) == "decode"]


def _pages_of(step: TraceStep, worker: str) -> tuple[PageView, ...] | None:
    return next((pages for name, pages in step.pages if named(name) == worker), None)


def _strip(pages: tuple[PageView, ...] | None, names: dict[int, str]) -> Text:
    """One cell per page, all of one width, so that a page stays in its column from step to step."""
    if pages is None:
        return Text("dead", style="dim")
    width = max(map(len, names.values()), default=1)
    ranks = {ticket: rank for rank, ticket in enumerate(names)}
    strip = Text()
    for page in pages:
        cell = "." if page.owner is None else names[page.owner]
        cell = cell.lower() if page.quarantined else cell
        colour = "dim" if page.owner is None else _COLOURS[ranks[page.owner] % len(_COLOURS)]
        mark = "!" if is_foreign(page) else " "
        strip.append(f"{cell:<{width}}{mark}", style="bold white on red" if is_foreign(page) else colour)
    return strip


def _escaped(text: str) -> str:
    """Text in a cell of a Markdown table. HTML first: what it makes of a character holds no Markdown."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("\n", " ")):
        text = text.replace(character, entity)
    for character in "\\`*_[]":
        text = text.replace(character, f"\\{character}")
    return text


def _code(text: str) -> str:
    """Text as code. A code span knows no escapes, so backquotes inside need a longer fence, and pipes an entity."""
    if "`" in text or "|" in text:
        return f"<code>{_escaped(text)}</code>"
    return f"`{text.rstrip()}`" if text.strip() else ""
