"""The tests as a warm process: collected once, judged in a fork for each mutant, the most telling test first."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from . import limits
from .mutants import SOURCE

TESTS = ("tests/pool", "tests/protocol", "tests/sim/test_recordings.py")
PRODUCT = ("src/pagefence/pool", "src/pagefence/protocol")
# It compares the protocol with a page of the docs: it would notice every change, also of words, and prove nothing.
LEFT_OUT = ("test_the_page_in_the_docs_is_up_to_date",)
# Measured with the listener on. What costs more has never been the only one to notice.
SLOWEST_S = 1.0
OPTIONS = [
    *("-p", "no:cacheprovider", "-p", "no:terminal", "-s", "--assert=plain"),
    *("-o", "timeout=0", "-o", "addopts=", "-m", "not slow"),
    # Each fork empties it: none of them lives to clean up.
    *("--basetemp", "build/mutation/tmp"),
]


class Known(msgspec.Struct, frozen=True):
    """A test as it behaves on the sound code: a digest of its text, and the functions of the product that it calls."""

    seconds: float
    source: str
    calls: frozenset[str]


Survey = dict[str, Known]


def run_pytest(loop: Callable[[pytest.Session], None]) -> int:
    """Collect the tests and hand them to `loop`."""
    settings.register_profile("mutation", database=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
    settings.load_profile("mutation")
    return pytest.main([*OPTIONS, *TESTS], plugins=[_Loop(loop)])


class _Loop:
    def __init__(self, loop: Callable[[pytest.Session], None]) -> None:
        self.loop = loop

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Without what proves nothing."""
        items[:] = [item for item in items if not item.name.startswith(LEFT_OUT)]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of pytest's own."""
        if session.testsfailed:
            raise session.Interrupted("errors during collection")
        self.loop(session)
        return True


def fails(item: pytest.Item) -> bool:
    """Run one test. What a failure looks like is of no interest, and to draw it takes longer than most tests."""
    item.repr_failure = _no_picture  # type: ignore[method-assign]
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _no_picture(*_: object, **__: object) -> str:
    return ""


def first_failure(items: Iterable[pytest.Item], survey: Survey) -> str | None:
    """The first test that notices, each within a few times its usual time."""
    for item in items:
        limits.allow_cpu(2 + 6 * survey[item.nodeid].seconds)
        if fails(item):
            return item.nodeid
    return None


def in_order(
    items: Sequence[pytest.Item], survey: Survey, scope: str | None, telling: Counter[str]
) -> list[pytest.Item]:
    """Tests that run the function at all: first those that told before, then the cheapest."""
    chosen = [
        item
        for item in items
        if (known := survey.get(item.nodeid)) and known.seconds < SLOWEST_S and (scope is None or scope in known.calls)
    ]
    return sorted(chosen, key=lambda item: (-telling[item.nodeid], survey[item.nodeid].seconds))


# --- the sound code -----------------------------------------------------------------------------------------------


def tree_digest() -> str:
    """Of all tests that judge and all code that they judge."""
    files = (path for root in map(Path, (*TESTS, *PRODUCT)) for path in (root, *root.rglob("*.py")) if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


def take_survey(cache: Path) -> tuple[str, Survey]:
    """Run every test once on the sound code and note what it costs and calls. Kept until a file changes."""
    digest = tree_digest()
    if cache.exists():
        kept = json.loads(cache.read_text(encoding="utf-8"))
        if kept["digest"] == digest:
            return digest, msgspec.convert(kept["tests"], Survey)
    status, said = limits.in_a_child(_survey)
    if status != 0 or not said:
        sys.exit(f"The tests do not pass on the sound code; run: make test ARGS='{' '.join(TESTS)}'")
    survey = msgspec.json.decode(said, type=Survey)
    cache.parent.mkdir(exist_ok=True)
    cache.write_bytes(msgspec.json.encode({"digest": digest, "tests": survey}))
    return digest, survey


def _survey(out: int) -> None:
    survey: Survey = {}

    def loop(session: pytest.Session) -> None:
        for item in session.items:
            calls: set[str] = set()
            began = time.process_time()
            sys.settrace(_listener(calls))
            failed = fails(item)
            sys.settrace(None)
            if failed:
                print(f"{item.nodeid} fails on the sound code", file=sys.stderr)
                raise session.Failed(item.nodeid)
            survey[item.nodeid] = Known(time.process_time() - began, _source_of(item), frozenset(calls))

    if run_pytest(loop) == 0:
        _write(out, msgspec.json.encode(survey))


def _listener(calls: set[str]) -> Callable[[FrameType, str, Any], None]:
    root = str(SOURCE) + os.sep

    def heard(frame: FrameType, _: str, __: Any) -> None:
        code = frame.f_code
        if code.co_filename.startswith(root):
            calls.add(f"{code.co_filename.removeprefix(root)}:{code.co_qualname}")

    return heard


def _source_of(item: pytest.Item) -> str:
    """The digest of the test's text, so that a kill counts only while the test that made it stands as it stood."""
    subject = getattr(item, "function", None) or getattr(item, "cls", None)
    text = inspect.getsource(subject) if subject else item.nodeid
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write(out: int, data: bytes) -> None:
    while data:
        data = data[os.write(out, data) :]
