"""From histograms without a joint only counting proves something; everything else is INCONCLUSIVE, never CLEAN."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pagefence.mistakes import CouldNotAsk, Usage
from pagefence.probes.latency import prometheus
from pagefence.probes.latency.floor import Physics
from pagefence.probes.latency.offline import source
from pagefence.probes.latency.prometheus import Process, _most, ask
from pagefence.probes.latency.tally import Floors
from tests.probes.toy import served

FLOORS = Floors(Physics(work_flop=1.0, peak=1000.0))  # a millisecond for a token
LENGTHS, TIMES = (100.0, 1000.0, 10_000.0), (0.1, 1.0, 10.0)
INF = float("inf")


def histogram(values: list[float], bounds: tuple[float, ...]) -> tuple[tuple[float, float], ...]:
    return tuple((le, float(sum(v <= le for v in values))) for le in (*bounds, INF))


def server(requests: list[tuple[float, float]], uncached: bool = True, running: str | None = "0.0") -> Starlette:
    """A Prometheus server over the vLLM metrics of these (tokens, seconds)."""
    length = "vllm:request_prefill_kv_computed_tokens" if uncached else "vllm:request_prompt_tokens"
    stored: dict[str, list[tuple[dict[str, str], float | str]]] = {}
    for name, values, bounds in (
        (length, [n for n, _ in requests], LENGTHS),
        ("vllm:time_to_first_token_seconds", [t for _, t in requests], TIMES),
    ):
        stored[f"{name}_bucket"] = [
            ({"le": "+Inf" if le == INF else str(le)}, n) for le, n in histogram(values, bounds)
        ]
    if running is not None:
        stored["vllm:num_requests_running"] = [({}, running)]

    async def query(request: Request) -> JSONResponse:
        name = request.query_params["query"].partition("{")[0]
        found: list[Any] = [
            {"metric": {"__name__": name, "instance": "i:1", **labels}, "value": [1, str(value)]}
            for labels, value in stored.get(name, [])
        ]
        return JSONResponse({"status": "success", "data": {"resultType": "vector", "result": found}})

    return Starlette(routes=[Route("/api/v1/query", query)])


def verdicts(application: Starlette, floors: Floors = FLOORS, no_cache: bool = False) -> list[str]:
    with served(application) as url:
        return [str(e.kind) for e in ask(url, floors, no_cache).evidence]


HONEST = [(50.0, 0.06), (500.0, 0.7), (5000.0, 6.0)] * 20


def test_more_long_prompts_than_late_first_tokens_is_corrupt() -> None:
    assert verdicts(server([*HONEST, *[(5000.0, 0.05)] * 30])) == ["CORRUPT"]


def test_what_counts_do_not_prove_is_inconclusive_and_never_clean() -> None:
    assert verdicts(server(HONEST)) == ["INCONCLUSIVE"]
    assert verdicts(server([*HONEST, (5000.0, 0.05)])) == ["INCONCLUSIVE"]


def test_prompt_tokens_prove_nothing_where_a_cache_may_have_held_them() -> None:
    leaking = server([*HONEST, *[(5000.0, 0.05)] * 30], uncached=False)
    assert verdicts(leaking) == ["INCONCLUSIVE"]
    assert verdicts(leaking, no_cache=True) == ["CORRUPT"]


def test_without_the_number_of_running_requests_nothing_is_proven() -> None:
    assert verdicts(server([*HONEST, *[(5000.0, 0.05)] * 30], running=None)) == ["INCONCLUSIVE"]


def test_without_a_floor_or_without_metrics_it_is_inconclusive() -> None:
    leaking = [*HONEST, *[(5000.0, 0.05)] * 30]
    assert verdicts(server(leaking), Floors("nobody told")) == ["INCONCLUSIVE"]
    assert verdicts(server([])) == ["INCONCLUSIVE"]


def test_what_is_no_prometheus_server_could_not_be_asked() -> None:
    with served(Starlette()) as url, pytest.raises(CouldNotAsk, match="not as a Prometheus server"):
        ask(url, FLOORS, False)


LEAKING = [*HONEST, *[(5000.0, 0.05)] * 30]


@pytest.mark.parametrize("running", ["NaN", "-100", "+Inf"])
def test_a_number_of_running_requests_that_is_none_proves_nothing(running: str) -> None:
    assert verdicts(server(LEAKING, running=running)) == ["INCONCLUSIVE"]


@pytest.mark.parametrize("value", [{"a": 1}, [0, int("9" * 309)], [], None, "xy", [0, ["1"]]])
def test_a_sample_without_a_figure_is_none(value: object) -> None:
    async def query(request: Request) -> Response:
        result = [1, {"metric": [], "value": value}, {"metric": {"le": "+Inf"}, "value": value}]
        return Response(json.dumps({"status": "success", "data": {"result": result}}))

    assert verdicts(Starlette(routes=[Route("/api/v1/query", query)])) == ["INCONCLUSIVE"]


def test_an_answer_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def query(request: Request) -> Response:
        async def drip() -> AsyncIterator[bytes]:
            while True:
                yield b" "
                await asyncio.sleep(0.01)

        return StreamingResponse(drip())

    monkeypatch.setattr(prometheus, "_LONGEST_S", 0.2)
    application = Starlette(routes=[Route("/api/v1/query", query)])
    with served(application) as url, pytest.raises(CouldNotAsk, match="does not end"):
        ask(url, FLOORS, False)


def test_an_answer_without_bounds_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def query(request: Request) -> Response:
        return Response(b" " * 10_000)

    monkeypatch.setattr(prometheus, "_LARGEST", 1000)
    application = Starlette(routes=[Route("/api/v1/query", query)])
    with served(application) as url, pytest.raises(CouldNotAsk, match="does not end"):
        ask(url, FLOORS, False)


@pytest.mark.parametrize("url", ["http://", "http://[::", "http://a:99999", "http://a b", "http://a?x=1", "ftp://a"])
def test_what_is_no_url_of_a_server_is_said_before_it_is_asked(url: str) -> None:
    with pytest.raises(Usage, match="no URL of a Prometheus server"):
        source({"prometheus": url}, {}, {})


def test_a_password_in_the_url_of_a_server_is_neither_used_nor_quoted() -> None:
    with pytest.raises(Usage) as caught:
        source({"prometheus": "http://me:geheim@prometheus:9090"}, {}, {})
    assert "geheim" not in str(caught.value)


REQUEST = st.tuples(st.floats(1, 20_000), st.floats(0.0, 5.0))


@given(st.lists(REQUEST, max_size=40), st.integers(0, 5), st.integers(0, 5))
def test_honest_requests_never_prove_anything(requests: list[tuple[float, float]], aborted: int, running: int) -> None:
    """Each takes at least its floor; some ended before a first token, some have one and run."""
    ended = [(n, n / 1000 + more) for n, more in requests]
    lengths = [n for n, _ in ended] + [20_000.0] * aborted
    times = [t for _, t in ended] + [20.0] * running
    process = Process("p", histogram(lengths, LENGTHS), histogram(times, TIMES), float(running))
    assert _most(process, FLOORS)[2] <= 0


@given(st.lists(REQUEST, max_size=40), st.integers(0, 20))
def test_never_more_are_proven_than_there_are(requests: list[tuple[float, float]], fast: int) -> None:
    ended = [(n, n / 1000 + more) for n, more in requests] + [(15_000.0, 0.01)] * fast
    process = Process("p", histogram([n for n, _ in ended], LENGTHS), histogram([t for _, t in ended], TIMES), 0.0)
    assert _most(process, FLOORS)[2] <= fast
