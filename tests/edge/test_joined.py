"""The edge as a user starts it, in front of a fleet whose pool is below its context: every step is real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from pagefence.cli import app
from pagefence.edge.beside import LARGE
from pagefence.edge.call import Operation, Tenant
from pagefence.edge.command import settings
from pagefence.edge.demand import Admitted
from pagefence.edge.joined import Joined
from pagefence.edge.refusal import Refusal
from pagefence.edge.shown import promised
from pagefence.edge.steps import Tells
from pagefence.edge.tenants import Identity
from pagefence.mistakes import Usage
from pagefence.models import DEFAULT_MODEL
from pagefence.run import run
from tests.edge.processes import running_edge
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
    flags = ["--upstream", toy.url, "--model", DEFAULT_MODEL, "--upstream-key-env", "UPSTREAM_KEY"]
    secrets = {"PAGEFENCE_API_KEYS": f"acme={ACME}", "PAGEFENCE_KEY_A": KEYS[0], "UPSTREAM_KEY": KEYS[0]}
    with running_edge(tmp_path_factory.mktemp("edge"), *flags, **secrets) as running:
        yield running.url


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
@pytest.mark.parametrize("prompt", [WORD * 300, WORD * LARGE, [7] * LARGE], ids=["short", "long", "ids"])
def test_what_no_rank_can_hold_is_refused_before_the_engine_sees_it(
    edge: str, toy: Toy, stream: bool, prompt: str | list[int]
) -> None:
    before = len(toy.bodies)
    answer = ask(edge, prompt=prompt, stream=stream)
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


def test_models_are_promised_with_the_limit_that_is_kept(edge: str, toy: Toy) -> None:
    """The fleet promises 512 over a pool of 256."""
    headers = {"Authorization": f"Bearer {ACME}"}
    (card,) = httpx.get(f"{edge}/v1/models", headers=headers).json()["data"]
    assert card["id"] == "toy"
    assert card["max_model_len"] == 256
    told = httpx.get(f"{edge}/server_info").json()
    assert (told["context_length"], told["max_req_input_len"], told["workers"]) == (256, 250, [])


def test_the_edge_counts_for_whoever_has_a_key(edge: str) -> None:
    def asked(key: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{edge}/tokenize", json=body, headers={"Authorization": f"Bearer {key}"})

    counted = asked(ACME, prompt="one two three" * 2000, model="toy").json()
    assert counted["count"] == len(counted["tokens"]) > 5000
    assert counted["max_model_len"] == 256
    assert asked("not-the-key-of-anybody-here", prompt="x").status_code == 401
    for wrong in ({}, {"prompt": 3}, {"prompt": "x", "messages": []}):
        answer = asked(ACME, **wrong)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    counted = httpx.get(f"{edge}/metrics").text
    for status, times in (("200", 1), ("400", 3), ("401", 1)):
        of = f'operation="tokenize",status="{status}"'
        assert f'pagefence_edge_requests_total{{model_name="other",{of}}} {times}.0' in counted


@pytest.mark.parametrize(
    ("card", "promise"),
    [
        ({"max_model_len": 2048}, {"max_model_len": 300}),
        ({"max_model_len": 200}, {"max_model_len": 200}),
        ({"context_length": 2048}, {"context_length": 300}),
        ({}, {"max_model_len": 300}),
        ({"max_model_len": "many"}, {"max_model_len": 300}),
        ({"max_model_len": True}, {"max_model_len": 300}),
    ],
)
def test_no_card_promises_more_than_is_admitted(card: dict[str, object], promise: dict[str, object]) -> None:
    said = json.dumps({"object": "list", "data": [{"id": "m", **card}]}).encode()
    assert json.loads(promised(said, 300) or b"")["data"] == [{"id": "m", **promise}]


@pytest.mark.parametrize("said", [b"", b"[]", b'{"data": 3}', b"\xff", b'{"data": [3]}'])
def test_a_listing_that_is_none_stays_as_it_is(said: bytes) -> None:
    assert (promised(said, 300) or b"").replace(b" ", b"") == said.replace(b" ", b"")


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
    steps = Joined(Identity(b"s" * 32), environment, tmp_path).steps(found, Tells())
    body = {"model": "toy", "prompt": "one two three", "max_tokens": 4}
    call = steps.clean(Operation.COMPLETION, Tenant("acme", "key", "tag"), "id", body, ())
    assert (call.status if isinstance(call, Refusal) else None) == status
    steps.stop()


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}, None),
        ({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}, "unsupported_content"),
        ({"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}}, "prompt_not_countable"),
        ({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,aGVsbG8="}}, "prompt_not_countable"),
    ],
)
def test_an_image_costs_what_was_declared_and_what_costs_nobody_knows_what_is_refused(
    part: dict[str, Any], code: str | None, tmp_path: Path
) -> None:
    tables: dict[str, dict[str, Any]] = {
        "admission": {"model": DEFAULT_MODEL, "image_tokens": 1000},
        "policy": {"media": "data"},
        "capacity": {"limit": 2048},
        "tenants": {"shared_cache": True},
    }
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, tables)
    environment = {"PAGEFENCE_API_KEYS": f"acme={ACME}"}
    steps = Joined(Identity(b"s" * 32), environment, tmp_path).steps(found, Tells())

    async def asked(images: int) -> Refusal | Admitted:
        body = {"messages": [{"role": "user", "content": [part] * images}], "max_tokens": 4}
        call = steps.clean(Operation.CHAT, Tenant("acme", "key", "tag"), "id", body, ())
        return call if isinstance(call, Refusal) else await steps.admit(call)

    one, many = asyncio.run(asked(1)), asyncio.run(asked(3))
    steps.stop()
    if code is None:
        assert isinstance(one, Admitted)
        assert one.at_most > 1000
    assert (one.code if isinstance(one, Refusal) else None) == code
    assert isinstance(many, Refusal)
    assert many.code == (code or "context_length_exceeded")


def test_a_path_of_the_file_starts_at_its_folder(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "vocabulary.gguf", "qwen2")
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, {"admission": {"model": "vocabulary.gguf"}})
    joined = Joined(Identity(b"s" * 32), {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, tmp_path)
    joined.steps(found, Tells()).stop()


def test_without_live_figures_nothing_is_admitted(toy: Toy, tmp_path: Path) -> None:
    """Fail closed: an upstream that tells nothing is asked nothing."""
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, {"admission": {"model": DEFAULT_MODEL}})
    joined = Joined(Identity(b"s" * 32), {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, tmp_path)
    steps = joined.steps(found, Tells())
    assert "not known" in (steps.unready() or "")
    assert steps.barred() == {"http://127.0.0.1:9"}
    steps.stop()


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"policy": {"engine": "pagefence"}}, ["chat/completions", "completions", "responses", "embeddings"]),
        ({"policy": {"engine": "pagefence"}, "tenants": {"shared_cache": True}}, None),
        ({"policy": {"engine": "pagefence"}, "tenants": {"upstream_keys_env": "UP"}}, None),
        ({"policy": {"engine": "sglang"}}, ["embeddings"]),
        ({"policy": {"engine": "vllm"}}, None),
    ],
)
def test_what_nobody_will_get_is_told_at_the_start(
    tables: dict[str, dict[str, Any]], said: list[str] | None, tmp_path: Path
) -> None:
    tables = {"admission": {"model": DEFAULT_MODEL}, **tables}
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, tables)
    lines: list[tuple[str, Mapping[str, object]]] = []
    environment = {"PAGEFENCE_API_KEYS": f"acme={ACME}", "UP": "acme=key-1"}
    tells = Tells(log=lambda event, fields: lines.append((event, fields)))
    Joined(Identity(b"s" * 32), environment, tmp_path).steps(found, tells).stop()
    told = [fields["operations"] for event, fields in lines if event == "tenants_not_separated"]
    assert told == ([] if said is None else [said])


@pytest.mark.parametrize(
    ("tables", "environment", "said"),
    [
        ({}, {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, "--model"),
        ({"admission": {"model": DEFAULT_MODEL}}, {}, "nobody could ask"),
        ({"policy": {"engine": "abacus"}}, {}, "policy.engine is one of"),
        ({"policy": {"engines": "vllm"}}, {}, "unknown field `engines`"),
        ({"policy": {"media": "data"}}, {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, "admission.image_tokens to the most"),
        ({"policy": {"media": "any"}}, {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, "admission.image_tokens to the most"),
        ({"admission": {"image_tokens": 9}}, {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, 'policy.media = "data", or'),
        (
            {"policy": {"media": "all"}, "admission": {"image_tokens": 9, "model": DEFAULT_MODEL}},
            {"PAGEFENCE_API_KEYS": f"acme={ACME}"},
            "media is one of refuse, data, any",
        ),
        ({"tenants": {"upstream_keys_env": "NONE"}}, {"PAGEFENCE_API_KEYS": f"acme={ACME}"}, "tenant=key pairs"),
    ],
)
def test_a_mistake_in_a_table_is_one_clear_line(
    tables: dict[str, dict[str, Any]], environment: dict[str, str], said: str, tmp_path: Path
) -> None:
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, tables)
    with pytest.raises(Usage, match=said):
        Joined(Identity(b"s" * 32), environment, tmp_path).steps(found, Tells())


def test_check_tells_an_operator_whose_tag_is_whose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In findings stand tags alone."""
    monkeypatch.setenv("PAGEFENCE_API_KEYS", f"globex=globex-{ACME},acme={ACME}")
    monkeypatch.setenv("PAGEFENCE_EDGE_SECRET", "s" * 32)
    assert run(app, ["edge", "--upstream", "http://127.0.0.1:9", "--model", DEFAULT_MODEL, "--check"]) == 0
    identity = Identity(b"s" * 32)
    said = capsys.readouterr().out
    assert said.splitlines()[1:] == [f"{identity.tenant(name).tag}  {name}" for name in ("acme", "globex")]
    monkeypatch.delenv("PAGEFENCE_EDGE_SECRET")
    run(app, ["edge", "--upstream", "http://127.0.0.1:9", "--model", DEFAULT_MODEL, "--check"])
    assert "acme" not in capsys.readouterr().out
