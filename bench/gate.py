"""What gating a large fleet costs: simulated SGLang nodes behind one process, each asked as a real one is.

python -m bench.gate [--nodes N] [--ranks N] [--rounds N] [--profile]
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import statistics
import time
from collections.abc import Sequence

from tests.fleet.many import many

from pagefence.fleet import Fleet, Keys, Target
from pagefence.fleet.describe import describe
from pagefence.probes.gate import Policy, gate
from pagefence.verdict import decide


async def _gate(urls: Sequence[str]) -> str:
    half = len(urls) // 2
    async with Fleet(Target(None, tuple(urls[:half]), tuple(urls[half:])), Keys(), 30.0) as fleet:
        return decide([gate(await describe(fleet), policy=Policy(inside=True))]).name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--ranks", type=int, choices=(1, 8), default=1, help="data-parallel ranks of each node")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="show where the time of one round goes")
    given = parser.parse_args()
    with many(given.nodes, given.ranks) as urls:
        if given.profile:
            profile = cProfile.Profile()
            profile.runcall(asyncio.run, _gate(urls))
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        took, cpu = [], []
        for _ in range(given.rounds):
            started, used = time.perf_counter(), time.process_time()
            verdict = asyncio.run(_gate(urls))
            took.append(time.perf_counter() - started)
            cpu.append(time.process_time() - used)
        print(
            f"{given.nodes} nodes x {given.ranks} ranks: {verdict}, median {statistics.median(took):.2f} s "
            f"(least {min(took):.2f} s), {statistics.median(cpu):.2f} s of one core"
        )


if __name__ == "__main__":
    main()
