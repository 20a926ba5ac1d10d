"""A soak from its start to its figures: trouble for so long, then rest, then an orderly end."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired

from tests.edge.soak.asker import Asker, Gone
from tests.edge.soak.clients import TENANTS, Client, Crowd
from tests.edge.soak.guard import Guard, Sockets, idle_connections, write_settings
from tests.edge.soak.judge import Expected, Seen, judge
from tests.edge.soak.lies import LIES
from tests.edge.soak.upstreams import Upstreams, upstreams
from tests.edge.soak.words import PATHS, Wish, body_of

Tick = Callable[[str, int, int], None]
REST_S = 20.0
HEALTH = 3  # descriptors: a question of health may be on its way, or not
SHORT_S = 10.0
LONG_S = 60.0  # a run of this length has to have seen everything, and shows a slope
# Of each worker over the second half, as a line through the least of every few seconds has it: what a worker holds
# moves by some MiB with how much comes at once, and with how many readers stall (2.3 MiB each). In five minutes of
# 200 requests a second that is half a KiB for each.
GROWTH_MIB = 8.0
BUCKETS = 8
LONGER = 4  # times as long may a run take, on a busy machine, until it has seen what it is for
RACED = 0.002  # of all answers: more would be no race


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for. `fault`: planted in the edge, by name."""

    seconds: float = 300.0
    seed: int = 0
    clients: int = 200
    workers: int = 2
    upstreams: int = 3
    lies: float = 0.15
    reload_s: float = 10.0
    fault: str | None = None

    @property
    def short(self) -> bool:
        """A run of seconds, in which nobody waits for long."""
        return self.seconds < SHORT_S


@dataclass(slots=True)
class Outcome:
    """What was seen; `broken`: what must not be."""

    crowd: Crowd
    trouble: Upstreams
    memory: list[tuple[float, float, int]] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    reloads: int = 0
    drained: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def lies(self) -> Counter[str]:
        """Those that were told so far, also by processes that are gone."""
        log = self.trouble.all[0].log
        return Counter(log.read_text().splitlines() if log.exists() else ())

    @property
    def requests(self) -> int:
        return sum(self.crowd.counts[kind] for kind in KINDS)

    @property
    def growth(self) -> tuple[float, int]:
        """MiB by which memory grew over the second half, and requests meanwhile."""
        half = [each for each in self.memory if each[0] >= self.memory[-1][0] / 2] if self.memory else []
        if len(half) < 2 * BUCKETS:
            return 0.0, 0
        size = len(half) // BUCKETS
        least = [min(half[at : at + size], key=lambda each: each[1]) for at in range(0, size * BUCKETS, size)]
        slope = statistics.linear_regression([at for at, _, _ in least], [mib for _, mib, _ in least]).slope
        return slope * (half[-1][0] - half[0][0]), half[-1][2] - half[0][2]


KINDS = ("whole", "broken", "half", "refused", "left", "cut", "gone", "raced", "wrong", "hang")


async def soak(plan: Plan, folder: Path, tick: Tick) -> Outcome:
    """Raises AssertionError where the edge does not even begin."""
    behind = upstreams(plan.upstreams, plan.lies, plan.seed, folder)
    patience = 0.4 if plan.short else 1.0
    settings = write_settings(folder, [each.url for each in behind.all], plan.workers, patience=patience)
    behind.every_s = 0.5 if plan.short else 3.0
    outcome = Outcome(Crowd(0), behind)
    for each in behind.all:
        each.start()
    guard = Guard(folder, settings, [each.port for each in behind.all], plan.fault)
    try:
        tick("starting", 0, 0)
        for each in behind.all:
            await each.listens()
        await guard.ready(plan.workers)
        outcome.crowd.port = guard.port
        await _soaked(plan, guard, outcome, tick)
    except (TimeoutError, OSError, Gone, TimeoutExpired) as error:
        outcome.broken.append(f"it did not come to its end: {type(error).__name__} {error}")
    finally:
        guard.end()
        for each in behind.all:
            each.kill()
    outcome.broken += outcome.crowd.broken
    outcome.broken += _totals(plan, outcome)
    return outcome


async def _soaked(plan: Plan, guard: Guard, outcome: Outcome, tick: Tick) -> None:
    crowd = outcome.crowd
    await _warm(crowd)
    outcome.descriptors.append(await _at_rest(guard, outcome, None))
    patient = not plan.short
    clients = [Client(crowd, Random(f"{plan.seed}/{number}"), patient) for number in range(plan.clients)]
    running = [asyncio.create_task(client.run()) for client in clients]
    around = [
        asyncio.create_task(outcome.trouble.trouble()),
        asyncio.create_task(_reloads(plan, guard, outcome)),
        asyncio.create_task(_measures(guard, outcome)),
    ]
    began = time.monotonic()
    while not crowd.broken:
        spent = time.monotonic() - began
        if spent > plan.seconds and (spent > LONGER * plan.seconds or not missing(plan, outcome)):
            break
        tick(_progress(outcome), round(spent), round(plan.seconds))
        ended = next((task for task in (*running, *around) if task.done()), None)
        if ended is not None:
            ended.result()
        await asyncio.sleep(0.2)
    crowd.stop.set()
    tick("waiting for the last answers", 0, 0)
    for task in (*around, *(running if crowd.broken else ())):
        task.cancel()
    await asyncio.gather(*around, return_exceptions=True)
    await asyncio.gather(*running, return_exceptions=bool(crowd.broken))
    if crowd.broken:
        return
    tick("resting", 0, 0)
    outcome.trouble.honest_again()
    for each in outcome.trouble.all:
        await each.listens()
    outcome.descriptors.append(await _at_rest(guard, outcome, outcome.descriptors[0]))
    tick("comparing figures", 0, 0)
    await _counted(guard, outcome)
    await _figures_agree(guard, outcome)
    tick("draining", 0, 0)
    await _drains(plan, guard, outcome)


async def _warm(crowd: Crowd) -> None:
    """What is made once and kept: threads that count, tables."""
    client = Client(crowd, Random("warm"), honest=True)
    for _ in range(8):
        await client.asks()
        await client.asks_too_much()
        client.leave()  # the kernel chooses a worker for each connection


async def _reloads(plan: Plan, guard: Guard, outcome: Outcome) -> None:
    while True:
        await asyncio.sleep(plan.reload_s)
        guard.reload()
        outcome.reloads += 1


async def _measures(guard: Guard, outcome: Outcome) -> None:
    began = time.monotonic()
    while True:
        outcome.memory.append((time.monotonic() - began, guard.memory_mib(), outcome.requests))
        await asyncio.sleep(0.5)


async def _at_rest(guard: Guard, outcome: Outcome, most: int | None) -> int:
    """Nobody asks: what is open goes back to what it was. The least that was seen, for reading figures opens some."""
    end, found = time.monotonic() + REST_S, list[int]()
    while time.monotonic() < end:
        if guard.sockets().clients == 0:
            found.append(guard.descriptors())
            if len(found) >= 5 and (most is None or min(found) <= most + HEALTH):
                return min(found)
        await asyncio.sleep(0.1)
    if not found:
        outcome.broken.append(f"connections stay open though nobody asks: {guard.sockets()}")
        return guard.descriptors()
    outcome.broken.append(f"{min(found)} descriptors at rest, {most} before")
    return min(found)


async def _counted(guard: Guard, outcome: Outcome) -> None:
    """Nothing is in progress any more, and every reply that a client read was counted as what it was."""
    crowd, metrics = outcome.crowd, await guard.metrics()
    if metrics.sum("pagefence_edge_requests_in_flight") != 1:  # which is this question
        outcome.broken.append("requests are in flight though nobody asks")
    unread = sum(crowd.counts[kind] for kind in ("left", "cut", "gone"))
    refused_early = {400, 408, 503}  # before there is a request that could be counted
    for status, replies in sorted(crowd.statuses.items()):
        counted = metrics.sum("pagefence_edge_requests_total", status=str(status))
        least = 0 if status in refused_early else replies
        if not least <= counted <= replies + unread:
            outcome.broken.append(f"{counted:.0f} replies {status} are counted, clients read {replies}")


async def _figures_agree(guard: Guard, outcome: Outcome) -> None:
    """Idle clients and long streams: /metrics says as many as the kernel. Both move, so several looks are taken."""
    for _ in range(4):
        said, real = await _figures(guard)
        if said == real:
            return
    outcome.broken.append(f"/metrics says {said}, and there are {real}")


async def _figures(guard: Guard) -> tuple[Sockets, Sockets]:
    idle = idle_connections(guard.port, 40)
    streams = [await _stream(guard.port, 30, 130) for _ in range(10)]
    end, said, real = time.monotonic() + 5, Sockets(-1, -1), Sockets(0, 0)
    try:
        while time.monotonic() < end and said != real:
            metrics, real = await guard.metrics(), guard.sockets()
            at_upstream = int(metrics.sum("pagefence_edge_upstream_connections"))
            said = Sockets(int(metrics.sum("pagefence_edge_connections")), at_upstream)
            busy = metrics.sum("pagefence_edge_upstream_connections", state="busy")
            if real.clients < 45 or busy < 5:
                said = Sockets(-1, -1)
                await asyncio.sleep(0.1)
    finally:
        for sock in idle:
            sock.close()
        for asker, _ in streams:
            asker.leave()
    return said, real


async def _drains(plan: Plan, guard: Guard, outcome: Outcome) -> None:
    """SIGTERM while streams are going out and requests come in: each that had begun gets all of its answer."""
    streams = [await _stream(guard.port, 15, 50) for _ in range(20)]
    idle = idle_connections(guard.port, 5)
    for asker, _ in streams:
        while b"nonce" not in bytes(asker.buffered):
            await asyncio.wait_for(asker.more(), 20)
    late = [await _stream(guard.port, 2, 10) for _ in range(20)]
    guard.terminate()
    for asker, expected in (*streams, *late):
        try:
            seen = judge(expected, await asker.reply())
        except Gone:
            seen = Seen("drains", "gone", f"late: {(asker, expected) in late}")
        if seen.kind != "whole":
            outcome.broken.append(f"lost while the edge ended: {seen}")
        outcome.drained += seen.kind == "whole"
        asker.leave()
    code = await asyncio.get_running_loop().run_in_executor(None, guard.process.wait, 30)
    if code != 0:
        outcome.broken.append(f"the edge ended with {code}")
    for sock in idle:
        sock.settimeout(5)
        if sock.recv(1) != b"":
            outcome.broken.append("an idle connection was told something")
        sock.close()
    if guard.said("internal_error"):
        outcome.broken.append("the edge had errors of its own, see its log")
    if guard.said("reload_refused"):
        outcome.broken.append("a reload was refused")


async def _stream(port: int, parts: int, pause_ms: int) -> tuple[Asker, Expected]:
    wish = Wish.made(Random(), parts, 0, pause_ms, honest=True)
    asker = await Asker.connected(port)
    expected = Expected(wish, "chat", True, "drains", "acme")
    asker.ask(body_of("chat", wish, True), PATHS["chat"], TENANTS["acme"])
    return asker, expected


# --- what it comes to ---------------------------------------------------------------------------------------------


def _totals(plan: Plan, outcome: Outcome) -> list[str]:
    broken, crowd = [], outcome.crowd
    salts = [salt for found in crowd.salts.values() for salt in found]
    if any(len(found) != 1 for found in crowd.salts.values()) or len(set(salts)) != len(salts):
        broken.append("isolation keys are not one for each tenant")
    if crowd.counts["raced"] > max(2.0, RACED * outcome.requests):
        broken.append(f"{crowd.counts['raced']} answers of nobody: too many to be races")
    grew, requests = outcome.growth
    if plan.seconds >= LONG_S and grew > GROWTH_MIB * plan.workers:
        broken.append(f"memory grew by {grew:.1f} MiB over the second half, {requests} requests")
    if not broken and not outcome.broken:
        broken += [f"the run is void: no {what}" for what in missing(plan, outcome)]
    return broken


def missing(plan: Plan, outcome: Outcome) -> Sequence[str]:
    """What a soak is for and has not seen; one without it has shown nothing."""
    counts, crowd, told = outcome.crowd.counts, outcome.crowd, outcome.lies
    seen = {
        "answer was whole": counts["whole"] > 2 * plan.clients,
        "stream broke off": counts["broken"] > 0,
        "malformed answer": counts["502 upstream_malformed"] > 0,
        "client that left before its answer": counts["leaves_before: left"] > 0,
        "upstream was killed": outcome.trouble.counts["killed"] > 0,
        "tenant but one": len(crowd.salts) > 1,
    }
    if plan.seconds >= LONG_S:
        seen |= {
            "upstream was stopped": outcome.trouble.counts["stopped"] > 0,
            "upstream that died": counts["502 upstream_died"] > 0,
            "upstream too slow": counts["504 upstream_timeout"] > 0,
            "slow reader got all": counts["reads_slowly: whole"] > 0,
            "stalled reader was cut off": counts["stalls: cut"] > 0,
            "client left within its answer": counts["leaves_within: left"] > 0,
            "pipelined answer": counts["pipelines: whole"] > 0,
            "prompt was too long": counts["400 context_length_exceeded"] > 0,
            "reload": outcome.reloads > 0,
            **{f"lie `{name}`": told[name] > 0 for name in LIES},
        }
    return [what for what, was in seen.items() if not was]


def _progress(outcome: Outcome) -> str:
    counts, trouble = outcome.crowd.counts, outcome.trouble.counts
    return (
        f"{counts['whole']} whole, {counts['broken']} broken off, {counts['refused']} refused, {counts['left']} left, "
        f"{trouble['killed']} killed, {trouble['stopped']} stopped, {counts['wrong']} wrong, {counts['hang']} hang"
    )


def table(plan: Plan, outcome: Outcome) -> str:
    """The figures, a line each."""
    counts = outcome.crowd.counts
    grew, requests = outcome.growth
    lies = outcome.lies
    memory = [mib for _, mib, _ in outcome.memory] or [0.0]
    rows: list[tuple[str, object]] = [
        ("seed, seconds, clients, workers", f"{plan.seed}, {plan.seconds:g}, {plan.clients}, {plan.workers}"),
        ("requests", outcome.requests),
        *((kind, counts[kind]) for kind in KINDS),
        *((f"  {code}", number) for code, number in sorted(counts.items()) if code[:3].isdigit()),
        ("upstreams killed / stopped", f"{outcome.trouble.counts['killed']} / {outcome.trouble.counts['stopped']}"),
        ("lies", f"{lies.total()} of {len(lies)} kinds"),
        ("reloads", outcome.reloads),
        ("descriptors at rest", " -> ".join(map(str, outcome.descriptors))),
        ("memory, own, all workers, MiB", f"{memory[0]:.1f} -> {memory[-1]:.1f}, most {max(memory):.1f}"),
        ("growth over the second half, MiB", f"{grew:+.2f} in {requests} requests"),
        ("whole answers while it ended", outcome.drained),
    ]
    lines = [f"  {what:<38}{figure}" for what, figure in rows]
    return "\n".join([*lines, *(f"  BROKEN: {what[:600]}" for what in outcome.broken[:20])])
