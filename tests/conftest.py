"""Three processes share the suite: one has the real fleets, so that no two of them want the cores at once."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.namespaces import two_hosts

FLEETS = Path(__file__).parent / "e2e"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of real fleets stay together, in order; every other file is a group of its own."""
    for item in items:
        group = "fleets" if FLEETS in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a wire between them, the first at HERE, the second at THERE."""
    with contextlib.ExitStack() as stack:
        try:
            names = stack.enter_context(two_hosts())
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces need root and iproute2: {error}")
        yield names
