"""The matrix fault x detector for a terminal, for a page of documentation, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from xml.sax.saxutils import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pagefence.lab.matrix import COLUMNS, CONTROL, Mark, Results
from pagefence.sim.svg_marks import STYLE

SIGNS: dict[Mark, str] = {
    Mark.CAUGHT: "X",
    Mark.HOLDS: "#",
    Mark.LEAKS: "!",
    Mark.CORRUPT: "c",
    Mark.SILENT: ".",
    Mark.OTHER: "o",
    Mark.CANNOT: "-",
    Mark.NOT_RUN: " ",
    Mark.VOID: "?",
}
KEY = (
    "X caught for its own reason   o for another   . silent   # with these guards nothing foreign reaches a client   "
    "! something does   c a wrong token does, nobody else's   - cannot show there   ? nothing was exercised   "
    "(blank) not run"
)
_COLOURS = {
    Mark.CAUGHT: "green",
    Mark.HOLDS: "blue",
    Mark.LEAKS: "red",
    Mark.CORRUPT: "yellow",
    Mark.OTHER: "yellow",
    Mark.VOID: "red",
}
_FILLS: dict[Mark, str] = {
    Mark.CAUGHT: "#2e9e5b",
    Mark.HOLDS: "#3b78c3",
    Mark.LEAKS: "#d9663d",
    Mark.CORRUPT: "#e0b04a",
    Mark.SILENT: "#e7eaee",
    Mark.OTHER: "#d9a520",
    Mark.CANNOT: "#f6f7f9",
    Mark.NOT_RUN: "#ffffff",
    Mark.VOID: "#c93a3a",
}


def terminal(results: Results, names: Sequence[str]) -> RenderableType:
    """One row per fault; detectors by number, told below the table."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("fault", no_wrap=True)
    for number in range(1, len(COLUMNS) + 1):
        table.add_column(str(number), justify="right", min_width=len(str(number)))
    for name in names:
        cells = [results.get(name, column).mark for column in COLUMNS]
        table.add_row(name, *(Text(SIGNS[mark], style=_COLOURS.get(mark, "dim")) for mark in cells))
    return Group(table, Text(_numbered(), style="dim"), Text(KEY, style="dim"))


def _numbered() -> str:
    return "  ".join(f"{number} {column}" for number, column in enumerate(COLUMNS, 1))


def markdown(results: Results, names: Sequence[str]) -> str:
    """The page: the matrix in signs, then every cell in words."""
    lines = [
        "# Fault by detector",
        "",
        "Produced by `make matrix` (`pagefence lab matrix --engine --probes`). Do not edit.",
        "",
        f"{KEY}.",
        "",
        "![the matrix as a picture](matrix.svg)",
        "",
        "| fault | " + " | ".join(COLUMNS) + " |",
        "|---|" + ":-:|" * len(COLUMNS),
    ]
    for name in names:
        signs = (SIGNS[results.get(name, column).mark].strip() or " " for column in COLUMNS)
        lines.append(f"| {name} | " + " | ".join(signs) + " |")
    lines += ["", "## In words", ""]
    for name in names:
        lines += [f"**{name}**", ""]
        for column in COLUMNS:
            cell = results.get(name, column)
            if cell.mark is not Mark.NOT_RUN:
                lines.append(f"- {column}: {cell.mark}{f' ({cell.text})' if cell.text else ''}")
        lines.append("")
    return "\n".join(lines)


def svg(results: Results, names: Sequence[str]) -> str:
    """A picture that needs nothing else; every cell has its words as a tooltip."""
    left, top, size = 170, 150, 26
    width, height = left + size * len(COLUMNS) + 90, top + size * len(names) + 80
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="t"><title id="t">Which detector catches which fault</title>',
        f"<style>{STYLE}.s{{font-weight:600;text-anchor:middle}}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#c9d1da"/>',
    ]
    for number, column in enumerate(COLUMNS):
        x = left + size * number + size / 2 + 4
        parts.append(f'<text transform="translate({x},{top - 8}) rotate(-52)">{escape(column)}</text>')
    for row, name in enumerate(names):
        y = top + size * row
        weight = ' font-style="italic"' if name == CONTROL else ""
        parts.append(f'<text x="{left - 10}" y="{y + 17}" text-anchor="end"{weight}>{escape(name)}</text>')
        for number, column in enumerate(COLUMNS):
            cell = results.get(name, column)
            x = left + size * number
            ink = "#ffffff" if cell.mark in (Mark.CAUGHT, Mark.HOLDS, Mark.LEAKS, Mark.VOID) else "#5b6672"
            told = escape(f"{name}, {column}: {cell.mark} {cell.text}".strip())
            parts.append(
                f'<g><title>{told}</title><rect x="{x + 1}" y="{y + 1}" width="{size - 2}" height="{size - 2}" rx="3" '
                f'fill="{_FILLS[cell.mark]}" stroke="#dfe4ea"/>'
                f'<text class="s" x="{x + size / 2}" y="{y + 17}" style="fill:{ink}">'
                f"{escape(SIGNS[cell.mark])}</text></g>"
            )
    for line, words in enumerate(wrap(KEY.replace("   ", " | "), (width - 32) // 7)):
        parts.append(f'<text x="16" y="{height - 54 + 17 * line}">{escape(words)}</text>')
    return "\n".join([*parts, "</svg>"])
