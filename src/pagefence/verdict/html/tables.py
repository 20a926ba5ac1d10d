"""What was checked, as tables: the figures of every node, and each probe's checks."""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.fleet import Figure, FleetFacts, NodeFacts
from pagefence.probes import Check, Kind, ProbeResult
from pagefence.verdict.html.markup import Html, el
from pagefence.verdict.plain import number
from pagefence.verdict.power import Claim

_STATES = {None: ("good", "held"), Kind.INCONCLUSIVE: ("doubt", "unknown")}
_ABOUT = {
    "gate": "The live figures of every node against the rules. It sends no prompt.",
    "boundary": "At every limit and just over it: what fits is answered, what does not gets the original error.",
    "canary": "One tenant plants words, another reads: whose words are in the answers?",
    "salt": "Is a prompt found again in the prefix cache by its own tenant, and by no other?",
    "conservation": "Prefill's tokens against decode's, and the fleet's counts against our own.",
    "latency": "Does any answer come before its prompt can have been computed?",
    "race": "Many short prompts under load, with clients that leave.",
    "replay": "The requests behind the findings of an earlier run, sent again.",
}


def nodes(facts: FleetFacts) -> Html:
    """A row for each process; a figure that is not known says why."""
    names = ("node", "role", "engine", "ranks", "pool", "context", "longest", "page", "read at")
    head = el("tr", *(el("th", name, scope="col", class_="number" if name in names[3:8] else None) for name in names))
    rows = [_node(node) for node in facts.everyone()]
    table = el("table", el("caption", "Tokens, as the live processes tell them"), el("thead", head),
               el("tbody", *rows), class_="nodes")  # fmt: skip
    problems = [el("li", problem) for problem in facts.problems]
    return el("div", el("div", table, class_="scroll", tabindex="0", role="region", aria_label="Figures of every node"),
              el("ul", *problems) if problems else None)  # fmt: skip


def _node(node: NodeFacts) -> Html:
    engine = " ".join(word for word in (node.engine or "?", node.version or "") if word)
    figures = (node.pool, node.context, node.longest, node.page_size)
    source = node.pool.source if node.pool.value is not None else node.context.source
    return el(
        "tr",
        el("th", node.url, scope="row", class_="mono"),
        el("td", node.role),
        el("td", engine),
        el("td", len(node.ranks) or "?", class_="number"),
        *(el("td", number(figure), class_="number", title=_lack(figure)) for figure in figures),
        el("td", node.problem or source),
    )


def _lack(figure: Figure) -> str | None:
    return None if figure.value is not None else f"{figure.source} {figure.problem}".strip()


def probe(result: ProbeResult, claims: Sequence[Claim]) -> list[Html]:
    """One probe's section: what it asks, its numbers, its checks."""
    parts = [el("p", _ABOUT[result.name], class_="dim")] if result.name in _ABOUT else []
    numbers = list(_numbers(result, next((c for c in claims if c.probe == result.name), None)))
    if numbers:
        rows = (el("div", el("dt", name), el("dd", value)) for name, value in numbers)
        parts.append(el("dl", *rows, class_="numbers"))
    if not result.finished:
        parts.append(el("p", el("b", "It did not finish."), " What is below is what was seen until then."))
    if result.checks:
        parts.append(_checks(result))
    elif not result.evidence:
        parts.append(el("p", "It checked nothing."))
    return parts


def _numbers(result: ProbeResult, claim: Claim | None) -> list[tuple[str, str]]:
    held, asked = result.controls
    rows = [("checks", f"{len(result.checks):,}")] if result.checks else []
    rows += [("findings", f"{len(result.evidence):,}")] if result.evidence else []
    rows += [("n", f"{result.shown:,}")] if result.shown else []
    rows += [("refused as it should be", f"{result.refused:,}")] if result.refused else []
    rows += [("controls", f"{held:,}/{asked:,}")] if asked else []
    if claim is not None and claim.upper_bound is not None:
        rows.append(("95 % bound on what shows", f"p ≤ {claim.upper_bound:.3g}"))
    if claim is not None and claim.leak_bound is not None:
        bound = "none" if claim.leak_bound >= 1 else f"p ≤ {claim.leak_bound:.3g}"
        rows.append(("on what is hit", bound))
    return rows


def _checks(result: ProbeResult) -> Html:
    head = el("tr", *(el("th", name, scope="col") for name in ("state", "check", "where", "found")))
    rows = [_check(check) for check in result.checks]
    return el(
        "table", el("caption", f"Checks of {result.name}"), el("thead", head), el("tbody", *rows), class_="checks"
    )


def _check(check: Check) -> Html:
    tone, state = _STATES.get(check.kind, ("bad", str(check.kind)))
    if check.kind is None and check.undecided:
        tone, state = "", "open"
    return el("tr", el("td", state, class_=f"state {tone}"), el("td", check.id, class_="id"),
              el("td", check.where, class_="where"), el("td", check.text))  # fmt: skip
