"""`pagefence advisories`: the bundled list."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pagefence.files import check_writable, write_atomically
from pagefence.mistakes import Usage
from pagefence.probes.gate.advisories import Advisory, bundled

SCHEMA_VERSION = 1


def advisories(
    engine: Annotated[str | None, typer.Option("--engine", metavar="NAME", help="Only of this engine.")] = None,
    json: Annotated[str | None, typer.Option("--json", metavar="FILE", help="As JSON; - for standard output.")] = None,
) -> None:
    """The public advisories that `pagefence gate` knows, with the versions that they affect. Asks nobody.

    Example: pagefence advisories --engine vllm
    """
    listed = bundled()
    known = sorted({entry.engine for entry in listed.entries})
    if engine is not None and engine not in known:
        raise Usage(f"no advisory is listed for {engine!r}; listed are {', '.join(known)}")
    entries = listed.entries if engine is None else listed.of(engine)
    age = listed.age(datetime.now(tz=UTC).date())
    if json not in (None, "-"):
        check_writable(Path(str(json)))
    if json is not None:
        document = {"schema_version": SCHEMA_VERSION, "updated": listed.updated, "advisories": [*map(asdict, entries)]}
        content = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        if json == "-":
            sys.stdout.buffer.write(content)
            sys.stdout.flush()
            return
        write_atomically(Path(json), content)
    console = Console(highlight=False)
    console.print(_table(entries))
    console.print(Text(f"\n{len(entries)} advisories; {age}", style="dim"))


def _table(entries: tuple[Advisory, ...]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name, folds in (("id", False), ("engine", False), ("affected", False), ("fixed", False), ("keeps", False)):
        table.add_column(name, no_wrap=not folds)
    table.add_column("what, and where it is told", overflow="fold")
    for entry in entries:
        told = Text(f"{entry.title}\n").append(entry.reference, style="dim")
        table.add_row(entry.id, entry.engine, entry.affected, entry.fixed or "-", entry.rule, told)
    return table
