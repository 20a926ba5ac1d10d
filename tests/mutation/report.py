"""The score, and every survivor that nobody has explained."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from .explained import reasons
from .ledger import Ledger
from .mutants import SourceFile
from .session import Survey


def report(sources: Sequence[SourceFile], ledger: Ledger, survey: Survey, least: float) -> int:
    """Zero when at least `least` per cent of what could be noticed was noticed, and every explanation is still true."""
    explained, console = reasons(), Console(soft_wrap=True, width=100)
    table = Table("file", "mutants", "killed", "equivalent", "survived", "not judged", "score")
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    totals = [0, 0, 0, 0, 0]
    survivors: list[tuple[str, str, str]] = []
    wrong: list[str] = []
    for source in sources:
        row = [len(source.places), 0, 0, 0, 0]
        for mutant in source.places:
            entry = ledger.verdict(mutant, survey)
            if entry is None:
                row[4] += 1
            elif entry.noticed:
                row[1] += 1
                wrong += [f"explained, and yet killed: {' | '.join(mutant.key)}"] if mutant.key in explained else []
            elif mutant.key in explained:
                row[2] += 1
            else:
                row[3] += 1
                survivors.append(mutant.key)
        table.add_row(source.file, *map(str, row), _score(row))
        totals = [total + value for total, value in zip(totals, row, strict=True)]
    table.add_section()
    table.add_row("all", *map(str, totals), _score(totals))
    known = {mutant.key for source in sources for mutant in source.places}
    files = {source.file for source in sources}
    missing = [key for key in explained if key[0] in files and key not in known]
    wrong += [f"explained, but there is no such mutant: {' | '.join(key)}" for key in missing]
    for key in survivors:
        console.print("survived: " + " | ".join(key), markup=False, highlight=False)
    for line in wrong:
        console.print(line, markup=False, highlight=False)
    console.print(table)
    judged = totals[0] - totals[2]
    return 0 if not wrong and judged and 100 * totals[1] >= least * judged else 1


def _score(row: list[int]) -> str:
    judged = row[0] - row[2]
    return f"{100 * row[1] / judged:.1f} %" if judged else "-"
