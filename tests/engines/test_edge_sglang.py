"""The edge in front of SGLang with a pool of half its context: what the pool cannot hold never reaches the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from pagefence.engine.model.tokenizer import Tokenizer
from pagefence.models import DEFAULT_MODEL, resolve
from tests.edge.processes import Edge, running_edge
from tests.engines.rigs import SGLANG, rig

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]
ACME = "acme-key-0123456789abcdef"


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with rig("sglang"):
        flags = ("--upstream", SGLANG, "--engine", "sglang", "--model", DEFAULT_MODEL)
        # Without a GPU a prompt takes a minute, and nothing else is answered meanwhile.
        config = "[upstream.health]\nevery = 0\n[capacity]\nstale = 600\n"
        folder, keys = tmp_path_factory.mktemp("edge"), f"acme={ACME}"
        with running_edge(folder, *flags, config=config, PAGEFENCE_API_KEYS=keys) as running:
            yield running


def asked(edge: Edge, prompt: list[int] | str, stream: bool, new: int = 1) -> httpx.Response:
    body = {"model": "smol", "prompt": prompt, "max_tokens": new, "stream": stream}
    headers = {"Authorization": f"Bearer {ACME}"}
    return httpx.post(f"{edge.url}/v1/completions", json=body, headers=headers, timeout=120)


def seen_by_the_engine() -> tuple[float, float]:
    """Requests and prompt tokens, by its own counters."""
    lines = httpx.get(f"{SGLANG}/metrics").text.splitlines()

    def total(name: str) -> float:
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"sglang:{name}"))

    return total("num_requests_total"), total("prompt_tokens_total")


def limit_of(edge: Edge) -> int:
    return int(httpx.get(f"{edge.url}/server_info").json()["max_req_input_len"])


def test_the_limit_is_the_pool_and_not_what_is_advertised(edge: Edge) -> None:
    (theirs,) = httpx.get(f"{SGLANG}/v1/models").json()["data"]
    (ours,) = httpx.get(f"{edge.url}/v1/models", headers={"Authorization": f"Bearer {ACME}"}).json()["data"]
    assert theirs["max_model_len"] == 2048
    assert ours["max_model_len"] <= 1024
    assert 1000 < limit_of(edge) < 1024


def test_a_prompt_of_the_longest_length_is_answered_in_both_forms(edge: Edge) -> None:
    limit = limit_of(edge)
    for stream in (False, True):
        answer = asked(edge, [1000 + i % 500 for i in range(limit)], stream)
        assert answer.status_code == 200, answer.text + edge.log.read_text()[-600:]
        assert b'"error"' not in answer.content


@pytest.mark.parametrize("stream", [False, True])
def test_everything_over_it_is_refused_and_the_engine_never_hears_of_it(edge: Edge, stream: bool) -> None:
    limit = limit_of(edge)
    tokenizer = Tokenizer.load(resolve(DEFAULT_MODEL))
    before = seen_by_the_engine()
    lengths = [*range(limit + 1, limit + 12), 1100, 1535, 2041, 2042, 2043, 2047, 2048, 2049, 4096]
    for length in lengths:
        ids = [1000 + i % 500 for i in range(length)]
        text = " and" * length
        assert tokenizer.count(text) == length
        for prompt in (ids, text):
            answer = asked(edge, prompt, stream)
            assert answer.status_code == 400, length
            assert answer.json()["error"]["code"] == "context_length_exceeded"
            assert answer.headers["content-type"] == "application/json"
    assert seen_by_the_engine() == before
    assert asked(edge, "a legal prompt", stream).status_code == 200
    after = seen_by_the_engine()
    assert after[0] == before[0] + 1, "or its counters would count nothing at all"


def test_new_tokens_count_too(edge: Edge) -> None:
    before = seen_by_the_engine()
    answer = asked(edge, "x" * 40, False, new=1024)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert seen_by_the_engine() == before


def test_findings_are_none_on_honest_answers(edge: Edge) -> None:
    for stream in (False, True):
        assert asked(edge, "The capital of France is", stream, new=8).status_code == 200
    findings = [json.loads(line) for line in edge.log.read_text().splitlines() if '"finding"' in line]
    assert [line for line in findings if line.get("event") == "finding" and line["sure"]] == []
