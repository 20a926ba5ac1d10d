"""The page at `/`: where every target stands, and the last runs. Plain HTML, no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from pagefence.watch.config import Module
from pagefence.watch.records import Phase, Record
from pagefence.watch.watcher import Standing, Watcher

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5em auto; max-width: 80em; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; margin: 0 0 2em; display: block; overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .3em .8em .3em 0; border-bottom: 1px solid #ddd; }
.LEAK, .CORRUPT, .FAIL { color: #b00020; font-weight: bold; }
.INCONCLUSIVE { color: #8a5a00; font-weight: bold; }
.CLEAN { color: #0a6b2d; font-weight: bold; }
.dim { color: #666; }
"""
SHOWN = 50


def html(watcher: Watcher) -> str:
    """The whole page."""
    now = watcher.clock()
    troubles = f'<p class="FAIL">{escape(watcher.trouble)}</p>' if watcher.trouble else ""
    targets = _table(
        ("target", "module", "verdict", "why", "ended", "next", "budget"),
        (_standing(watcher, s, m, now) for s in watcher.standings.values() for m in s.watched.modules),
    )
    runs = _table(
        ("run", "target", "module", "verdict", "why", "started", "took", "tokens", "kept"),
        (_run(record, now) for record in watcher.state.history(SHOWN)),
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="refresh" content="30">'
        f"<title>PageFence watch</title><style>{_STYLE}</style></head><body><h1>PageFence watch</h1>{troubles}"
        f"<h2>Targets</h2>{targets}<h2>Last runs</h2>{runs}"
        '<p class="dim"><a href="/history">history as JSON</a>, <a href="/metrics">metrics</a></p></body></html>'
    )


def _standing(watcher: Watcher, standing: Standing, module: Module, now: float) -> Iterator[str]:
    name = standing.watched.name
    last = watcher.state.last(name, module.name)
    yield escape(name)
    yield escape(module.name)
    yield _verdict(last.verdict) if last else '<span class="dim">no run has finished</span>'
    yield escape(last.sentence) if last else ""
    yield _ago(last.ended, now) if last and last.ended else ""
    yield escape(_next(standing, module, now))
    free, burst = watcher.free(standing, now), standing.watched.allowance.burst
    yield f"{free:,.0f} of {burst:,} tokens" if module.tokens else "needs none"


def _next(standing: Standing, module: Module, now: float) -> str:
    flight, wait, due = standing.flight, standing.waiting.get(module.name), standing.slots[module.name].due
    if flight is not None and flight.module.name == module.name:
        return f"running (run {flight.id})"
    if wait is not None:
        return f"due, waits: {wait.why}" + (f", {wait.seconds:,.0f} s" if wait.seconds else "")
    return "when asked for" if due is None else f"in {max(0.0, due - now):,.0f} s"


def _run(record: Record, now: float) -> Iterator[str]:
    yield str(record.id)
    yield escape(record.target)
    yield escape(record.module)
    phase = "" if record.phase is Phase.FINISHED else f' <span class="dim">{record.phase}</span>'
    yield (_verdict(record.verdict) if record.verdict else "") + phase
    yield escape(record.sentence)
    moment = datetime.fromtimestamp(record.started, UTC)
    yield f'<time datetime="{moment.isoformat(timespec="seconds")}">{moment:%Y-%m-%d %H:%M:%S}</time>'
    yield f"{record.seconds:.1f} s" if record.ended is not None else f"for {now - record.started:.0f} s"
    yield f"{record.prompt_tokens:,} + {record.new_tokens:,}"
    yield f'<a href="/runs/{record.id}">report</a> <a href="/runs/{record.id}/log">log</a>'


def _verdict(name: str) -> str:
    return f'<span class="{escape(name)}">{escape(name)}</span>'


def _ago(moment: float, now: float) -> str:
    return f"{max(0.0, now - moment):,.0f} s ago"


def _table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
