"""The page of faults: what each is, and the shortest way on which the explorer finds it, as a table and a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pagefence.files import one_clear_line
from pagefence.lab.exploring import replay_command, write
from pagefence.lab.faults import FAULTS
from pagefence.lab.hunt import hunt
from pagefence.mistakes import Mistake
from pagefence.sim.explorer import Search
from pagefence.sim.svg import trace_svg
from pagefence.sim.table import trace_markdown
from pagefence.sim.trace import Trace
from pagefence.sim.watch import retold


class NotFound(Mistake):
    """The explorer does not find a fault, or finds it for another reason: the page would be wrong."""


def shortest_trace(name: str, cores: int) -> Trace:
    """The shortest trace of a fault with `--guards off`. Raises UnknownFault, NotFound."""
    fault = FAULTS[name]
    found = hunt(fault, "off", Search(cores=cores)).found
    if found is None or found.rule not in fault.rules:
        raise NotFound(f"{name}: the explorer finds {found and found.rule}, its rules are {', '.join(fault.rules)}")
    replay = replay_command(found.numbers, "--fault", name, "--guards", "off")
    return retold(fault.small_world("off"), found.path, name, "off", replay)


def write_page(folder: Path, cores: int, tell: Callable[[str], None]) -> None:
    """`faults.md` and `traces/NAME.svg` in `folder`. Raises NotFound, CannotWrite."""
    with one_clear_line(folder):
        (folder / "traces").mkdir(parents=True, exist_ok=True)
    lines = [
        "# Faults",
        "",
        "Written by `pagefence lab traces` from the catalogue and from what the explorer found. Do not edit.",
        "Which detector catches which fault, and which guards hold: [the matrix](matrix.md).",
        "",
        *(f"- [{name}](#{name}): {fault.summary}" for name, fault in FAULTS.items()),
        "",
    ]
    for name, fault in FAULTS.items():
        tell(name)
        trace = shortest_trace(name, cores)
        write(folder / "traces" / f"{name}.svg", trace_svg(trace))
        lines += [f"## {name}", "", f"{fault.summary[:1].upper()}{fault.summary[1:]}.", ""]
        lines += [" ".join(fault.mechanism.split()), ""]
        lines += [f"Seen in: {fault.reference}. Breaks: {', '.join(fault.rules)}.", ""]
        lines += [f"![the shortest trace](traces/{name}.svg)", ""]
        lines += ["<details><summary>The same as a table</summary>", "", trace_markdown(trace), "", "</details>", ""]
    write(folder / "faults.md", "\n".join(lines))
