"""What the scripts do with each exit code: 0 alone opens, 3 is asked again for a while, everything else is final."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.commands import DEPLOY

UNTIL = DEPLOY / "gate-until-decided.sh"
ACTION = yaml.safe_load((DEPLOY / "github" / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step}
CODES = (0, 1, 2, 3, 130)


def answering(folder: Path, *codes: int) -> Path:
    """A program that ends with the first code when run first, and so on; the last one for ever. It notes its words."""
    program = folder / "pagefence"
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> '{folder}/asked'
set -- {" ".join(map(str, codes))}
n=$(wc -l < '{folder}/asked')
while [ "$n" -gt 1 ] && [ $# -gt 1 ]; do shift; n=$((n - 1)); done
exit "$1"
"""
    )
    program.chmod(0o755)
    return program


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def until(folder: Path, seconds: str, *codes: int) -> int:
    command = [str(UNTIL), seconds, str(answering(folder, *codes)), "gate"]
    return subprocess.run(command, env={**os.environ, "PAGEFENCE_PAUSE_S": "0"}, timeout=60, check=False).returncode


@pytest.mark.parametrize("script", [str(UNTIL)])
def test_shell_scripts_are_sound(script: str) -> None:
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0


@pytest.mark.parametrize("code", [code for code in CODES if code != 3])
def test_a_decided_answer_is_final(tmp_path: Path, code: int) -> None:
    assert until(tmp_path, "30", code, 0) == code
    assert len(asked(tmp_path)) == 1


def test_an_inconclusive_answer_is_asked_again_until_it_is_decided(tmp_path: Path) -> None:
    assert until(tmp_path, "30", 3, 3, 1, 0) == 1
    assert len(asked(tmp_path)) == 3


def test_time_alone_makes_nothing_clean(tmp_path: Path) -> None:
    assert until(tmp_path, "0", 3, 0) == 3


@pytest.mark.parametrize("seconds", ["soon", "", "-1"])
def test_a_time_that_is_none_is_a_mistake_and_nothing_is_asked(tmp_path: Path, seconds: str) -> None:
    assert until(tmp_path, seconds, 0) == 2
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("lock", ["", "fleet.lock"])
def test_the_step_of_the_action_ends_as_the_gate_does(tmp_path: Path, code: int, lock: str) -> None:
    """As GitHub runs `shell: bash`: with -e and -o pipefail."""
    answering(tmp_path, code)
    script = tmp_path / "step.sh"
    script.write_text(STEPS["Gate"]["run"])
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FLEET": "a fleet.toml", "LOCK": lock}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    assert subprocess.run(command, cwd=tmp_path, env=environment, check=False).returncode == code
    (words,) = asked(tmp_path)
    assert ("--lock fleet.lock" in words) is bool(lock)
    assert "--fleet a fleet.toml --inside" in words


@pytest.mark.parametrize("step", [step for step in ACTION["runs"]["steps"] if "run" in step], ids=lambda s: s["name"])
def test_a_script_of_the_action_is_sound_and_holds_no_expression(step: dict[str, str]) -> None:
    """What `${{ }}` puts into a script is run as script: inputs come as variables."""
    assert subprocess.run(["bash", "-n"], input=step["run"], text=True, check=False).returncode == 0
    assert "${{" not in step["run"]


def test_a_failed_gate_stays_failed_and_is_reported_all_the_same() -> None:
    assert "continue-on-error" not in (DEPLOY / "github" / "action.yml").read_text()
    after = ACTION["runs"]["steps"][ACTION["runs"]["steps"].index(STEPS["Gate"]) + 1 :]
    assert [step["uses"].split("@")[0] for step in after] == [
        "github/codeql-action/upload-sarif",
        "actions/upload-artifact",
    ]
    assert all("!cancelled()" in step["if"] for step in after)
