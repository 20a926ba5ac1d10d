"""`pagefence verify` on the embedded fleet, as a user runs it: exit code, verdict, report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.small_model import write_small_model


def pagefence(folder: Path, *arguments: str, timeout: float = 1200) -> tuple[int, dict[str, Any], str]:
    """(exit code, JSON report, what a person saw)."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "pagefence", *arguments, "--json", str(report)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    said = " ".join(ended.stdout.replace("│", " ").split())  # however the terminal breaks its lines
    return ended.returncode, json.loads(report.read_text()), said


def test_the_gate_alone_stops_a_pool_below_the_context_and_sends_no_prompt(tmp_path: Path) -> None:
    model = str(write_small_model(tmp_path / "small.gguf"))
    code, report, said = pagefence(tmp_path, "gate", "--fault", "pool-below-context", "--model", model)
    assert (code, report["verdict"], report["exit_code"]) == (1, "FAIL", 1)
    assert "pool 1,024 tokens, needs 2,560" in said
    assert report["cost"]["requests"] == 0


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_the_embedded_fleet_is_clean_with_a_bound_and_its_controls(tmp_path: Path) -> None:
    code, report, said = pagefence(tmp_path, "verify", "--seed", "1")
    assert (code, report["verdict"]) == (0, "CLEAN")
    assert "95 % upper bound" in said
    assert "positive control" in said


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize(("guards", "guard"), [("on", "handoff-check"), ("no-handoff-check", "page-frames")])
def test_a_contained_incident_is_fail_with_rule_and_guard(tmp_path: Path, guards: str, guard: str) -> None:
    code, report, _ = pagefence(tmp_path, "verify", "--fault", "stub-transfer", "--guards", guards, "--seed", "1")
    assert (code, report["verdict"]) == (1, "FAIL")
    assert guard in {evidence.get("guard") for evidence in report["evidence"]}
    assert not {"LEAK", "CORRUPT"} & set(report["verdicts"])


@pytest.mark.slow
@pytest.mark.timeout(6000)
def test_the_incident_is_found_by_at_least_nine_of_ten_seeds(tmp_path: Path) -> None:
    found = 0
    for seed in range(1, 11):
        arguments = ("verify", "--fault", "stub-transfer", "--guards", "off", "--seed", str(seed))
        code, report, _ = pagefence(tmp_path, *arguments)
        assert code == 1
        found += {"LEAK", "CORRUPT"} <= set(report["verdicts"])
    assert found >= 9, f"{found} of 10"
