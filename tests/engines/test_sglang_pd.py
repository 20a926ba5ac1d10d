"""The incident's topology on a version that refuses: prefill's pool is below the context, decode's is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.rigs import DECODE, PREFILL, ROUTER, pagefence, rig

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    with rig("sglang-pd"):
        yield


def test_the_gate_names_the_prefill_leg_and_no_other(tmp_path: Path) -> None:
    answered = pagefence(tmp_path / "gate.json", "gate", ROUTER, "--prefill", PREFILL, "--decode", DECODE, "--inside")
    assert (answered.code, answered.verdict) == (1, "FAIL")
    short = [e for e in answered.evidence("FAIL") if "pool" in e["details"]]
    assert {e["where"] for e in short} == {f"prefill {PREFILL}"}
    assert {(e["details"]["pool"], e["details"]["needed"]) for e in short} == {(1024, 2560)}
    pools = {node["role"]: node["pool"]["value"] for node in answered.report["fleet"]["nodes"]}
    assert pools == {"prefill": 1024, "decode": 4096}


def test_workers_that_were_swapped_are_found(tmp_path: Path) -> None:
    answered = pagefence(tmp_path / "gate.json", "gate", ROUTER, "--prefill", DECODE, "--decode", PREFILL, "--inside")
    assert answered.code != 0
    assert "was declared as prefill but says that it is decode" in answered.said


def test_the_router_alone_does_not_make_a_fleet(tmp_path: Path) -> None:
    """A router's word is no figure: without its workers nothing is proven."""
    answered = pagefence(tmp_path / "gate.json", "gate", ROUTER, "--inside")
    assert (answered.code, answered.verdict) == (3, "INCONCLUSIVE")


def test_the_real_limit_is_found_and_a_decode_that_hangs_is_no_refusal(tmp_path: Path) -> None:
    """Prefill refuses what its pool cannot hold; decode waits for pages that never come, and answers HTTP 500 (I3)."""
    workers = ("--prefill", PREFILL, "--decode", DECODE)
    answered = pagefence(tmp_path / "boundary.json", "boundary", ROUTER, *workers, "--yes", "--seed", "1")
    assert answered.code == 1, answered.said
    assert "accepted 1,018, answered 1,018" in answered.said
    found = [e["what"] for e in answered.evidence("FAIL", "border")]
    assert any("refused with HTTP 500 after 4" in what for what in found), "its own time-out is 45 s"
    assert any("the error came inside a stream that had begun with HTTP 200" in what for what in found)
