"""What a Prometheus server's histograms can prove, and what they cannot.

They hold how many prompts were longer than L, and how many first tokens came later than t, but not which with which.
One thing follows all the same: a prompt of more than L computed tokens takes at least floor(L), so its first token came
later than any t <= floor(L). If N prompts were longer than L and only M first tokens came later than t, at least N - M
answers were under the floor. Anything less proves nothing: the result is CORRUPT or INCONCLUSIVE, never CLEAN.

Totals of living processes are compared, all of one instant and one process: at its start nothing was in flight. Prompts
are counted when a request ends, first tokens when they come, so requests that ended without one have to be allowed for:
ended - (first tokens - running).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from pagefence.fleet.answer import decode_json, mapping
from pagefence.mistakes import CouldNotAsk
from pagefence.probes.evidence import Check, Evidence, Kind, ProbeResult
from pagefence.probes.latency.findings import REPEATED
from pagefence.probes.latency.shots import NAME
from pagefence.probes.latency.tally import Floors

_LARGEST, _LONGEST_S = 64 << 20, 30.0

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Names of one engine. `uncached`: prompt tokens that were computed; where an engine has none, nothing is proven
    unless no prefix is ever cached."""

    ttft: str
    uncached: str
    prompts: str
    running: str


ENGINES = (
    Metrics(
        "vllm:time_to_first_token_seconds",
        "vllm:request_prefill_kv_computed_tokens",
        "vllm:request_prompt_tokens",
        "vllm:num_requests_running",
    ),
    Metrics(
        "sglang:time_to_first_token_seconds",
        "sglang:uncached_prompt_tokens_histogram",
        "sglang:prompt_tokens_histogram",
        "sglang:num_running_reqs",
    ),
)


@dataclass(frozen=True, slots=True)
class Process:
    """One process's histograms as rising (bound, count of at most that), the last one infinite; and who is running."""

    name: str
    lengths: tuple[tuple[float, float], ...]
    times: tuple[tuple[float, float], ...]
    running: float | None


def judged(processes: list[Process], floors: Floors, missing: list[str]) -> ProbeResult:
    """One row for each process; CORRUPT where counting alone proves that answers were under the floor."""
    checks, evidence = [], []
    for process in processes:
        if process.running is None:
            said = "nobody told how many requests are running"
            checks.append(Check("histograms", process.name, f"not decidable: {said}", undecided=True))
            continue
        bound, later, excess = _most(process, floors)
        if excess < 1:
            checks.append(
                Check("histograms", process.name, "counts alone prove no answer under the floor", undecided=True)
            )
            continue
        what = (
            f"at least {excess:,.0f} prompts of more than {bound:,.0f} computed tokens had their first token within "
            f"{later:.3g} s, and the floor is {_floor(floors, bound):.3g} s"
        )
        kind = Kind.CORRUPT if excess >= REPEATED else Kind.INCONCLUSIVE
        remedy = (
            "Find these requests in the log (`pagefence latency --log FILE`); histograms do not tell which they are."
        )
        checks.append(Check("histograms", process.name, what, kind))
        evidence.append(Evidence(kind, NAME, "histograms", process.name, what, "I4", None, remedy))
    if isinstance(floors.physics, str) and floors.calibration is None:
        missing = [floors.physics, *missing]
    if not evidence:
        proven = "histograms cannot show that every answer was above the floor, only that some were below it"
        what = "; ".join(missing) or proven
        remedy = "Use `pagefence latency --log FILE` or live prompts: there a time and its length belong together."
        evidence.append(Evidence(Kind.INCONCLUSIVE, NAME, "histograms", "", what, remedy=remedy))
    return ProbeResult(NAME, tuple(checks), tuple(evidence))


def _floor(floors: Floors, tokens: float) -> float:
    return max(floors.physical(int(tokens)), floors.practical(int(tokens)))


def _most(process: Process, floors: Floors) -> tuple[float, float, float]:
    """The bounds (tokens, seconds) that prove most, and how many answers they prove to be under the floor."""
    lengths, times, running = process.lengths, process.times, process.running or 0.0
    ended, first = lengths[-1][1], times[-1][1]
    without = max(0.0, ended - first + running)
    best = (0.0, 0.0, 0.0)
    for bound, shorter in lengths:
        if math.isinf(bound):
            continue
        under = [(le, count) for le, count in times if le <= _floor(floors, bound)]
        if not under:
            continue
        later, sooner = under[-1]
        excess = (ended - shorter) - without - (first - sooner)
        if excess > best[2]:
            best = (bound, later, excess)
    return best


def ask(url: str, floors: Floors, no_cache: bool, timeout_s: float = 10.0, matcher: str = "") -> ProbeResult:
    """Ask a Prometheus server for the totals of now and judge them. Raises CouldNotAsk when it does not answer."""
    now = time.time()
    with httpx.Client(timeout=timeout_s, follow_redirects=False) as client:

        def query(metric: str) -> dict[Labels, Any]:
            return _query(client, url, f"{metric}{{{matcher}}}", now)

        for metrics in ENGINES:
            times = query(f"{metrics.ttft}_bucket")
            if not times:
                continue
            lengths, missing = query(f"{metrics.uncached}_bucket"), []
            if not lengths and no_cache:
                lengths = query(f"{metrics.prompts}_bucket")
            if not lengths:
                missing.append(f"there is no {metrics.uncached}, so a cache may explain every fast answer")
            running = query(metrics.running)
            return judged(_processes(lengths, times, running), floors, missing)
    names = " nor ".join(f"{m.ttft}_bucket" for m in ENGINES)
    what = f"the server has neither {names}"
    return ProbeResult(NAME, evidence=(Evidence(Kind.INCONCLUSIVE, NAME, "histograms", "", what),))


def _query(client: httpx.Client, url: str, expression: str, now: float) -> dict[Labels, float]:
    """An instant query: labels (without the name) to value."""
    try:
        asked = {"query": expression, "time": f"{now:.3f}"}
        with client.stream("GET", f"{url.rstrip('/')}/api/v1/query", params=asked) as reply:
            body = mapping(decode_json(_read(reply, url)))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CouldNotAsk(f"the Prometheus server {url} did not answer ({type(error).__name__})") from None
    if reply.status_code != 200 or body.get("status") != "success":
        raise CouldNotAsk(
            f"{url} answered HTTP {reply.status_code}, not as a Prometheus server: {str(body.get('error'))[:120]}"
        )
    found = {}
    listed = mapping(body.get("data")).get("result")
    for sample in listed if isinstance(listed, list) else []:
        labels = {k: v for k, v in mapping(mapping(sample).get("metric")).items() if k != "__name__"}
        value = mapping(sample).get("value")
        try:
            figure = float(value[1])  # type: ignore[index]
        except (TypeError, ValueError, LookupError, OverflowError):
            continue
        if math.isfinite(figure) and figure >= 0:  # Prometheus tells NaN of what has gone: no figure, and not 0
            found[frozenset((k, str(v)) for k, v in labels.items())] = figure
    return found


def _read(reply: httpx.Response, url: str) -> bytes:
    """The body, within a deadline: the client's own time-out begins anew with every byte."""
    raw, until = bytearray(), time.monotonic() + _LONGEST_S
    for chunk in reply.iter_bytes():
        raw += chunk
        if len(raw) > _LARGEST or time.monotonic() > until:
            raise CouldNotAsk(f"the answer of the Prometheus server {url} does not end")
    return bytes(raw)


def _processes(
    lengths: Mapping[Labels, float], times: Mapping[Labels, float], running: Mapping[Labels, float]
) -> list[Process]:
    """Histograms of the same labels belong to one process."""
    by_length, by_time = _histograms(lengths), _histograms(times)
    found = []
    for labels in sorted(by_length.keys() & by_time.keys(), key=sorted):
        name = ", ".join(f"{k}={v}" for k, v in sorted(labels) if k in ("instance", "engine", "model_name"))
        found.append(Process(name, by_length[labels], by_time[labels], running.get(labels)))
    return found


def _histograms(samples: Mapping[Labels, float]) -> dict[Labels, tuple[tuple[float, float], ...]]:
    found: dict[Labels, list[tuple[float, float]]] = {}
    for labels, value in samples.items():
        bounds = [text for name, text in labels if name == "le"]
        try:
            bound = float(bounds[0])
        except (ValueError, IndexError):
            continue
        found.setdefault(frozenset(pair for pair in labels if pair[0] != "le"), []).append((bound, value))
    whole = {labels: tuple(sorted(pairs)) for labels, pairs in found.items()}
    return {labels: pairs for labels, pairs in whole.items() if math.isinf(pairs[-1][0])}
