"""Engines that could not be run here, read from answers written after their sources: exactly the right facts from the
whole, and from anything broken no traceback and no gate that passes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pagefence.fleet import Fleet, FleetFacts, Keys, NodeFacts, Target
from pagefence.fleet.answer import decode_json, mapping
from pagefence.fleet.describe import describe
from pagefence.fleet.engines import ADAPTERS, Adapter, Asked
from pagefence.fleet.facts import DECODE, PREFILL, ROUTER, SINGLE, positive
from pagefence.fleet.http import Reply
from pagefence.probes.gate import gate
from pagefence.probes.gate.policy import Policy
from pagefence.verdict import decide
from tests.probes.toy import served

HERE = Path(__file__).parent / "from_source"
TRT, DYNAMO, LMDEPLOY = "tensorrt-llm-050f80de", "dynamo-0e85161d", "lmdeploy-156ed458"
TGI, OLLAMA, SMG = "tgi-3.3", "ollama-0.12", "smg-68306410"
FOLDERS = (TRT, DYNAMO, LMDEPLOY, TGI, OLLAMA, SMG)
# What no endpoint of the engine tells and a user therefore declares.
DECLARED: Mapping[str, dict[str, int]] = {
    TRT: {"context": 8192},
    DYNAMO: {},
    LMDEPLOY: {"context": 8192},
    TGI: {"pool": 16384},
    OLLAMA: {"pool": 16384},
    SMG: {},
}
WORKER_INFO = {
    "engine": "pagefence",
    "max_total_num_tokens": 4096,
    "context_length": 2048,
    "max_req_input_len": 2042,
    "page_size": 64,
}


@dataclass(frozen=True)
class Doc:
    """What a path answers: a body, or whatever `how` does instead."""

    body: str
    status: int = 200
    how: str = "answers"


Docs = Mapping[str, Doc]


def written(folder: str) -> dict[str, Doc]:
    """The answers of one engine, as they were written."""
    index = json.loads((HERE / folder / "index.json").read_text())
    return {doc["path"]: Doc((HERE / folder / doc["file"]).read_text(), doc["status"]) for doc in index}


def describe_served(docs: Docs, declared: Mapping[str, int]) -> FleetFacts:
    """Serve the answers, and workers below /prefill and /decode; then ask."""

    async def answer(request: Request) -> Response:
        role, _, rest = request.url.path.lstrip("/").partition("/")
        if role in (PREFILL, DECODE):
            info = json.dumps({**WORKER_INFO, "disaggregation_mode": role})
            return Response(info if rest == "server_info" else "", 200 if rest == "server_info" else 404)
        doc = docs.get(request.url.path)
        if doc is None:
            return Response('{"detail":"Not Found"}', 404, media_type="application/json")
        if doc.how == "hangs":
            await asyncio.sleep(5)
        if doc.how == "redirects":
            return RedirectResponse("http://127.0.0.1:9/elsewhere")
        return Response(doc.body.replace("WORKER", str(request.base_url).rstrip("/")), doc.status)

    with served(Starlette(routes=[Route("/{path:path}", answer)])) as url:

        async def ask() -> FleetFacts:
            patience = 1.0 if any(doc.how == "hangs" for doc in docs.values()) else 10.0
            async with Fleet(Target(url, declared={"": declared}, retries=0), Keys(), patience) as fleet:
                return await describe(fleet)

        return asyncio.run(ask())


def exit_code(facts: FleetFacts) -> int:
    """Of the gate. An engine that promises no length is seen behind a router that does."""
    if node_of(facts).engine in ("tensorrt-llm", "lmdeploy"):
        facts = replace(facts, advertised=positive(8192, "the router before it"))
    return decide([gate(facts, policy=Policy(inside=True))]).exit_code


def node_of(facts: FleetFacts) -> NodeFacts:
    return facts.router or facts.nodes[0]


def asked(docs: Docs) -> Asked:
    """The same answers without a network."""
    replies = {}
    for path, doc in docs.items():
        value = decode_json(doc.body.encode())
        not_json = None if isinstance(value, dict) else "answered something else than a JSON object"
        replies[path] = Reply(doc.status, mapping(value), None, doc.body, not_json)
    return Asked("http://x", replies)


def adapter_of(folder: str) -> Adapter:
    return next(adapter for adapter in ADAPTERS if folder.startswith(adapter.engine))


# The untouched answers.


def test_tensorrt_llm_tells_its_live_pool_and_no_context() -> None:
    node = node_of(describe_served(written(TRT), {}))
    assert (node.engine, node.version, node.role, node.model) == ("tensorrt-llm", "1.3.0rc4", SINGLE, "smollm2")
    assert (node.pool.value, node.page_size.value) == (512 * 32, 32)
    assert node.pool.source == "/prometheus/metrics trtllm_kv_cache_max_blocks x trtllm_kv_cache_tokens_per_block"
    assert (node.context.value, node.longest.value, node.advertised.value) == (None, None, None)
    assert node.missing == ("context", "longest")
    assert node.settings["quantization"] == "FP8"
    assert node.settings["max_model_len"] == "8192"
    assert "pid" not in node.settings


def test_dynamo_with_one_worker_is_one_server() -> None:
    node = node_of(describe_served(written(DYNAMO), {}))
    assert (node.engine, node.version, node.role, node.model) == ("dynamo", None, SINGLE, "smollm2")
    assert (node.pool.value, node.page_size.value) == (1024 * 16, 16)
    assert (node.context.value, node.advertised.value) == (8192, 8192)
    assert node.context.source == "/metrics dynamo_frontend_model_context_length"
    assert node.settings["model_max_num_seqs"] == "256"
    assert node.missing == ()


def test_lmdeploy_tells_nothing_live() -> None:
    node = node_of(describe_served(written(LMDEPLOY), {}))
    assert (node.engine, node.version, node.role, node.model) == ("lmdeploy", None, SINGLE, "smollm2")
    assert node.pool.value is None
    assert node.pool.problem == "is 4,096 but may be no more than what was configured"
    assert node.missing == ("pool", "context", "longest", "page_size")
    assert node.settings["num_gpu_blocks"] == "4096"
    assert node.settings["block_size"] == "64"


def test_tgi_tells_its_limits_and_no_pool() -> None:
    node = node_of(describe_served(written(TGI), {}))
    assert (node.engine, node.version, node.role) == ("tgi", "3.3.6-dev0", SINGLE)
    assert (node.context.value, node.longest.value, node.advertised.value) == (4096, 4095, 4096)
    assert node.context.source == "/info max_total_tokens"
    assert (node.pool.value, node.missing) == (None, ("pool", "page_size"))
    assert node.model == "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_ollama_tells_the_context_of_what_is_loaded_and_truncates() -> None:
    node = node_of(describe_served(written(OLLAMA), {}))
    assert (node.engine, node.version, node.role, node.model) == ("ollama", "0.12.6", SINGLE, "smollm2:135m")
    assert (node.context.value, node.advertised.value) == (4096, 4096)
    assert node.context.source == "/api/ps models[0] context_length"
    assert node.flags["auto_truncate"].value is True
    assert node.flags["auto_truncate"].source.startswith("ollama server/routes.go")
    assert (node.pool.value, node.missing) == (None, ("pool", "longest", "page_size"))
    assert node.settings["quantization_level"] == "F16"


def test_smg_is_a_router_whose_workers_are_asked_themselves() -> None:
    facts = describe_served(written(SMG), {})
    router = node_of(facts)
    assert (router.engine, router.role, router.ready, router.advertised.value) == ("smg", ROUTER, True, 2048)
    # The two ranks of one engine are one address, and its labels are no figures.
    assert [(n.url.rpartition("/")[2], n.role, n.engine) for n in facts.nodes] == [
        ("prefill", PREFILL, "pagefence"),
        ("decode", DECODE, "pagefence"),
    ]
    assert [n.pool.value for n in facts.nodes] == [4096, 4096]
    # One back-end does not report; what the router heard of the pools is then unknown too.
    assert [rank.value for rank in router.ranks] == [4096, 4096, None]
    assert router.pool.value is None


@pytest.mark.parametrize("folder", [TRT, DYNAMO, TGI, SMG])
def test_the_whole_answers_pass_once_the_rest_is_declared(folder: str) -> None:
    """Without this, "a broken answer does not pass" would be true of everything."""
    assert exit_code(describe_served(written(folder), DECLARED[folder])) == 0


@pytest.mark.parametrize("folder", [TGI, OLLAMA, LMDEPLOY])
def test_a_pool_that_no_endpoint_tells_does_not_pass_undeclared(folder: str) -> None:
    facts = describe_served(written(folder), DECLARED[folder] if folder == LMDEPLOY else {})
    assert facts.nodes[0].pool.value is None
    assert exit_code(facts) != 0


# Who is who.


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_engine_is_recognised_by_its_own_adapter_alone(folder: str) -> None:
    answers = asked(written(folder))
    found = [a.engine for a in ADAPTERS if a.recognises(answers.reply(a.sign)) and answers.reply(a.sign).status == 200]
    assert found[0] == adapter_of(folder).engine
    assert found[1:] in ([], ["openai-compatible"])


OTHERS: Mapping[str, Docs] = {
    "vllm": {
        "/version": Doc('{"version":"0.32.0"}'),
        "/v1/models": Doc('{"object":"list","data":[{"id":"m","owned_by":"vllm","max_model_len":2048}]}'),
        "/metrics": Doc('vllm:cache_config_info{num_gpu_blocks="364",block_size="128"} 1.0\n'),
    },
    "sglang": {
        "/server_info": Doc('{"internal_states":[],"version":"0.5.23"}'),
        "/v1/models": Doc('{"object":"list","data":[{"id":"m","owned_by":"sglang","max_model_len":2048}]}'),
    },
    "llama-server": {
        "/props": Doc('{"build_info":"b11434","total_slots":1}'),
        "/v1/models": Doc('{"models":[{"name":"m"}],"object":"list","data":[{"id":"m","owned_by":"llamacpp"}]}'),
        "/metrics": Doc("llamacpp:prompt_tokens_total 5\n"),
    },
    "pagefence": {"/server_info": Doc(json.dumps(WORKER_INFO)), "/v1/models": Doc('{"data":[{"id":"m"}]}')},
    "an OpenAI endpoint": {"/v1/models": Doc('{"object":"list","data":[{"id":"gpt-5","owned_by":"openai"}]}')},
    "a model list of two owners": {
        "/v1/models": Doc('{"data":[{"id":"a","owned_by":"tensorrt_llm"},{"id":"b","owned_by":"lmdeploy"}]}')
    },
    "text-embeddings-inference": {"/info": Doc('{"model_id":"m","max_input_length":512,"version":"1.8"}')},
    "a web page on every path": dict.fromkeys({a.sign for a in ADAPTERS}, Doc("<html>dynamo_frontend_ workers</html>")),
    "Open WebUI": {"/api/version": Doc('{"version":"0.6.5"}')},
    "a Dynamo worker": {"/metrics": Doc('dynamo_component_requests_total{model="dynamo_frontend_x"} 1\n')},
}


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_engine_passes_for_one_of_these(name: str) -> None:
    answers = asked(OTHERS[name])
    for folder in FOLDERS:
        adapter = adapter_of(folder)
        assert adapter.recognises(answers.reply(adapter.sign)) is None, adapter.engine


def test_a_router_that_hands_on_what_a_worker_says_of_itself_is_still_a_router() -> None:
    docs = written(SMG) | {"/server_info": Doc(json.dumps({**WORKER_INFO, "internal_states": []}))}
    assert node_of(describe_served(docs, {})).engine == "smg"


def test_an_unknown_node_costs_few_requests() -> None:
    assert len({adapter.sign for adapter in ADAPTERS}) <= 8


# One thing broken.

FIGURES = [  # decisive for the gate: folder, path, name
    (TRT, "/prometheus/metrics", "trtllm_kv_cache_max_blocks"),
    (TRT, "/prometheus/metrics", "trtllm_kv_cache_tokens_per_block"),
    (DYNAMO, "/metrics", "dynamo_frontend_model_total_kv_blocks"),
    (DYNAMO, "/metrics", "dynamo_frontend_model_kv_cache_block_size"),
    (DYNAMO, "/metrics", "dynamo_frontend_model_context_length"),
    (DYNAMO, "/v1/models", "context_window"),
    (TGI, "/info", "max_total_tokens"),
    (OLLAMA, "/api/ps", "context_length"),
    (SMG, "/workers", "url"),
    (SMG, "/v1/models", "max_model_len"),
]


def with_value(body: str, name: str, value: str | None) -> str:
    """The document with another value (as it would be written) under `name`, or without `name`."""
    if body.startswith("#"):
        lines = [line for line in body.splitlines() if value is not None or not line.startswith(name)]
        return "\n".join(re.sub(rf"^({name}{{.*}}) .*", rf"\1 {value}", line) for line in lines) + "\n"
    return json.dumps(_replaced(json.loads(body), name, value))


def _replaced(part: object, name: str, value: str | None) -> object:
    if isinstance(part, list):
        return [_replaced(item, name, value) for item in part]
    if not isinstance(part, dict):
        return part
    new = None if value is None else json.loads(value) if value == "0" else value
    return {
        key: new if key == name else _replaced(item, name, value)
        for key, item in part.items()
        if key != name or value is not None
    }


@pytest.mark.parametrize("value", [None, "0", "None"], ids=["missing", "zero", "None"])
@pytest.mark.parametrize(("folder", "path", "name"), FIGURES)
def test_a_figure_that_is_none_does_not_pass(folder: str, path: str, name: str, value: str | None) -> None:
    docs = written(folder)
    docs[path] = Doc(with_value(docs[path].body, name, value))
    assert docs[path].body != written(folder)[path].body
    assert exit_code(describe_served(docs, DECLARED[folder])) != 0


BROKEN: Mapping[str, Callable[[Doc], Doc]] = {
    "truncated": lambda doc: Doc(doc.body[: len(doc.body) * 2 // 3]),
    "empty": lambda doc: Doc(""),
    "an HTML error page": lambda doc: Doc("<html><body><h1>502 Bad Gateway</h1></body></html>\n"),
    "an HTML error page and its status": lambda doc: Doc("<html><h1>502 Bad Gateway</h1></html>\n", 502),
    "a 401": lambda doc: Doc('{"error":"Unauthorized"}', 401),
    "a redirect": lambda doc: replace(doc, how="redirects"),
    "a hang": lambda doc: replace(doc, how="hangs"),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize(("folder", "path"), [*{(f, p): None for f, p, _ in FIGURES}, (LMDEPLOY, "/v1/models")])
def test_a_document_that_is_none_does_not_pass(folder: str, path: str, how: str) -> None:
    docs = written(folder)
    docs[path] = BROKEN[how](docs[path])
    assert exit_code(describe_served(docs, DECLARED[folder])) != 0


@pytest.mark.parametrize("how", BROKEN)
def test_lmdeploy_s_engine_info_never_decides(how: str) -> None:
    docs = written(LMDEPLOY)
    docs["/distserve/engine_info"] = BROKEN[how](docs["/distserve/engine_info"])
    facts = describe_served(docs, DECLARED[LMDEPLOY])
    assert node_of(facts).pool.value is None
    assert node_of(facts).settings == {}
    assert exit_code(facts) != 0


@pytest.mark.parametrize(("folder", "path"), [(TRT, "/prometheus/metrics"), (DYNAMO, "/metrics")])
def test_a_metrics_document_that_was_cut_in_a_number_never_tells_another_figure(folder: str, path: str) -> None:
    """It would tell a smaller one, and a smaller context asks for a smaller pool."""
    adapter, docs = adapter_of(folder), written(folder)
    body, whole = docs[path].body, adapter.read(asked(docs))
    numbers = re.finditer(r"(?<= )[\d.]+$", body, re.MULTILINE)
    for cut in (place for number in numbers for place in range(number.start() + 1, number.end() + 1)):
        node = adapter.read(asked(docs | {path: Doc(body[:cut])}))
        for name in ("pool", "context", "page_size"):
            assert getattr(node, name).value in (None, getattr(whole, name).value), body[:cut][-60:]


@settings(deadline=None, max_examples=50)
@given(folder=st.sampled_from(FOLDERS), body=st.text() | st.binary().map(lambda b: b.decode("latin-1")))
def test_any_text_can_be_read(folder: str, body: str) -> None:
    adapter, docs = adapter_of(folder), written(folder)
    for path in docs:
        answers = asked(docs | {path: Doc(body + "\n")})
        adapter.recognises(answers.reply(adapter.sign))
        adapter.read(answers)


# One number for many.


def dynamo_metrics(*workers: tuple[str, str, str]) -> Docs:
    """A frontend with these workers: id, rank, type."""
    body = "\n".join(line for line in written(DYNAMO)["/metrics"].body.splitlines() if "worker" not in line) + "\n"
    for worker, rank, kind in workers:
        body += f'dynamo_frontend_router_worker_state{{router_worker_id="{worker}",worker_type="{kind}"}} 1\n'
        body += f'dynamo_frontend_worker_active_decode_blocks{{worker_id="{worker}",dp_rank="{rank}"}} 0\n'
    return written(DYNAMO) | {"/metrics": Doc(body)}


@pytest.mark.parametrize(
    ("workers", "roles"),
    [
        ((("1", "0", "decode"), ("2", "0", "decode")), [None, None]),
        ((("1", "0", "prefill"), ("2", "0", "decode")), [PREFILL, DECODE]),
        ((("1", "0", "prefill"),), [PREFILL]),
    ],
    ids=["two alike", "prefill and decode", "prefill alone"],
)
def test_dynamo_s_one_pool_is_nobody_s_where_several_workers_stand(
    workers: tuple[tuple[str, str, str], ...], roles: list[str | None]
) -> None:
    facts = describe_served(dynamo_metrics(*workers), {})
    assert node_of(facts).role == ROUTER
    assert [role for _, role in node_of(facts).workers] == roles
    assert [node.pool.value for node in facts.nodes] == [None] * len(workers)
    assert exit_code(facts) != 0


@pytest.mark.parametrize("workers", [(), (("1", "0", "decode"), ("1", "1", "decode"))], ids=["unnamed", "two ranks"])
def test_dynamo_s_one_pool_is_unknown_unless_one_rank_of_one_worker_is_named(
    workers: tuple[tuple[str, str, str], ...],
) -> None:
    facts = describe_served(dynamo_metrics(*workers), {})
    assert facts.nodes[0].pool.value is None
    assert exit_code(facts) != 0


def test_dynamo_with_two_models_has_no_figure() -> None:
    docs = written(DYNAMO)
    body = docs["/metrics"].body + 'dynamo_frontend_model_total_kv_blocks{model="other"} 9000\n'
    assert node_of(describe_served(docs | {"/metrics": Doc(body)}, {})).pool.value is None


def test_of_several_processes_of_tensorrt_llm_the_smallest_pool_counts() -> None:
    docs = written(TRT)
    body = docs["/prometheus/metrics"].body + 'trtllm_kv_cache_max_blocks{pid="7"} 100.0\n'
    assert node_of(describe_served(docs | {"/prometheus/metrics": Doc(body)}, {})).pool.value == 100 * 32


def test_tensorrt_llm_before_its_first_iteration_says_what_to_do() -> None:
    docs = written(TRT)
    body = with_value(docs["/prometheus/metrics"].body, "trtllm_kv_cache_max_blocks", None)
    problem = node_of(describe_served(docs | {"/prometheus/metrics": Doc(body)}, {})).pool.problem or ""
    assert "send one request first" in problem


@pytest.mark.parametrize("models", ['{"models":[]}', None], ids=["none", "two"])
def test_ollama_without_exactly_one_loaded_model_has_no_context(models: str | None) -> None:
    docs = written(OLLAMA)
    loaded = json.loads(docs["/api/ps"].body)["models"]
    docs["/api/ps"] = Doc(models or json.dumps({"models": [*loaded, loaded[0] | {"context_length": 8192}]}))
    facts = describe_served(docs, DECLARED[OLLAMA])
    assert facts.nodes[0].engine == "ollama"
    assert facts.nodes[0].context.value is None
    assert exit_code(facts) != 0


def test_a_worker_of_smg_that_cannot_be_asked_does_not_pass() -> None:
    docs = written(SMG)
    docs["/workers"] = Doc(docs["/workers"].body.replace("WORKER/prefill", "grpc://10.0.0.1:20000"))
    facts = describe_served(docs, {})
    assert facts.nodes[0].problem == "is listed by the router without an address"
    assert exit_code(facts) != 0


def test_smg_that_is_not_ready_does_not_pass() -> None:
    docs = written(SMG)
    docs["/readiness"] = Doc('{"status":"not ready","reason":"insufficient healthy workers"}', 503)
    facts = describe_served(docs, {})
    assert facts.reasons == ("insufficient healthy workers",)
    assert exit_code(facts) != 0


@pytest.mark.parametrize(
    "body",
    [
        '{"loads":[{"worker":"w","load":-1}]}',
        '{"loads":[{"worker":"w","load":0,"details":{"loads":[{"dp_rank":0,"max_total_num_tokens":0}]}}]}',
        '{"loads":[{"worker":"w","load":0,"details":{"loads":null}}]}',
        '{"loads":null}',
        '{"loads":[null]}',
    ],
)
def test_a_load_of_smg_without_a_pool_is_unknown(body: str) -> None:
    node = adapter_of(SMG).read(asked(written(SMG) | {"/get_loads": Doc(body)}))
    assert node.pool.value is None
    assert node.pool.problem


def test_a_load_of_smg_may_lie_one_level_deeper() -> None:
    body = '{"loads":[{"worker":"w","load":0,"details":{"loads":[{"dp_rank":0,"max_total_num_tokens":4096}]}}]}'
    node = adapter_of(SMG).read(asked(written(SMG) | {"/get_loads": Doc(body)}))
    assert node.pool.value == 4096
    assert node.pool.source == "/get_loads loads[0].details.loads[0] max_total_num_tokens"
