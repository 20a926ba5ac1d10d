"""llama-server with one store for all slots: `/props` tells a context per slot and a number of slots, and their product
overstates what there is; no endpoint says which it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.rigs import LLAMA, pagefence, rig

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    with rig("llama", RIGS_LLAMA_EXTRA="--kv-unified"):
        yield


def test_a_store_that_nobody_tells_of_is_inconclusive(tmp_path: Path) -> None:
    answered = pagefence(tmp_path / "gate.json", "gate", LLAMA)
    assert (answered.code, answered.verdict) == (3, "INCONCLUSIVE")
    (node,) = answered.report["fleet"]["nodes"]
    assert node["engine"] == "llama-server"
    assert node["pool"]["value"] is None


@pytest.mark.parametrize(("pool", "code", "verdict"), [(4096, 0, "CLEAN"), (2048, 1, "FAIL")])
def test_once_declared_it_is_decided(tmp_path: Path, pool: int, code: int, verdict: str) -> None:
    """The store of this rig has 2,048 tokens, with a context of 2,048: no headroom. 4,096 would have passed."""
    answered = pagefence(tmp_path / "gate.json", "gate", LLAMA, "--declare", f"pool={pool}")
    assert (answered.code, answered.verdict) == (code, verdict)
