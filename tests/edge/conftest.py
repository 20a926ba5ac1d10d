"""One real edge for all tests that only ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.edge.served import Served, served


@pytest.fixture(scope="session")
def served_edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running
