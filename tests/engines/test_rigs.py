"""Without the rigs' folder the engines' tests are skipped, and say what to set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.rigs import folder, rig


def test_without_a_folder_the_test_is_skipped_and_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGEFENCE_RIGS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="PAGEFENCE_RIGS"):
        folder()


def test_a_folder_without_its_commands_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGEFENCE_RIGS", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match=r"up\.sh"):
        folder()


def test_a_rig_is_taken_down_whatever_happens_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also one that did not come up: its parts may run."""
    for command, code in (("up.sh", 1), ("down.sh", 0)):
        (tmp_path / command).write_text(f"#!/bin/sh\necho {command} $1 $EXTRA >> {tmp_path}/log\nexit {code}\n")
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PAGEFENCE_RIGS", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="engine did not come up"), rig("engine", EXTRA="x"):
        pass
    assert (tmp_path / "log").read_text().splitlines() == ["up.sh engine x", "down.sh engine x"]
