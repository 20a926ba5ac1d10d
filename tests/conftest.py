"""Two processes share the suite: one has the real fleets, so that no two of them want the cores at once."""

from __future__ import annotations

from pathlib import Path

import pytest

FLEETS = Path(__file__).parent / "e2e"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real fleets stay together, in order; every other file is a group of its own."""
    for item in items:
        group = "fleets" if FLEETS in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
