"""The page: the verdict and its sentence first, then what was found, what was checked, and how sure that is."""

from __future__ import annotations

from datetime import UTC, datetime

from pagefence import __version__
from pagefence.verdict.advice import advice
from pagefence.verdict.decide import CLEAN
from pagefence.verdict.html.findings import findings
from pagefence.verdict.html.markup import Child, Html, el, together
from pagefence.verdict.html.power_plot import power_plot
from pagefence.verdict.html.style import POLICY, STYLE
from pagefence.verdict.html.tables import nodes, probe
from pagefence.verdict.html.time_plot import time_plot, times_of
from pagefence.verdict.report import Run

_TONES = {"INCONCLUSIVE": "doubt", CLEAN: "good"}


def as_html(run: Run) -> bytes:
    """The whole report, redacted as the run is."""
    verdict = run.verdict
    title = f"{verdict.headline} - PageFence {run.command}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="icon", href="data:,"),
        el("title", title),
        el("style", Html(STYLE)),
    )
    page = el("main", _top(run), _banner(run), _facts(run), *findings(run), _sure(run), _times(run), *_probes(run),
              _nodes(run), _foot(run), class_="wrap")  # fmt: skip
    document = together(Html("<!DOCTYPE html>\n"), el("html", head, el("body", page), lang="en"))
    # Keys are gone from a run before it is reported; this is for a report made from one that was not.
    return run.keys.redact(document.markup).encode() + b"\n"


def _top(run: Run) -> Html:
    facts = run.examination.facts
    asked = facts.url if facts is not None else "no fleet"
    made = f"{datetime.fromtimestamp(run.at, UTC):%Y-%m-%d %H:%M} UTC" if run.at is not None else ""
    model = f", model {facts.model}" if facts is not None and facts.model else ""
    return el("header", el("span", el("b", f"PageFence {run.command}"), f" of {asked}{model}", class_="mono"),
              el("span", made), class_="top")  # fmt: skip


def _banner(run: Run) -> Html:
    verdict = run.verdict
    also = f" (also {', '.join(verdict.besides)})" if verdict.besides else ""
    held = "Interrupted; this is what was seen until then. " if run.interrupted else ""
    return el(
        "section",
        el("h1", verdict.headline, el("small", also) if also else None),
        el("p", el("b", held) if held else None, verdict.sentence, class_="why"),
        el("p", advice(verdict.name, run.command), class_="next"),
        class_=f"verdict {_TONES.get(verdict.name, 'bad')}",
        aria_label="Verdict",
    )


def _facts(run: Run) -> Html:
    verdict, log = run.verdict, run.examination.log
    held, asked = verdict.controls
    rows: list[tuple[str, str, str]] = [
        ("exit code", str(verdict.exit_code), ""),
        ("answers that could have shown it", f"{verdict.probes:,}", "n"),
        (
            "95 % upper bound on the rate",
            "-" if verdict.bound is None else f"{verdict.bound:.3g}",
            _bound_note(run),
        ),
        ("positive control", f"{held:,}/{asked:,}" if asked else "-", "own words given back"),
        ("requests", f"{log.requests:,}", f"{run.seconds:.1f} s"),
        ("prompt tokens", f"{log.prompt_tokens:,}", f"{log.new_tokens:,} new tokens"),
    ]
    chances = [r.coincidence for r in run.results if r.coincidence]
    if chances:
        rows.append(("chance of a coincidence", f"≤ {max(chances):.1g}", "that foreign words are none"))
    return el("dl", *(el("div", el("dt", name), el("dd", value, el("small", note) if note else None))
                      for name, value, note in rows), class_="facts")  # fmt: skip


def _bound_note(run: Run) -> str:
    if run.verdict.bound is not None:
        return "of probes that show one"
    return "there is a leak" if "LEAK" in run.verdict.occurred else "nothing could have shown one"


def _sure(run: Run) -> Html | None:
    claims = run.verdict.claims
    if not claims:
        return _section("How sure", "sure", el("p", "No answer came that could have shown a leak (n = 0), so nothing "
                                                    "is said about how often there is one."))  # fmt: skip
    told = (
        "What this run could have found. A fault at a border is found by few probes at the right length; "
        "a rare race needs many."
    )
    return _section("How sure", "sure", el("p", told), el("div", power_plot(claims), class_="plots"))


def _times(run: Run) -> Html | None:
    times = times_of(run)
    if not times.points:
        return None
    told = (
        "An answer that comes before its prompt can have been computed was made from something else. "
        "A point under a floor, with few cached tokens, is an incident."
    )
    if not (times.physical or times.practical):
        told += " No floor is drawn: this run has none; pagefence latency measures one."
    return _section("Time to first token", "time", el("p", told), el("div", time_plot(times), class_="plots"))


def _probes(run: Run) -> list[Html]:
    return [_section(result.name, f"probe-{number}", *probe(result, run.verdict.claims))
            for number, result in enumerate(run.results)]  # fmt: skip


def _nodes(run: Run) -> Html | None:
    facts = run.examination.facts
    return None if facts is None else _section("Nodes", "nodes", nodes(facts))


def _foot(run: Run) -> Html:
    said = [f"Made by PageFence {__version__}. This file asks no network for anything."]
    said.append(
        "Answers are shown without other words than the planted ones (--unredacted shows them)."
        if run.masked
        else "Answers are shown as they came."
    )
    again = el("p", "Again: ", el("code", run.again)) if run.again else None
    replay = el("p", "The findings alone: ", el("code", run.replay)) if run.replay else None
    line = el("p", "Command: ", el("code", run.line)) if run.line and not run.again else None
    return el("footer", again, replay, line, el("p", " ".join(said)), class_="foot")


def _section(title: str, name: str, *children: Child) -> Html:
    return el("section", el("h2", title, id=name), *children, aria_labelledby=name)
