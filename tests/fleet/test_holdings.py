"""What requests hold of a node, as real engines tell it, and as nothing where they do not."""

from __future__ import annotations

import json

import pytest

from pagefence.fleet.engines import ADAPTERS, Asked
from pagefence.fleet.engines.adapter import Holding
from tests.fleet.replay import CAPTURED, Document


def read(engine: str, text: str, role: str = "single", status: int = 200) -> Holding:
    adapter = next(a for a in ADAPTERS if a.engine == engine and a.held is not None)
    assert adapter.held is not None
    return adapter.held(Asked("", {adapter.held_at: Document(status, text.encode()).reply()}), role)


@pytest.mark.parametrize(
    ("document", "role", "expected"),
    [
        ("vllm-0.32.0/counters_before.prom", "single", Holding(0, "% of the pool", 0)),
        ("vllm-0.32.0/counters_after.prom", "single", Holding(0, "% of the pool", 708)),
        ("sglang-0.5.23/single/get_v1_loads.json", "single", Holding(0, "tokens", 12)),
        ("sglang-0.5.23/single/loads_after.json", "single", Holding(0, "tokens", 1330)),
        ("sglang-0.5.23/pd-prefill/loads_after.json", "prefill", Holding(0, "tokens", 14006, 300)),
        ("sglang-0.5.23/pd-decode/loads_after.json", "decode", Holding(0, "tokens", 258, 300)),
        ("llama-server-b11434/counters_before.prom", "single", Holding(0, "slots", 0)),
        ("llama-server-b11434/counters_after.prom", "single", Holding(0, "slots", 108)),
    ],
)
def test_engines_at_rest_hold_nothing_however_much_they_cache(document: str, role: str, expected: Holding) -> None:
    engine = document.split("/", maxsplit=1)[0].rsplit("-", 1)[0]
    assert read(engine, (CAPTURED / document).read_text(encoding="utf-8"), role) == expected


def test_ranks_are_added_up_and_one_that_does_not_tell_leaves_the_node_unknown() -> None:
    def loads(*used: object) -> str:
        return json.dumps({"loads": [{"num_used_tokens": tokens} for tokens in used]})

    assert read("sglang", loads(96, 32)).amount == 128
    for silent in (None, "96", True, -1):
        assert read("sglang", loads(96, silent)).amount is None
    shares = "".join(f'vllm:kv_cache_usage_perc{{engine="{i}"}} {share}\n' for i, share in enumerate((0.25, 0.5)))
    assert read("vllm", shares, "prefill") == Holding(75, "% of the pool", None, 480)
    assert read("vllm", "vllm:kv_cache_usage_perc NaN\n").amount is None


def test_our_own_workers_hold_what_is_leased_what_waits_for_proof_and_what_no_list_has() -> None:
    def held(pages: dict[str, int], **counted: int) -> Holding:
        return read("pagefence", json.dumps({"engine": "pagefence", "pages": pages} | counted))

    pages = {"free": 1, "leased": 5, "cached": 7, "quarantined": 2, "retired": 3, "total": 18}
    assert held(pages, prompts=2, computed_tokens=40, cached_tokens=64) == Holding(7, "pages", 42)
    assert held(pages, handoffs=2, prompt_tokens=104, generated_tokens=9) == Holding(7, "pages", 9)
    assert held(pages | {"free": 0}) == Holding(8, "pages"), "a page was taken from a list and put into none"
    assert held(pages | {"free": 10}).amount is None, "more pages than there are"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama-server", "pagefence"])
def test_what_is_missing_cut_or_of_another_engine_tells_nothing(engine: str) -> None:
    for text, status in (
        ("", 200),
        ("<html>", 200),
        ("other 3\n", 200),
        ("{}", 200),
        ('{"loads": [1]}', 200),
        ("", 404),
    ):
        assert read(engine, text, status=status).amount is None
