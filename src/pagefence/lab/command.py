"""`pagefence lab`: the fault catalogue, and a run of one fault."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pagefence.lab.faults import FAULTS

lab_app = typer.Typer(help="Known bugs of this class, as faults that can be switched on.", no_args_is_help=True)


@lab_app.command("list")
def list_faults(as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False) -> None:
    """Every fault: what goes wrong, which rules it breaks, where it was seen.

    Run one with: pagefence verify --fault NAME [--guards on|off|LIST]
    """
    if as_json:
        rows = [
            {
                "name": fault.name,
                "summary": fault.summary,
                "mechanism": " ".join(fault.mechanism.split()),
                "reference": fault.reference,
                "rules": fault.rules,
                "outside": fault.outside,
                "hidden_by": fault.hidden_by,
            }
            for fault in FAULTS.values()
        ]
        print(json.dumps(rows, indent=2))
        return
    table = Table("fault", "what goes wrong", "rules", "seen in", box=None, pad_edge=False)
    for fault in FAULTS.values():
        table.add_row(fault.name, fault.summary, " ".join(fault.rules), fault.reference)
    Console().print(table)
