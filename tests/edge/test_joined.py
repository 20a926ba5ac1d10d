"""The edge as a user starts it, in front of a fleet whose pool is below its context: every step is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pagefence.edge.call import Operation, Tenant
from pagefence.edge.command import settings
from pagefence.edge.joined import Joined
from pagefence.edge.refusal import Refusal
from pagefence.edge.tenants import Identity
from pagefence.mistakes import Usage
from pagefence.models import DEFAULT_MODEL
from tests.engine.model.test_tokenizer import write_vocabulary
from tests.probes.toy import KEYS, Toy, running

ACME = "acme-key-0123456789abcdef"
WORD = " and"


@pytest.fixture(scope="module")
def toy() -> Iterator[Toy]:
    """Prompts over 250 tokens would be answered from stale pages."""
    with running(Toy("stub", context=512, prefill_pool=256, decode_pool=1024)) as world:
        yield world


@pytest.fixture(scope="module")
def edge(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("edge")
    announce = folder / "address.json"
    secrets = {
        "PAGEFENCE_API_KEYS": f"acme={ACME}",
        "PAGEFENCE_KEY_A": KEYS[0],
        "UPSTREAM_KEY": KEYS[0],
        "PAGEFENCE_EDGE_SECRET": "a secret of the edge that is long enough",
    }
    flags = ["--upstream", toy.url, "--model", DEFAULT_MODEL, "--port", "0", "--upstream-key-env", "UPSTREAM_KEY"]
    command = [sys.executable, "-m", "pagefence", "edge", *flags, "--announce", str(announce)]
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(command, env={**os.environ, **secrets}, stderr=out) as process:
        try:
            yield ready(announce, process, log)
        finally:
            process.terminate()


def ready(announce: Path, process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if announce.exists():
            url = str(json.loads(announce.read_text())["url"])
            try:
                if httpx.get(f"{url}/readyz").status_code == 200:
                    return url
            except httpx.HTTPError:
                pass
        time.sleep(0.05)
    pytest.fail(f"the edge was never ready: {log.read_text()}")


def ask(edge: str, key: str = ACME, **body: Any) -> httpx.Response:
    said = {"model": "toy", "prompt": "one two three", "max_tokens": 4, **body}
    return httpx.post(f"{edge}/v1/completions", json=said, headers={"Authorization": f"Bearer {key}"})


def test_a_legal_prompt_is_answered_and_the_engine_is_told_whose_it_is(edge: str, toy: Toy) -> None:
    before = len(toy.bodies)
    answer = ask(edge)
    assert answer.status_code == 200
    assert answer.headers["x-request-id"]
    (sent,) = toy.bodies[before:]
    assert len(sent["cache_salt"]) == 64
    assert "acme" not in sent["cache_salt"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_no_rank_can_hold_is_refused_before_the_engine_sees_it(edge: str, toy: Toy, stream: bool) -> None:
    before = len(toy.bodies)
    answer = ask(edge, prompt=WORD * 300, stream=stream)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert len(toy.bodies) == before


@pytest.mark.parametrize("field", ["bootstrap_room", "kv_transfer_params", "cache_salt", "some_new_field"])
def test_what_a_client_must_not_set_and_what_nobody_knows_is_refused(edge: str, toy: Toy, field: str) -> None:
    before = len(toy.bodies)
    answer = ask(edge, **{field: "x"})
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]
    assert len(toy.bodies) == before


def test_a_wrong_key_is_refused(edge: str, toy: Toy) -> None:
    before = len(toy.bodies)
    assert ask(edge, key="not-the-key-of-anybody-here").status_code == 401
    assert len(toy.bodies) == before


@pytest.mark.parametrize(
    ("table", "status"), [({}, 503), ({"shared_cache": True}, None), ({"upstream_keys_env": "THEIRS"}, None)]
)
def test_an_engine_that_cannot_keep_tenants_apart_is_asked_only_when_the_operator_says_how(
    table: dict[str, Any], status: int | None, tmp_path: Path
) -> None:
    environment = {"PAGEFENCE_API_KEYS": f"acme={ACME}", "THEIRS": "acme=upstream-key"}
    tables = {"admission": {"model": DEFAULT_MODEL}, "policy": {"engine": "pagefence"}, "tenants": table}
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, tables)
    steps = Joined(Identity(b"s" * 32), environment, tmp_path, lambda words: None).steps(found)
    body = {"model": "toy", "prompt": "one two three", "max_tokens": 4}
    call = steps.clean(Operation.COMPLETION, Tenant("acme", "key", "tag"), "id", body, ())
    assert (call.status if isinstance(call, Refusal) else None) == status
    steps.stop()


def test_a_path_of_the_file_starts_at_its_folder(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "vocabulary.gguf", "qwen2")
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, {"admission": {"model": "vocabulary.gguf"}})
    joined = Joined(Identity(b"s" * 32), {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, tmp_path, lambda words: None)
    joined.steps(found).stop()


def test_without_live_figures_nothing_is_admitted(toy: Toy, tmp_path: Path) -> None:
    """Fail closed: an upstream that tells nothing is asked nothing."""
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, {"admission": {"model": DEFAULT_MODEL}})
    joined = Joined(Identity(b"s" * 32), {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, tmp_path, lambda words: None)
    steps = joined.steps(found)
    assert "not known" in (steps.unready() or "")
    assert steps.barred() == {"http://127.0.0.1:9"}
    steps.stop()


@pytest.mark.parametrize(
    ("tables", "environment", "said"),
    [
        ({}, {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, "--model"),
        ({"admission": {"model": DEFAULT_MODEL}}, {}, "nobody could ask"),
        ({"policy": {"engine": "abacus"}}, {}, "policy.engine is one of"),
        ({"policy": {"engines": "vllm"}}, {}, "unknown field `engines`"),
        ({"tenants": {"upstream_keys_env": "NONE"}}, {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, "tenant=key pairs"),
    ],
)
def test_a_mistake_in_a_table_is_one_clear_line(
    tables: dict[str, dict[str, Any]], environment: dict[str, str], said: str, tmp_path: Path
) -> None:
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, tables)
    with pytest.raises(Usage, match=said):
        Joined(Identity(b"s" * 32), environment, tmp_path, lambda words: None).steps(found)
