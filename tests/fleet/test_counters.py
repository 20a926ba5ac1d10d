"""Counters of real engines, as they were captured before and after a run, and what moved in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagefence.engine.metrics import worker_metrics
from pagefence.fleet.counters import Window
from pagefence.fleet.engines import ADAPTERS, Asked
from pagefence.fleet.engines.adapter import Counters
from pagefence.fleet.http import Reply

CAPTURED = Path(__file__).parent / "captured"


def read(engine: str, text: str, role: str = "single", status: int = 200) -> Counters:
    reader = next(a.counters for a in ADAPTERS if a.engine == engine and a.counters is not None)
    return reader(Asked("", {"/metrics": Reply(status, {}, None if status == 200 else "HTTP", text)}), role)


def captured(folder: str, when: str, role: str) -> Counters:
    engine = folder.split("/", maxsplit=1)[0].rsplit("-", 1)[0]
    return read(engine, (CAPTURED / folder / f"counters_{when}.prom").read_text(encoding="utf-8"), role)


@pytest.mark.parametrize(
    ("folder", "role", "before", "after"),
    [
        ("vllm-0.32.0", "single", Counters(0, 0, 0), Counters(6, 660, 256)),
        ("sglang-0.5.23/single", "single", Counters(1, 6, 0), Counters(28, 5331, 4073)),
        ("sglang-0.5.23/pd-prefill", "prefill", Counters(27, 14046, 32), Counters(32, 15035, 32)),
        ("sglang-0.5.23/pd-decode", "decode", Counters(27, 25274, 0), Counters(29, 29008, 0)),
        ("llama-server-b11434", "single", Counters(None, 0, 0), Counters(None, 9023, 6877)),
    ],
)
def test_captured_counters_are_read(folder: str, role: str, before: Counters, after: Counters) -> None:
    assert captured(folder, "before", role) == before
    assert captured(folder, "after", role) == after


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama-server", "pagefence"])
def test_a_page_that_is_missing_cut_or_of_another_engine_tells_nothing(engine: str) -> None:
    for text, status in (("", 200), ("<html>", 200), ("other_total 3\n", 200), ("", 404)):
        assert read(engine, text, status=status) == Counters()


def test_our_own_workers_tell_prompts_on_both_sides() -> None:
    told = {"model_name": "m", "version": "1", "epoch": 1, "pages": {}, "max_total_num_tokens": 64}
    prefill = told | {"disaggregation_mode": "prefill", "prompts": 2, "computed_tokens": 40, "cached_tokens": 64}
    decode = told | {"disaggregation_mode": "decode", "handoffs": 2, "prompt_tokens": 104, "generated_tokens": 9}
    assert read("pagefence", worker_metrics(prefill, {}).decode(), "prefill") == Counters(2, 104, 64)
    assert read("pagefence", worker_metrics(decode, {}).decode(), "decode") == Counters(2, 104, 0)


def test_a_sum_needs_every_node_and_a_restart_is_no_difference() -> None:
    def window(before: dict[str, Counters], after: dict[str, Counters]) -> Window:
        return Window("", (), before, after, ("a", "b"), ())

    two = {"a": Counters(1), "b": Counters(5)}
    assert window(two, {"a": Counters(3), "b": Counters(6)}).moved(("a", "b"), "requests") == 3
    assert window(two, {"a": Counters(3)}).moved(("a", "b"), "requests") is None
    assert window(two, {"a": Counters(3), "b": Counters(4)}).moved(("a", "b"), "requests") is None
    assert window(two, two).moved((), "requests") is None
