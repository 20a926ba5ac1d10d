"""What was found: each finding with its evidence, the rule that it breaks, what to do, and how to see it again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pagefence.probes import Evidence, Kind
from pagefence.protocol.invariants import RULES
from pagefence.verdict.html.markup import Child, Html, el
from pagefence.verdict.html.page_picture import page_picture, read_of
from pagefence.verdict.report import Run

_MOST = 200  # of one kind and check; the JSON report has all
_SHOWN = frozenset({"marked", "answer", "planted_words", "planted_by", "read_by", "request"})


def findings(run: Run) -> list[Html]:
    """The section, the gravest first; nothing where there are none."""
    every = [e for kind in Kind for result in run.results for e in result.evidence if e.kind is kind]
    if not every:
        return []
    groups: dict[tuple[str, str, str], list[Evidence]] = {}
    for evidence in every:
        groups.setdefault((evidence.kind, evidence.probe, evidence.check), []).append(evidence)
    shown = [_finding(run, group, f"finding-{number}") for number, group in enumerate(groups.values())]
    return [el("section", el("h2", f"Found: {len(every):,}", id="found"), *shown, aria_labelledby="found")]


def _finding(run: Run, group: Sequence[Evidence], name: str) -> Html:
    """The first of its kind in full; three of a kind tell no more than one, so the others are folded."""
    evidence = group[0]
    tone = "doubt" if evidence.kind is Kind.INCONCLUSIVE else "bad"
    body: list[Child] = [
        el("h3", el("span", evidence.kind, class_="kind"), f"{evidence.probe}: {evidence.check}"),
        el("p", evidence.what),
        _where(evidence),
        *_words(evidence.details),
        *_picture(run, evidence, name),
        *_rule(evidence),
        *_repeat(run, evidence),
        *_rest(evidence.details),
        *_others(run, group[1:]),
    ]
    return el("article", *body, class_=f"finding {tone}")


def _where(evidence: Evidence) -> Html | None:
    return el("p", el("span", evidence.where, class_="mono"), class_="dim") if evidence.where else None


def _others(run: Run, others: Sequence[Evidence]) -> Iterator[Html]:
    if not others:
        return
    rows = [el("li", el("p", other.what), _where(other), *_repeat(run, other)) for other in others[:_MOST]]
    if len(others) > _MOST:
        rows.append(el("li", f"... and {len(others) - _MOST:,} more; the JSON report has them all."))
    yield el("details", el("summary", f"{len(others):,} more like it"), el("ul", *rows, class_="others"))


def _words(details: Mapping[str, object]) -> Iterator[Html]:
    words = details.get("planted_words")
    if isinstance(words, list):
        planted = " ".join(str(word) for word in words)
        yield el("p", f"Planted by {details.get('planted_by', 'another request')}: ", el("b", planted))
    marked, answer = details.get("marked"), details.get("answer")
    if isinstance(marked, str) and marked.strip():
        yield el("p", f"HTTP {details.get('status')} answer to {details.get('read_by', 'the reader')}:")
        yield el("pre", *_marked(marked.strip()), tabindex="0")
    elif isinstance(answer, str) and answer.strip():
        yield el("p", "Answer:")
        yield el("pre", answer.strip(), tabindex="0")


def _marked(text: str) -> Iterator[Child]:
    """Words between the marks, marked for a reader and for who hears the page."""
    for part in re.split("(«[^«»]*»)", text):
        yield el("mark", part[1:-1]) if part.startswith("«") and part.endswith("»") else part


def _picture(run: Run, evidence: Evidence, name: str) -> Iterator[Html]:
    read = read_of(evidence, run.examination) if evidence.kind is Kind.LEAK else None
    if read is not None:
        reader, planter = (str(evidence.details.get(who, other)) for who, other in
                           (("read_by", "the reader"), ("planted_by", "another request")))  # fmt: skip
        yield page_picture(read, f"{name}-pages", reader, planter)


def _rule(evidence: Evidence) -> Iterator[Html]:
    rule = RULES.get(evidence.rule or "")
    if rule is not None:
        yield el("p", el("b", f"Rule {rule.id} {rule.name}: "), rule.statement)
    elif evidence.rule:
        yield el("p", el("b", f"Rule {evidence.rule}"))
    if evidence.guard:
        yield el("p", el("b", "Contained by the guard "), evidence.guard)
    if evidence.remedy:
        yield el("p", el("b", "To do: "), evidence.remedy, class_="remedy")


def _repeat(run: Run, evidence: Evidence) -> Iterator[Html]:
    repeat = run.repeat_of(evidence)
    if repeat is None:
        return
    lines = [(word, line) for word, line in (("Plant", repeat.plant), ("Read", repeat.read)) if line is not None]
    shown = [child for word, line in lines for child in (el("p", word if len(lines) > 1 else "Send", class_="dim"),
                                                         el("pre", line, tabindex="0"))]  # fmt: skip
    yield el("details", el("summary", "See it again"), *shown)


def _rest(details: Mapping[str, object]) -> Iterator[Html]:
    rows = [(name, value) for name, value in details.items() if name not in _SHOWN and value not in (None, "", [], ())]
    if rows:
        table = el("table", el("caption", "Details of this finding"), el("tbody", *(
            el("tr", el("th", name.replace("_", " "), scope="row"), el("td", _said(value))) for name, value in rows
        )))  # fmt: skip
        yield el("details", el("summary", "Details"), table)


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(_said(inner) for inner in value)
    return str(value)
