"""`python -m tests.soak`: two prefill and two decode workers at full load while clients leave, stall, and workers die.

What has to hold: no client gets a token that is not its own, no page is lost, no request hangs, no process grows. A
request that needed a worker that was killed may end in an error that says so; such errors are counted.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import torch
from rich.console import Console

from pagefence.engine.model.decoder import Decoder
from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.engine.model.tokenizer import Tokenizer
from pagefence.models import resolve
from pagefence.ticker import Ticker
from tests.alone import GREEDY, Ask
from tests.e2e.clients import Manner, Result, Right, ask_fleet, prose
from tests.e2e.fleets import KEY_A, KEY_B, Fleet, serving

MODEL = "smollm2-135m-instruct"
WORKERS = ("decode-0", "decode-1", "prefill-0", "prefill-1")
CLIENTS = 12
# More clients than are taken at a time, more taken than the rows there are, and pools that hold three long prompts.
FLAGS = ("--prefill-workers", "2", "--decode-workers", "2", "--max-requests", "4", "--max-in-flight", "10",
         "--context", "1024", "--kv-pool-tokens", "2560", "--page-size", "16", "--chunk-tokens", "64",
         "--dtype", "float32")  # fmt: skip
MANNERS: tuple[Manner, ...] = ("whole", "whole", "stream", "stream", "stalls", "leaves before", "leaves within")
PREFIXES = 4
LIMIT_S = 300.0
LONGER = 4  # times as long may a run take, on a busy machine, until it has seen what it is for
KILL_EVERY_S = (15.0, 45.0)
# Moves by some MiB with what torch's allocator keeps.
GROWTH_MIB = 32.0


@dataclass
class Run:
    """What happens, as it happens. Threads add to it under `lock`."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)
    results: list[Result] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    pids: dict[str, int] = field(default_factory=dict)
    memory: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    broken: list[str] = field(default_factory=list)

    def count(self, kind: str) -> int:
        """Requests that ended so."""
        return sum(result.kind == kind for result in self.results)


@dataclass(frozen=True)
class Growth:
    """Median memory in MiB of a process in the second and in the last quarter of its life under load.

    RSS without what is shared: pools come and go with decode workers that are killed, and are counted by themselves.
    """

    name: str
    lived_s: float
    second: float
    last: float


def right_answers(count: int, seed: int, tick: Ticker) -> list[Right]:
    """Prompts of 10 to 700 tokens, many of which begin alike; greedy and sampled."""
    torch.set_num_threads(1)  # more would wait for each other wherever somebody else computes
    rng = random.Random(seed)
    path = resolve(MODEL)
    model, tokenizer = Decoder.load(path), Tokenizer.load(path)
    made = []
    for number in range(count):
        length = min(700, round(10 * 70 ** rng.random()))
        shared = rng.randint(0, length - 8)
        prompt = prose(tokenizer, 700, rng.randrange(PREFIXES))[:shared] + prose(tokenizer, length - shared, 9 + number)
        sampled = SamplingParams(temperature=0.8, top_p=0.9, seed=rng.randrange(1000))
        ask = Ask(tuple(prompt), rng.randint(8, 48), sampled if number % 2 else GREEDY)
        tick("computing the right answers, alone", number, count)
        made.append(Right.of(model, tokenizer, ask))
    return made


# --- what goes on at the same time --------------------------------------------------------------------------------


def be_a_client(run: Run, fleet: Fleet, answers: list[Right], rng: random.Random) -> None:
    """One request after the other."""
    while not run.stop.is_set():
        key, manner = rng.choice((KEY_A, KEY_A, KEY_B)), rng.choice(MANNERS)
        result = ask_fleet(fleet, key, rng.choice(answers), manner, rng, LIMIT_S)
        with run.lock:
            run.results.append(result)
        if result.kind == "error":
            run.stop.wait(rng.uniform(0.5, 2.0))


def kill_workers(run: Run, fleet: Fleet, rng: random.Random) -> None:
    """Any of them, at any time; but seldom another one while one is missing, or a slow machine would never serve."""
    while not run.stop.wait(rng.uniform(*KILL_EVERY_S)):
        if len(run.pids) < len(WORKERS) and rng.random() < 0.8:
            continue
        name, pid = rng.choice(sorted(run.pids.items()))
        with contextlib.suppress(psutil.NoSuchProcess):
            worker = psutil.Process(pid)
            if worker.ppid() != fleet.process.pid:
                continue  # it died meanwhile, and somebody else has its number
            worker.kill()
            run.kills[name.partition("-")[0]] += 1


def watch(run: Run, fleet: Fleet, started: float) -> None:
    """Who is there, and how much memory each has to itself."""
    client = httpx.Client(verify=False, timeout=5.0)
    while not run.stop.wait(1.0):
        pids: dict[str, int] = {}
        with contextlib.suppress(httpx.HTTPError):
            for one in client.get(f"{fleet.router}/server_info").json()["workers"]:
                # One that was killed a moment ago may still be listed.
                with contextlib.suppress(httpx.HTTPError):
                    pids[one["name"]] = int(client.get(f"{one['url']}/server_info").json()["pid"])
        run.pids = pids or run.pids
        now = time.monotonic() - started
        for name, pid in (("router", fleet.process.pid), *pids.items()):
            with contextlib.suppress(psutil.NoSuchProcess), run.lock:
                memory = psutil.Process(pid).memory_info()
                run.memory[name, pid].append((now, (memory.rss - memory.shared) / 2**20))


def growth(run: Run, seconds: float) -> list[Growth]:
    """Of every process that lived for a minute, or in a short run for a third of it."""
    found, least_s = [], min(60.0, seconds / 3)
    with run.lock:
        memory = sorted((key, tuple(samples)) for key, samples in run.memory.items())
    for (name, _), samples in memory:
        first, end = samples[0][0], samples[-1][0]
        if end - first < least_s:
            continue
        quarter = (end - first) / 4
        second = [rss for at, rss in samples if quarter <= at - first < 2 * quarter]
        last = [rss for at, rss in samples if 3 * quarter <= at - first]
        if second and last:
            found.append(Growth(name, end - first, statistics.median(second), statistics.median(last)))
    return found


# --- the end ------------------------------------------------------------------------------------------------------


def held_too_long(fleet: Fleet) -> list[str]:
    """Pages and memory that nobody gave back, once nobody asks and every worker is there."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if sorted(fleet.workers()) == sorted(WORKERS):
                break
        time.sleep(0.5)
    else:
        return ["not every worker came back"]
    try:
        pools = fleet.at_rest(60)
    except AssertionError as held:
        return [str(held)]
    lost = [
        f"{name} lost pages: {pages}"
        for name, pages in pools.items()
        if pages["free"] + pages["cached"] + pages["retired"] != pages["total"]
    ]
    for name, info in fleet.workers().items():
        # Its own, and prefill has those of the decode workers that live: of no dead one.
        mapped, most = pools_mapped(info["pid"]), 3 if name.startswith("prefill") else 1
        lost += [f"{name} maps {mapped} pools"] if mapped > most else []
    return lost


def pools_mapped(pid: int) -> int:
    """How many KV segments a process has in its address space."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:pagefence-kv")


def ask_all_again(fleet: Fleet, answers: list[Right]) -> list[Result]:
    """The fleet that is left answers everything, as if nothing had been."""
    rng = random.Random(0)
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda right: ask_fleet(fleet, KEY_A, right, "whole", rng, LIMIT_S), answers))


def soak(
    run: Run, seconds: float, seed: int, answers: list[Right], folder: Path, tick: Ticker, flags: tuple[str, ...] = ()
) -> list[Growth]:
    """Load for so long, then rest. What is wrong is in `run.broken`; Ctrl-C raises, and the fleet is ended."""
    tick("starting the fleet")
    with serving(folder, *FLAGS, *flags) as fleet:
        started = time.monotonic()
        tasks: list[tuple[Any, ...]] = [
            (watch, run, fleet, started),
            (kill_workers, run, fleet, random.Random(f"{seed}/k")),
        ]
        tasks += [(be_a_client, run, fleet, answers, random.Random(f"{seed}/{i}")) for i in range(CLIENTS)]
        run.pids = {name: int(info["pid"]) for name, info in fleet.workers().items()}
        threads = [threading.Thread(target=task, args=rest, daemon=True) for task, *rest in tasks]
        for thread in threads:
            thread.start()
        try:
            while (now := time.monotonic() - started) < seconds or (now < LONGER * seconds and missing(run, seconds)):
                tick(_progress(run), round(now), round(seconds))
                time.sleep(0.5)
        except KeyboardInterrupt:
            run.stop.set()
            fleet.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)  # then `serving` sends another one, and what is in flight is cut off
            raise
        run.stop.set()
        for thread in threads:
            tick("waiting for the last answers")
            thread.join(LIMIT_S + 10)
            if thread.is_alive():
                run.broken.append("a client never came back")
        tick("waiting for every page")
        run.broken += held_too_long(fleet)
        tick("asking everything once more")
        last = ask_all_again(fleet, answers)
        run.broken += [f"after it all: {one.kind} {one.why}" for one in last if one.kind not in ("same", "tie")]
        run.broken += held_too_long(fleet)
    grown = growth(run, seconds)
    run.broken += [f"{one.name} grew" for one in grown if one.last - one.second > GROWTH_MIB]
    run.broken += [f"{one.kind}, {one.manner}: {one.why}" for one in run.results if one.kind in ("wrong", "hang")]
    run.broken += [f"the run is void: no {what}" for what in missing(run, seconds)]
    return grown


def missing(run: Run, seconds: float) -> list[str]:
    """What a soak is for and has not seen; one without it has shown nothing."""
    with run.lock:
        results = list(run.results)
    codes = {result.why for result in results if result.kind == "error"}
    left = {result.manner for result in results if result.kind == "left"}
    seen = {
        "answer was right": run.count("same") > 0,
        "page came from the prefix cache": any(result.cached for result in results),
        "client left before its first token": "leaves before" in left,
        "client left in the middle": "leaves within" in left,
        "reader stalled": any(one.manner == "stalls" and one.kind == "same" for one in results),
        "worker was killed": bool(run.kills),
        "request lost its worker": "worker_lost" in codes,
        "process lived long enough to be measured": bool(growth(run, seconds)),
    }
    return [what for what, was in seen.items() if not was]


def _progress(run: Run) -> str:
    return (
        f"{run.count('same')} right, {run.count('left')} left, {run.count('error')} errors, "
        f"{sum(run.kills.values())} kills, {run.count('wrong')} wrong, {run.count('hang')} hang"
    )


def table(run: Run, grown: list[Growth], seconds: float) -> str:
    """The figures, a line each."""
    by = Counter((result.manner, result.kind) for result in run.results)
    errors = Counter(result.why for result in run.results if result.kind == "error")
    kept = [result for result in run.results if result.kind in ("same", "tie")]
    rows: list[tuple[str, object]] = [
        ("seconds of load asked for", round(seconds)),
        ("requests", len(run.results)),
        ("right, whole / stream / stalled", " / ".join(str(by[m, "same"]) for m in ("whole", "stream", "stalls"))),
        ("tokens compared", sum(result.tokens for result in kept)),
        ("prompt tokens from the cache", sum(result.cached for result in kept)),
        ("differ at a tie", run.count("tie")),
        ("left before the first token", by["leaves before", "left"]),
        ("left in the middle", by["leaves within", "left"]),
        *((f"error {code}", number) for code, number in sorted(errors.items())),
        ("killed, prefill / decode", f"{run.kills['prefill']} / {run.kills['decode']}"),
        ("wrong tokens", run.count("wrong")),
        ("hangs", run.count("hang")),
    ]
    for name in ("router", *WORKERS):
        lives = [one for one in grown if one.name == name]
        if lives:
            worst = max(lives, key=lambda one: one.last - one.second)
            life = f"{worst.second:.0f} -> {worst.last:.0f} MiB in {worst.lived_s:.0f} s, worst of {len(lives)}"
            rows.append((f"memory of {name}", life))
    lines = [f"  {what:<34}{figure}" for what, figure in rows]
    return "\n".join([*lines, *(f"  BROKEN: {what[:600]}" for what in run.broken)])


def main() -> int:
    """0 when everything holds, 1 when something does not, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prompts", type=int, default=24, help="how many different ones")
    parser.add_argument("--threads", type=int, help="as of `pagefence serve`; 1 where others compute too")
    asked = parser.parse_args()
    flags = ("--threads", str(asked.threads)) if asked.threads else ()
    with tempfile.TemporaryDirectory(prefix="pf-soak-") as folder, Ticker(Console(stderr=True)) as tick:
        run = Run()
        try:
            answers = right_answers(asked.prompts, asked.seed, tick)
            grown = soak(run, asked.seconds, asked.seed, answers, Path(folder), tick, flags)
        except KeyboardInterrupt:
            print(f"interrupted; until then:\n{table(run, [], asked.seconds)}")
            return 130
        print(table(run, grown, asked.seconds))
    print("FAILED" if run.broken else "holds")
    return 1 if run.broken else 0


if __name__ == "__main__":
    sys.exit(main())
