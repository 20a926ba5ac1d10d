"""A single vLLM server whose pool is many times its context: nothing stands in the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.rigs import VLLM, pagefence, rig

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    # In bfloat16 a CPU without instructions for it computes a prompt of 2,000 tokens in a minute, in float32 in 15 s.
    with rig("vllm", RIGS_VLLM_EXTRA="--dtype float32"):
        yield


def test_the_gate_passes(tmp_path: Path) -> None:
    answered = pagefence(tmp_path / "gate.json", "gate", VLLM)
    assert (answered.code, answered.verdict) == (0, "CLEAN")
    (node,) = answered.report["fleet"]["nodes"]
    assert (node["engine"], node["context"]["value"]) == ("vllm", 2048)
    assert node["pool"]["value"] >= 2048 * 1.25
    assert node["pool"]["source"].startswith("/metrics")
    assert answered.report["cost"]["requests"] == 0


def test_nothing_leaks_and_every_border_is_kept(tmp_path: Path) -> None:
    answered = pagefence(tmp_path / "verify.json", "verify", VLLM, "--yes", "--seed", "1", "--timeout", "600")
    assert (answered.code, answered.verdict) == (0, "CLEAN"), answered.said
    asked = {probe["name"] for probe in answered.report["probes"]}
    assert asked == {"gate", "boundary", "canary", "salt", "conservation", "latency"}
    assert answered.report["n"] > 0
    assert answered.report["controls"]["held"] == answered.report["controls"]["asked"] > 0
