"""What is known of each node, for a person: a table of figures, and for a node that does not tell all, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pagefence.fleet import Figure, FleetFacts, NodeFacts
from pagefence.fleet.engines import openai
from pagefence.fleet.facts import ROUTER
from pagefence.verdict.plain import number, plain

_FIGURES = ("pool", "context", "longest", "page_size")
_MOST = 2
_LOCKED = ("answered HTTP 401", "answered HTTP 403")
_MEANS = {
    "pool": "tokens of KV that fit at once into the running process (of several ranks, the smallest)",
    "context": "tokens of a prompt and its answer together",
    "longest": "tokens of the longest prompt that is accepted",
    "page_size": "tokens of a page",
    "engine": "what runs there (vllm, sglang, ...; any other name has no advisories), to look up its advisories",
    "version": "the version of it that runs",
}


def show_nodes(facts: FleetFacts, line: str, console: Console) -> None:
    """The table of nodes, alike ones in one row, and an explanation of those whose figures are not all known."""
    groups = _alike(facts.everyone())
    console.print(_table(groups))
    puzzling = [group for group in groups if _explained(group[0])]
    for group in puzzling[:_MOST]:
        console.print(_explanation(group, line), soft_wrap=True)
    if len(puzzling) > _MOST:
        console.print(Text(f"... and {len(puzzling) - _MOST} more kinds of node (--json has all)", style="dim"))


def _alike(nodes: Iterable[NodeFacts]) -> list[list[NodeFacts]]:
    """Nodes that differ in nothing but their address, in the order in which the first of them came."""
    groups: dict[object, list[NodeFacts]] = {}
    for node in nodes:
        groups.setdefault((*_row(node), node.problem, node.missing, node.asked), []).append(node)
    return list(groups.values())


def _row(node: NodeFacts) -> tuple[str, ...]:
    return (
        node.engine or "?",
        node.version or "?",
        node.role,
        str(len(node.ranks)) if node.ranks else "?",
        number(node.pool),
        number(node.context),
        number(node.page_size),
        node.pool.source if node.pool.value is not None else node.context.source,
    )


def _table(groups: Sequence[Sequence[NodeFacts]]) -> Table:
    table = Table(title="nodes", title_justify="left", title_style="bold", box=None, padding=(0, 1), pad_edge=False)
    table.add_column("node", overflow="fold", min_width=24)
    for name in ("engine", "version", "role"):
        table.add_column(name, overflow="fold")
    for name in ("ranks", "pool", "context", "page"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("source", overflow="fold", max_width=30, style="dim")
    for group in groups:
        table.add_row(plain(_names(group)), *(plain(cell) for cell in _row(group[0])))
    return table


def _names(group: Sequence[NodeFacts]) -> str:
    return group[0].url if len(group) == 1 else f"{group[0].url} and {len(group) - 1:,} like it"


def _explained(node: NodeFacts) -> bool:
    """One that answered, but is of no known engine or tells too little. A silent one has its finding, which is all."""
    answered = any("HTTP" in said or "JSON" in said for _, said in node.asked)
    return answered and (node.engine is None or bool(_unknown(node)))


def _unknown(node: NodeFacts) -> list[str]:
    """What could be declared and is needed: the pool and the context always, the rest where the adapter says so.

    What stands before named workers holds no KV, so it needs none.
    """
    if node.role == ROUTER:
        return []
    needed = [name for name in _FIGURES if name in node.missing or name in ("pool", "context")]
    return [name for name in needed if _figure(node, name).value is None]


def _figure(node: NodeFacts, name: str) -> Figure:
    figure: Figure = getattr(node, name)
    return figure


def _lack(figure: Figure) -> str:
    return f"{figure.source} {figure.problem}".strip()


def _explanation(group: Sequence[NodeFacts], line: str) -> Text:
    node = group[0]
    said = plain(f"\nWhat PageFence knows of {_names(group)}", "bold")
    for name, text in _lines(node, line):
        said.append(f"\n  {name:<12}", style="dim")
        said.append_text(plain(text, "cyan" if name in ("declare", "or") else ""))
    return said


def _lines(node: NodeFacts, line: str) -> Iterator[tuple[str, str]]:
    came: dict[str, list[str]] = {}
    for path, answer in node.asked:
        came.setdefault(answer, []).append(path)
    yield "asked", "; ".join(f"{', '.join(paths)}: {answer}" for answer, paths in came.items())
    if node.engine is None and node.asked and node.asked[-1][1].startswith(_LOCKED):
        yield "recognised", "nothing: it did not let itself be asked"
        yield "to do", "Set PAGEFENCE_KEY_ADMIN, or PAGEFENCE_KEY_A where a tenant may read figures, and ask again."
        return
    yield "recognised", f"{node.engine}, because {node.recognised}" if node.engine else "no engine that PageFence knows"
    figures = [(name, _figure(node, name)) for name in _FIGURES]
    found = [f"{name} {figure.value:,} ({figure.source})" for name, figure in figures if figure.value is not None]
    yield "found", "; ".join(found) or "no figure"
    lacking = _unknown(node)
    if node.engine is None:
        yield (
            "to do",
            "Check that this is the base of the engine's API, without a path, and that no login page or proxy",
        )
        yield "", "answers in its place. Figures can be declared only for what has a model list at /v1/models."
        return
    yield (
        "not found",
        "; ".join(f"{name} {_lack(_figure(node, name))}" for name in lacking),
    )
    named = {} if node.engine != openai.ENGINE else {"engine": "NAME", "version": "VERSION"}
    yield (
        "declare",
        " ".join(
            [
                line,
                *(f"--declare {name}=N" for name in lacking),
                *(f"--declare {name}={value}" for name, value in named.items()),
            ]
        ),
    )
    written = (*(f"{name} = N" for name in lacking), *(f'{name} = "{value}"' for name, value in named.items()))
    yield "or", f"in fleet.toml, beside url = {_quoted(node.url)}: {', '.join(written)}"
    for name in (*lacking, *named):
        yield "", f"{name}: {_MEANS[name]}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
