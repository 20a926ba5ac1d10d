"""One table for all benchmarks: for a terminal, or as Markdown. The first column is a name, the others are figures."""

from __future__ import annotations

from collections.abc import Sequence


def text(head: Sequence[str], rows: Sequence[Sequence[str]], gap: int = 2) -> str:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        first, *others = (
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append((" " * gap).join((first, *others)).rstrip())
    return "\n".join(lines)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same as a Markdown table."""
    rule = ["---", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def figure(value: float | None, digits: int = 3) -> str:
    """So many significant digits, no exponent; a dash where nothing was measured."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    size = abs(value)
    decimals = 0
    while size * 10**decimals < 10 ** (digits - 1) and decimals < 6:
        decimals += 1
    return f"{value:,.{decimals}f}"
