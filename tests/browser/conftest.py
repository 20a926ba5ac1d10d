"""A real browser for pages that PageFence writes, and a folder for what it saw."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--artefacts", type=Path, help="Folder for screenshots. Default: the test's own.")


@pytest.fixture
def artefacts(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder: Path = request.config.getoption("--artefacts", default=None) or tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium: the system's, or one that playwright has installed. Skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="`make test-browser` installs playwright")
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    with playwright.sync_playwright() as started:
        try:
            chromium = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no Chromium here (Debian: apt-get install chromium): {str(error)[:100]}")
        yield chromium
        chromium.close()
