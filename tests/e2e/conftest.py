"""One fleet for all tests that only talk to it, gone before tests of other folders begin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.fleets import Fleet, serving


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The product, healthy: context 2,048, pools of 2,560."""
    with serving(tmp_path_factory.mktemp("fleet"), "--context", "2048", "--kv-pool-tokens", "2560") as running:
        yield running
