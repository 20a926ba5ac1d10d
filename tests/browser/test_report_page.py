"""The HTML report in a real browser: readable on a desk and on a phone, in light and dark, and quiet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.probes.toy import KEYS, Toy, running

pytestmark = pytest.mark.browser

WORLDS = {
    "leak": (Toy("stub", context=512, prefill_pool=256, decode_pool=1024), 1),
    "clean": (Toy(), 0),
}
# What the page is wider than its window by, and the widest element that does it.
OVERFLOW = """() => {
  const room = document.documentElement.clientWidth;
  const wide = [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg, thead'))
    .filter(e => e.getBoundingClientRect().right > room + 1).map(e => e.tagName + '.' + e.className);
  return [document.documentElement.scrollWidth - room, wide.slice(0, 3)];
}"""


@pytest.fixture(scope="module", params=WORLDS)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    toy, code = WORLDS[request.param]
    page = tmp_path_factory.mktemp("report") / f"{request.param}.html"
    keys = {"PAGEFENCE_KEY_A": KEYS[0], "PAGEFENCE_KEY_B": KEYS[1]}
    with running(toy):
        command = [sys.executable, "-m", "pagefence", "verify", toy.url, "--yes", "--seed", "5", "--html", str(page)]
        # A process of its own: the browser's driver has this thread's event loop.
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **keys}, check=False)
    assert done.returncode == code, done.stderr
    return request.param, page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_report_is_readable_asks_nothing_and_complains_of_nothing(
    browser: Any, report: tuple[str, Path], artefacts: Path, width: int, scheme: str
) -> None:
    name, page_file = report
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    page.screenshot(path=artefacts / f"{name}-{width}-{scheme}.png", full_page=True)
    over, widest = page.evaluate(OVERFLOW)
    page.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert (over, widest) == (0, [])


def test_a_report_prints(browser: Any, report: tuple[str, Path], artefacts: Path) -> None:
    name, page_file = report
    page = browser.new_page()
    page.goto(page_file.as_uri())
    paper = page.pdf(path=artefacts / f"{name}.pdf", format="A4")
    page.close()
    assert paper.startswith(b"%PDF")


def test_the_policy_of_the_page_forbids_what_it_does_not_need(browser: Any, report: tuple[str, Path]) -> None:
    """A script, an image from elsewhere and a style that get in all the same are not carried out."""
    _, page_file = report
    hostile = page_file.with_name("hostile.html")
    injected = b'<img src="http://127.0.0.1:9/x.png"><script>document.title="owned"</script><p style="color:red">'
    hostile.write_bytes(page_file.read_bytes().replace(b"<main", injected + b"<main"))
    page = browser.new_page()
    gone: list[str] = []
    page.on("requestfinished", lambda request: gone.append(request.url))
    page.goto(hostile.as_uri())
    title = page.title()
    page.close()
    assert title != "owned"
    assert not [url for url in gone if url.startswith("http")]
