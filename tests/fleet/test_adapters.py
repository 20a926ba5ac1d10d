"""Every adapter reads the figures that its engine really told, and one that cannot be read never passes the gate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.fleet import Fleet, FleetFacts, Keys, NodeFacts, Target
from pagefence.fleet.describe import describe
from pagefence.fleet.engines import ADAPTERS, Adapter, Asked
from pagefence.fleet.facts import DECODE, PREFILL, SINGLE
from pagefence.probes.gate import gate
from pagefence.probes.gate.policy import Policy
from pagefence.verdict import decide
from tests.fleet.contracts import CHECKSUM, CONTRACTS, MODELS, OWNER, Contract, capacity, label
from tests.fleet.replay import CAPTURED, HANG, MISSING, Document, Field, Node, Stage, changed, node


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage().open() as opened:
        yield opened


def exit_code(facts: FleetFacts) -> int:
    return decide([gate(facts, policy=Policy(inside=True))]).exit_code


def only(facts: FleetFacts) -> NodeFacts:
    (found,) = facts.nodes
    return found


def test_a_declared_engine_is_held_against_its_advisories_however_it_is_written(stage: Stage) -> None:
    url = stage.put({"/v1/models": Document(200, b'{"data": [{"id": "m", "max_model_len": 2048}]}')})
    target = Target(url, declared={"": {"pool": 4096}}, software={"": {"engine": "vLLM", "version": "0.29.0"}})

    async def ask() -> FleetFacts:
        async with Fleet(target, Keys(), 10.0) as fleet:
            return await describe(fleet)

    assert exit_code(asyncio.run(ask())) == 1


# What was captured is read as it is.


def figures(found: NodeFacts) -> dict[str, object]:
    """The figures of a node, and what else rules ask for."""
    return {
        "role": found.role,
        "version": found.version,
        "pool": found.pool.value,
        "longest": found.longest.value,
        "context": found.context.value,
        "page_size": found.page_size.value,
        "ranks": [rank.value for rank in found.ranks],
        "advertised": found.advertised.value,
        "model": found.model,
        "flags": {name: flag.value for name, flag in found.flags.items()},
        "missing": found.missing,
        "problem": found.problem,
    }


SGLANG = {
    "version": "0.5.23",
    "context": 2048,
    "page_size": 1,
    "advertised": 2048,
    "model": "smol",
    "flags": {"auto_truncate": False, "kv_checksum": False, "kv_transfer": "mooncake"},
    "missing": (),
    "problem": None,
}


@pytest.mark.parametrize(
    ("folder", "role", "told", "memory"),
    [
        ("single", SINGLE, {"pool": 1024, "ranks": [1024], "longest": 1017}, "0.716"),
        ("pd-prefill", PREFILL, {"pool": 1024, "ranks": [1024], "longest": 1017}, "0.719"),
        ("pd-decode", DECODE, {"pool": 4096, "ranks": [4096], "longest": 2041}, "0.843"),
    ],
)
def test_sglang_0_5_23_is_read_as_it_is(
    stage: Stage, folder: str, role: str, told: dict[str, object], memory: str
) -> None:
    found = only(stage.facts(("router", node(f"sglang-0.5.23/{folder}"))))
    assert found.recognised == "/server_info holds SGLang's launch flags"
    assert figures(found) == SGLANG | {"role": role} | told
    assert found.pool.source == "/server_info internal_states[0].memory_usage token_capacity"
    assert found.settings["mem_fraction_static"] == memory


def test_an_sglang_that_has_the_deprecated_address_only_is_read_there(stage: Stage) -> None:
    found = only(stage.facts(("router", node("sglang-0.5.23/single", without=("/server_info",)))))
    assert found.recognised == "/get_server_info holds SGLang's launch flags"
    assert figures(found) == SGLANG | {"role": SINGLE, "pool": 1024, "ranks": [1024], "longest": 1017}
    assert found.pool.source.startswith("/get_server_info ")


def test_vllm_0_32_0_is_read_as_it_is(stage: Stage) -> None:
    found = only(stage.facts(("router", node("vllm-0.32.0"))))
    assert found.recognised == '/v1/models says owned_by = "vllm"'
    assert figures(found) == {
        "role": SINGLE,
        "version": "0.32.0",
        "pool": 46464,  # 363 of 364 blocks of 128: one is the null block
        "longest": None,
        "context": 2048,
        "page_size": 128,
        "ranks": [46464],
        "advertised": 2048,
        "model": "smol",
        "flags": {},
        "missing": (),
        "problem": None,
    }
    assert found.pool.source == "/metrics vllm:cache_config_info kv_cache_size_tokens less the null block"
    assert found.settings["gpu_memory_utilization"] == "0.92"
    assert found.settings["model_path"] == "/models/smollm2"
    assert found.settings["data_parallel_ranks"] == "1"


def test_llama_server_b11434_is_read_as_it_is(stage: Stage) -> None:
    found = only(stage.facts(("router", node("llama-server-b11434"))))
    assert found.recognised == "/props holds default_generation_settings"
    assert figures(found) == {
        "role": SINGLE,
        "version": None,  # it was built outside a repository, and says b0-unknown
        "pool": None,
        "longest": None,
        "context": 1024,
        "page_size": 1,
        "ranks": [None],
        "advertised": 1024,
        "model": "smol",
        "flags": {},
        "missing": ("pool",),
        "problem": None,
    }
    assert "at least 1,024 tokens" in str(found.pool.problem)
    assert "declare pool" in str(found.pool.problem)
    assert found.settings["build_info"] == "b0-unknown"
    assert (found.settings["total_slots"], found.settings["n_ctx"], found.settings["ftype"]) == ("2", "1024", "Q4_1")


def test_a_llama_server_with_one_slot_has_the_context_as_its_pool(stage: Stage) -> None:
    documents = changed(node("llama-server-b11434"), Field("/props", ("total_slots",)), 1)
    documents = changed(documents, Field("/props", ("build_info",)), "b11434-0123abc")
    found = only(stage.facts(("router", documents)))
    assert (found.pool.value, found.missing, found.version) == (1024, (), "b11434-0123abc")


@pytest.mark.parametrize("value", [MISSING, 0, "None", None, True, 1.5, -2])
def test_a_llama_server_that_does_not_tell_its_slots_tells_no_pool(stage: Stage, value: object) -> None:
    documents = changed(node("llama-server-b11434"), Field("/props", ("total_slots",)), value)
    facts = stage.facts(("router", documents))
    assert (only(facts).pool.value, only(facts).context.value) == (None, 1024)
    assert exit_code(facts) == 3


def test_a_llama_server_with_several_slots_is_gated_by_the_declared_pool(stage: Stage) -> None:
    documents = node("llama-server-b11434")
    assert exit_code(stage.facts(("router", documents))) == 3
    assert exit_code(stage.facts(("router", documents), declared={"pool": 2048})) == 0
    assert exit_code(stage.facts(("router", documents), declared={"pool": 1024})) == 1


def test_the_tokens_field_is_the_one_that_the_engine_knows() -> None:
    assert {adapter.engine: adapter.token_field for adapter in ADAPTERS}["llama-server"] == "content"


# Many ranks.


def dp_sglang(capacities: list[object], size: object, loads: dict[object, object] | None = None) -> Node:
    """The captured SGLang with other data-parallel ranks. `loads`: pools of `/v1/loads` by the number of the rank."""
    documents = node("sglang-0.5.23/single")
    info, load = json.loads(documents["/server_info"].body), json.loads(documents["/v1/loads"].body)
    info["internal_states"] = [{"memory_usage": {"token_capacity": each}} for each in capacities]
    info["dp_size"] = size
    load["loads"] = [
        load["loads"][0] | {"dp_rank": rank, "max_total_num_tokens": pool} for rank, pool in (loads or {}).items()
    ]
    changes = {"/server_info": info} | ({"/v1/loads": load} if loads is not None else {})
    bodies = {path: replace(documents[path], body=json.dumps(body).encode()) for path, body in changes.items()}
    return {path: document for path, document in (documents | bodies).items() if path in bodies or path != "/v1/loads"}


@pytest.mark.parametrize(
    ("capacities", "size", "loads", "pool"),
    [
        ([4096, 3072], 2, None, 3072),
        ([4096, None], 2, None, None),
        ([4096], 2, None, None),
        ([4096], 2, {0: 4096, 1: 3000}, 3000),
        ([2900], 2, {0: 4096, 1: 3000}, 2900),
        ([], 2, {0: 4096, 1: 3000}, 3000),
        ([4096], 2, {0: 4096}, None),
        ([4096], 2, {0: 4096, 1: 0}, None),
        ([4096], 2, {0: 4096, 1: "None"}, None),
        ([4096], 2, {0: 4096, "1": 4096}, None),
        ([4096], 2, {0: 4096, 2: 4096}, None),
        ([4096], 2**40, {0: 4096}, None),
        ([4096], "None", {0: 4096}, None),
    ],
)
def test_the_pool_of_sglang_is_that_of_its_smallest_rank(
    stage: Stage, capacities: list[object], size: object, loads: dict[object, object] | None, pool: int | None
) -> None:
    found = only(stage.facts(("router", dp_sglang(capacities, size, loads))))
    assert found.pool.value == pool
    assert (pool is None) == bool(found.pool.problem)


def test_the_longest_prompt_of_sglang_fits_its_smallest_rank(stage: Stage) -> None:
    """`max_req_input_len` is rank 0's: here 1,018, while another rank holds 512."""
    assert only(stage.facts(("router", dp_sglang([1024, 512], 2)))).longest.value == 505


def dp_vllm(tokens: list[object], blocks: int, size: int = 16, **labels: object) -> Node:
    """The captured vLLM with a sample for each data-parallel rank."""
    documents = node("vllm-0.32.0")
    for name, value in {"num_gpu_blocks": blocks, "block_size": size, "kv_cache_memory_bytes": None, **labels}.items():
        documents = changed(documents, label(name), value)
    lines = []
    for line in documents["/metrics"].body.decode().splitlines(keepends=True):
        if not line.startswith("vllm:cache_config_info{"):
            lines.append(line)
            continue
        for rank, told in enumerate(tokens):
            named = line.replace('engine="0"', f'engine="{rank}"')
            lines.append(named.replace('kv_cache_size_tokens="46592"', f'kv_cache_size_tokens="{told}"'))
    return {**documents, "/metrics": replace(documents["/metrics"], body="".join(lines).encode())}


@pytest.mark.parametrize(
    ("documents", "pool"),
    [
        (dp_vllm([16000], 1000), 15984),
        (dp_vllm([463459], 320, 8), 462010),  # a hybrid model: blocks x block size would say 2,560
        (dp_vllm([16000, 16000], 2000), 15984),
        (dp_vllm([16000, 16000], 1900), None),
        (dp_vllm([16000, 16000, 16000], 3000), None),  # may be 1,000 + 999 + 1,001 blocks
        (dp_vllm([16000, 16000, 16000], 3000, kv_cache_memory_bytes=1 << 30), 15984),
        (dp_vllm([16000, 16000, 16000], 3000, num_gpu_blocks_override=1000), 15984),
        (dp_vllm([16000, 16000, 16000], 2900, num_gpu_blocks_override=1000), None),
        (dp_vllm([16000, "None"], 2000), None),
        (dp_vllm([16], 1), None),  # only the null block
    ],
)
def test_the_pool_of_vllm_is_that_of_its_smallest_rank(stage: Stage, documents: Node, pool: int | None) -> None:
    found = only(stage.facts(("router", documents)))
    assert found.pool.value == pool
    assert (pool is None) == bool(found.pool.problem)


def test_an_adapter_of_a_listed_model_has_its_limit_and_another_null_is_unknown(stage: Stage) -> None:
    """vLLM and SGLang list LoRA adapters with a null limit and the name of their base model as `parent`."""
    documents = node("vllm-0.32.0")
    listed = json.loads(documents["/v1/models"].body)
    base = listed["data"][0]
    for parent, promised in (("smol", 2048), ("another", None), (None, None)):
        listed["data"] = [base, base | {"id": "lora", "max_model_len": None, "parent": parent}]
        document = replace(documents["/v1/models"], body=json.dumps(listed).encode())
        assert only(stage.facts(("router", {**documents, "/v1/models": document}))).advertised.value == promised


@pytest.mark.parametrize("owner", ["tensorrt_llm", "sglang", "llamacpp", "somebody", None, 1])
def test_an_engine_that_has_a_version_too_is_not_taken_for_vllm(stage: Stage, owner: object) -> None:
    found = only(stage.facts(("router", changed(node("vllm-0.32.0"), OWNER, owner))))
    assert found.engine != "vllm"
    assert found.pool.value is None


def test_a_pair_of_which_prefill_is_too_small_fails_there(stage: Stage) -> None:
    facts = stage.facts(("prefill", node("sglang-0.5.23/pd-prefill")), ("decode", node("sglang-0.5.23/pd-decode")))
    assert [(n.role, n.pool.value) for n in facts.nodes] == [("prefill", 1024), ("decode", 4096)]
    assert any(e.where.startswith("prefill") and "1,024" in e.what for e in gate(facts).evidence)
    assert exit_code(facts) == 1


# What is broken never passes.


CASES = [(contract, where) for contract in CONTRACTS for where in contract.decisive]
PATHS = [(c, path) for c in CONTRACTS for path in dict.fromkeys(where.path for where in c.decisive)]
by_field = pytest.mark.parametrize(("contract", "where"), CASES, ids=str)
by_path = pytest.mark.parametrize(("contract", "path"), PATHS, ids=str)
HTML = b"<!doctype html><html><body><h1>Sign in</h1></body></html>\n"


def refused(stage: Stage, contract: Contract, documents: Node, timeout_s: float = 10.0) -> FleetFacts:
    """Facts of a node that cannot be read: the gate says so, whatever else there is to say."""
    facts = stage.facts(*contract.fleet(documents), declared=contract.declared, timeout_s=timeout_s)
    assert decide([gate(facts, policy=Policy(inside=True))]).name == "INCONCLUSIVE"
    return facts


@pytest.mark.parametrize("contract", CONTRACTS, ids=str)
def test_a_sound_node_is_recognised_and_passes(stage: Stage, contract: Contract) -> None:
    """Without it the tests below would show nothing."""
    facts = stage.facts(*contract.fleet(contract.passing()), declared=contract.declared)
    assert facts.nodes[0].engine == contract.engine
    assert exit_code(facts) == contract.exit_code


@pytest.mark.parametrize(
    ("card", "promised"),
    [({}, 2048), ({"max_model_len": "None"}, None), ({"max_model_len": 0}, None), ({"max_model_len": 9000}, 9000)],
)
def test_a_router_that_promises_nothing_hands_on_what_its_workers_promise(
    stage: Stage, card: dict[str, object], promised: int | None
) -> None:
    router = {"/v1/models": Document(200, json.dumps({"data": [{"id": "smol", **card}]}).encode())}
    legs = [(role, node(f"sglang-0.5.23/pd-{role}")) for role in (PREFILL, DECODE)]
    assert stage.facts(("router", router), *legs).advertised.value == promised


@by_field
@pytest.mark.parametrize("value", [MISSING, 0, "None", None], ids=["missing", "0", "None", "null"])
def test_a_figure_that_is_none_never_passes(stage: Stage, contract: Contract, where: Field, value: object) -> None:
    refused(stage, contract, changed(contract.passing(), where, value))


@by_path
@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_a_document_that_is_cut_off_never_passes(stage: Stage, contract: Contract, path: str, part: float) -> None:
    documents = contract.passing()
    body = documents[path].body.rstrip(b"\n")
    cut = replace(documents[path], body=body[: int(part * (len(body) - 1))])
    refused(stage, contract, {**documents, path: cut})


@by_path
@pytest.mark.parametrize(
    "page",
    [
        Document(200, HTML, "text/html"),
        Document(200, HTML, "application/json"),
        Document(502, HTML, "text/html"),
        Document(401, b'{"error":{"message":"Invalid API key"}}'),
        Document(403, HTML, "text/html"),
        Document(302, b"", "text/html", location="http://127.0.0.1:9/sign-in"),
        Document(307, b"", "text/html", location="/elsewhere"),
        Document(500, b'{"detail":"Internal Server Error"}'),
        Document(404, b'{"detail":"Not Found"}'),
        Document(200, b"[]"),
        Document(200, b""),
    ],
    ids=lambda page: f"{page.status}-{page.content_type}-{len(page.body)}",
)
def test_a_page_that_is_no_figure_never_passes(stage: Stage, contract: Contract, path: str, page: Document) -> None:
    refused(stage, contract, {**contract.passing(), path: page})


@pytest.mark.parametrize(
    ("page", "open_api"),
    [
        (Document(200, b'{"data": []}'), True),
        (Document(401, b"{}"), False),
        (Document(404, b"{}"), False),
        (Document(503, b"{}"), None),
        (Document(429, b"{}"), None),
        (Document(307, location="/v1/models/"), None),
        (HANG, None),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Document) else str(value),
)
def test_a_worker_is_closed_to_clients_only_when_it_says_so(
    stage: Stage, page: Document, open_api: bool | None
) -> None:
    documents = {**node("sglang-0.5.23/pd-prefill"), "/v1/models": page}
    facts = stage.facts(("prefill", documents), timeout_s=0.4 if page is HANG else 10.0)
    assert only(facts).open_api is open_api


def test_a_document_that_is_too_large_is_not_read_by_its_beginning(stage: Stage) -> None:
    documents = node("vllm-0.32.0")
    metrics = documents["/metrics"]
    long = replace(metrics, body=metrics.body + b"# more\n" * (1 << 20))
    facts = stage.facts(("router", {**documents, "/metrics": long}))
    assert only(facts).pool.problem == "answered more than 4 MiB"


@by_path
def test_the_error_of_a_page_with_good_figures_counts(stage: Stage, contract: Contract, path: str) -> None:
    """A proxy may answer with the body of an old answer and the status of an error."""
    documents = contract.passing()
    refused(stage, contract, {**documents, path: replace(documents[path], status=503)})


@by_path
def test_a_redirect_is_not_followed_even_to_good_figures(stage: Stage, contract: Contract, path: str) -> None:
    """Where it leads is another address than the one that was named: nobody asked for that one to be gated."""
    documents = contract.passing()
    moved = Document(302, location="moved")
    refused(stage, contract, {**documents, path: moved, f"{path.rpartition('/')[0]}/moved": documents[path]})


@by_path
def test_a_node_that_never_answers_is_given_up(stage: Stage, contract: Contract, path: str) -> None:
    facts = refused(stage, contract, {**contract.passing(), path: HANG}, timeout_s=0.4)
    said = repr((facts.nodes, facts.router))
    assert "did not answer within" in said


# Whatever the bytes are.


def adapters_of(contract: Contract) -> list[Adapter]:
    return [adapter for adapter in ADAPTERS if adapter.engine == contract.engine]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.data(), st.sampled_from(CONTRACTS), json_values)
def test_one_strange_value_anywhere_is_read_without_a_traceback(
    data: st.DataObject, contract: Contract, value: object
) -> None:
    documents = contract.passing()
    where = data.draw(st.sampled_from(contract.decisive))
    depth = data.draw(st.integers(1, len(where.keys)))
    if "json" in documents[where.path].content_type:
        documents = changed(documents, Field(where.path, where.keys[:depth]), value)
    else:
        documents = changed(documents, where, str(value).replace('"', "").replace("\\", "").replace("\n", ""))
    asked = Asked("http://x", {path: document.reply() for path, document in documents.items()})
    for adapter in adapters_of(contract):
        adapter.recognises(asked.reply(adapter.sign))
        adapter.also(asked.reply(adapter.sign))
        found = adapter.read(asked)
        for figure in (found.pool, found.context, found.longest, found.page_size, found.advertised, *found.ranks):
            assert (figure.value is None) != (figure.problem is None)
            assert figure.value is None or figure.value > 0


@settings(deadline=None)
@given(st.sampled_from(CONTRACTS), st.binary(max_size=200))
def test_any_bytes_are_read_without_a_traceback(contract: Contract, raw: bytes) -> None:
    reply = Document(200, raw).reply()
    for adapter in adapters_of(contract):
        adapter.recognises(reply)
        found = adapter.read(Asked("http://x", dict.fromkeys((adapter.sign, *adapter.asks), reply)))
        assert found.pool.value is None


def test_every_engine_that_was_captured_has_its_contract() -> None:
    captured = {str(path.parent.relative_to(CAPTURED)) for path in CAPTURED.rglob("index.json")}
    documented = {folder for folder in captured if node(folder)}
    played = {c.folder for c in CONTRACTS} | {folder for c in CONTRACTS for _, folder in c.beside}
    assert played == documented
    assert {c.engine for c in CONTRACTS} <= {adapter.engine for adapter in ADAPTERS}


def test_a_contract_breaks_only_what_is_there() -> None:
    for where in (Field("/server_info", ("no such",)), Field("/metrics", ("vllm:cache_config_info", "no such"))):
        with pytest.raises(KeyError):
            changed(node("sglang-0.5.23/single") | node("vllm-0.32.0"), where, 1)
    assert changed(node("vllm-0.32.0"), MODELS, 1) != node("vllm-0.32.0")
    assert CHECKSUM.path in node("sglang-0.5.23/pd-decode")
    assert capacity().path in node("sglang-0.5.23/pd-decode")
