"""`python -m tests.edge.soak`: two hours of traffic in minutes, before upstreams that die, hang and lie.

What has to hold: no client reads another's words, nothing half looks whole, errors have OpenAI's shape, no descriptor
stays open, memory stays flat, /metrics says what the kernel says, and the end loses nothing. 0 when it does, else 1.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from pagefence.ticker import Ticker
from tests.edge.soak.faults import FAULTS
from tests.edge.soak.run import Plan, soak, table


def main() -> int:
    """130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.edge.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lies", type=float, default=0.15, help="share of answers that are lies")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="plant it, and see the soak fail")
    parser.add_argument("--keep", type=Path, help="folder for logs")
    asked = parser.parse_args()
    plan = Plan(asked.seconds, asked.seed, asked.clients, asked.workers, lies=asked.lies, fault=asked.fault)
    with tempfile.TemporaryDirectory(prefix="pf-soak-edge-") as own, Ticker(Console(stderr=True)) as tick:
        folder = asked.keep or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            outcome = asyncio.run(soak(plan, folder, tick))
        except KeyboardInterrupt:
            return 130
        lines = [f"{at:.1f},{mib:.2f},{requests}\n" for at, mib, requests in outcome.memory]
        (folder / "memory.csv").write_text("".join(["seconds,mib,requests\n", *lines]))
    print(table(plan, outcome))
    print("FAILED" if outcome.broken else "holds")
    return 1 if outcome.broken else 0


if __name__ == "__main__":
    sys.exit(main())
