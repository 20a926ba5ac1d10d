"""How sure a run is, for a person: a row for each probe that counts its answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from pagefence.verdict.power import Claim


def claims_table(claims: Sequence[Claim]) -> Table:
    """n, controls with their exact interval, both bounds, and the chance to find what has the stated rate."""
    table = Table(title="how sure", title_justify="left", title_style="bold", box=None, padding=(0, 1), pad_edge=False)
    for title in ("probe", "n", "controls", "a hit shows", "shown p <=", "hit p <=", "would have found"):
        table.add_column(title, overflow="fold", style="dim" if title == "probe" else "")
    for claim in claims:
        low, high = claim.surfacing
        table.add_row(
            Text(claim.probe),
            f"{claim.n:,}",
            f"{claim.controls[0]:,}/{claim.controls[1]:,}",
            f"{_floored(low)} to {1 - float(_floored(1 - high)):.2f}",
            _bound(claim.upper_bound),
            _bound(claim.leak_bound),
            f"a rate of {claim.leak_rate:g} with probability {_chance(claim.found)}",
        )
    return table


def _bound(bound: float | None) -> str:
    return "-" if bound is None else "1 (none)" if bound == 1 else f"{bound:.3g}"


def _chance(found: float) -> str:
    """Two digits, never rounded up: nothing is found for certain."""
    return "> 0.99" if found > 0.99 else _floored(found)


def _floored(chance: float) -> str:
    return f"{math.floor(100 * chance + 1e-9) / 100:.2f}"
