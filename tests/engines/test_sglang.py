"""SGLang with a pool of half its context: it warns at its start, promises the context, and says that it is healthy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.rigs import SGLANG, pagefence, rig

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    with rig("sglang"):
        yield


def test_the_gate_fails_with_the_live_pool_and_the_context(tmp_path: Path) -> None:
    answered = pagefence(tmp_path / "gate.json", "gate", SGLANG)
    assert (answered.code, answered.verdict) == (1, "FAIL")
    short = next(e for e in answered.evidence("FAIL") if "pool" in e["details"])
    assert (short["details"]["pool"], short["details"]["needed"]) == (1024, 2560)
    assert "context 2,048" in short["what"]
    assert "internal_states[0]" in short["details"]["source"]
    assert "pool 1,024 tokens" in answered.said
    (node,) = answered.report["fleet"]["nodes"]
    assert (node["engine"], node["version"]) == ("sglang", "0.5.23")


def test_the_promise_is_bolder_than_the_pool(tmp_path: Path) -> None:
    answered = pagefence(tmp_path / "gate.json", "gate", SGLANG)
    assert [e["what"] for e in answered.evidence("FAIL", "advertised")]


def test_a_stream_that_is_refused_after_its_headers_is_found(tmp_path: Path) -> None:
    """Between pool and context a streaming prompt gets HTTP 200, and the refusal is an event of the stream (I3)."""
    answered = pagefence(tmp_path / "verify.json", "verify", SGLANG, "--yes", "--seed", "1", "--timeout", "600")
    assert (answered.code, answered.verdict) == (1, "FAIL"), answered.said
    assert any("inside a stream that had begun" in e["what"] for e in answered.evidence("FAIL", "border"))


def test_nothing_leaks_and_a_refusal_inside_a_stream_is_no_answer(tmp_path: Path) -> None:
    """That it came inside a stream is for the boundary to say; the canary counts it as refused."""
    answered = pagefence(tmp_path / "canary.json", "canary", SGLANG, "--yes", "--seed", "1", "--timeout", "600")
    assert (answered.code, answered.report["verdicts"]) == (0, ["CLEAN"]), answered.said
    assert "refused inside a stream" in answered.said
    assert answered.report["n"] > 0
    assert answered.report["controls"]["held"] == answered.report["controls"]["asked"] > 0
