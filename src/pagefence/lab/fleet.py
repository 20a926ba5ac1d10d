"""A fleet of the lab: `pagefence serve` in a fault's world.

`python -m pagefence.lab.fleet --fault NAME --guards SPEC [flags of pagefence serve]`
"""

from __future__ import annotations

import argparse
import sys

from pagefence.engine.command import World, serve_app
from pagefence.lab import faults
from pagefence.run import run


def main(arguments: list[str]) -> int:
    """Serve with a fault switched on."""
    parser = argparse.ArgumentParser(prog="pagefence.lab.fleet", add_help=False)
    parser.add_argument("--fault", required=True)
    parser.add_argument("--guards", default="on")
    chosen, rest = parser.parse_known_args(arguments)
    fault = faults.find(chosen.fault)
    world = World(
        decisions=fault.decisions(chosen.guards),
        worker_command=("pagefence.lab.worker", fault.name, chosen.guards),
        settings=fault.world,
    )
    return run(serve_app, rest, world)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
