"""SGLang with a pool of twice its context: nothing is wrong but how it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.rigs import SGLANG, pagefence, rig

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    with rig("sglang", RIGS_SGL_EXTRA="--max-total-tokens 4096 --dtype float32"):
        yield


def test_its_only_fault_is_the_refusal_after_the_headers(tmp_path: Path) -> None:
    """The last six tokens of the context are refused, and in a stream only after HTTP 200: so with any pool (I3)."""
    answered = pagefence(tmp_path / "verify.json", "verify", SGLANG, "--yes", "--seed", "1", "--timeout", "600")
    assert (answered.code, answered.report["verdicts"]) == (1, ["FAIL"]), answered.said
    assert {(e["probe"], e["check"]) for e in answered.evidence("FAIL")} == {("boundary", "border")}
    assert all("inside a stream that had begun" in e["what"] for e in answered.evidence("FAIL"))
    assert answered.report["n"] > 0
    assert answered.report["controls"]["held"] == answered.report["controls"]["asked"] > 0
