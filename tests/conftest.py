"""Processes share the suite: one has the real fleets, so that no two of them want the cores at once."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.namespaces import two_hosts

HERE = Path(__file__).parent
# What shares something that takes seconds: a fleet; transformers and the models that are compared with it. First, so
# that nobody waits for them at the end.
TOGETHER = {HERE / "e2e": "fleets", HERE / "engine" / "model": "models"}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each process begins to read the tests at another place: what has no byte code yet is compiled by one of them."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker.startswith("gw") or sys.dont_write_bytecode:
        return
    asked = [Path(argument.partition("::")[0]).resolve() for argument in session.config.args]
    files = sorted({file for path in asked for file in ([path] if path.is_file() else path.rglob("test_*.py"))})
    start = len(files) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for file in files[start:] + files[:start]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collection says what is wrong with it
            importlib.import_module(".".join(file.relative_to(HERE.parent).with_suffix("").parts))


def group_of(file: Path) -> str:
    """Every other file is a group of its own."""
    return next((group for folder, group in TOGETHER.items() if folder in file.parents), str(file))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups are dealt out in this order (`--no-loadscope-reorder`): those above, then by their number of tests."""
    groups = {item: group_of(item.path) for item in items}
    sizes = Counter(groups.values())
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    first = tuple(TOGETHER.values())
    rank = {group: first.index(group) if group in first else len(first) for group in sizes}
    items.sort(key=lambda item: (rank[groups[item]], -sizes[groups[item]]))


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a wire between them, the first at HERE, the second at THERE."""
    with contextlib.ExitStack() as stack:
        try:
            names = stack.enter_context(two_hosts())
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces need root and iproute2: {error}")
        yield names
