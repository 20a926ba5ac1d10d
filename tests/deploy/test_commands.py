"""A ready file names only flags that there are, and no secret stands where others can read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.commands import DEPLOY, PROJECT, lines_of, refusal

GUIDE = PROJECT / "docs" / "guides" / "gate.md"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
# Where the gate is asked for; the others help these, or are read by them.
ASKING = {
    "action.yml",
    "analysis-template.yaml",
    "init-container.yaml",
    "readiness.yaml",
    "pagefence-gate.service",
}


@pytest.mark.parametrize("path", [*FILES, GUIDE], ids=lambda path: path.name)
def test_the_command_line_takes_every_command_that_is_written_down(path: Path) -> None:
    for line in lines_of(path):
        assert refusal(line) is None, f"pagefence {' '.join(line)}"


def test_every_place_of_use_asks_the_gate() -> None:
    asking = {path.name for path in FILES if any(line[0] == "gate" for line in lines_of(path))}
    assert asking == ASKING


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", "pagefence gate http://h:1 --no-such-flag\n"),
        ("a.service", "[Service]\nExecStart=/opt/bin/wait 9 \\\n  /opt/bin/pagefence gate \\\n  --no-such-flag\n"),
        ("a.yaml", "spec: {command: [pagefence, gate, --no-such-flag]}\n"),
        ("a.yml", 'run: |\n  pagefence gate ${LOCK:+--no-such-flag "$LOCK"} \\\n    --json x\n'),
        ("a.md", "so:\n```sh\npagefence gate --no-such-flag\n```\n"),
    ],
)
def test_a_flag_that_there_is_not_is_found_in_a_file_of_any_kind(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    (line,) = lines_of(path)
    assert "no-such-flag" in (refusal(line) or "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_key_is_written_down_or_put_on_a_command_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assert not re.search(r"PAGEFENCE_KEY_\w+\s*[=:]\s*(?!\$\{\{ secrets\.)\S", code)
    for line in lines_of(path):
        assert not any("PAGEFENCE_KEY" in word or "secret" in word.lower() for word in line)
