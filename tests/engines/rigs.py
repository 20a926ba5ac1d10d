"""Real engines, started and ended by a folder of commands, and asked by `pagefence` as a user asks them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

VLLM = "http://127.0.0.1:18400"
SGLANG = "http://127.0.0.1:18420"
ROUTER, PREFILL, DECODE = "http://127.0.0.1:18430", "http://127.0.0.1:18431", "http://127.0.0.1:18432"
LLAMA = "http://127.0.0.1:18450"
_START_S = 900.0


@dataclass(frozen=True)
class Answered:
    """How `pagefence` ended: exit code, JSON report, and what a person saw."""

    code: int
    report: dict[str, Any]
    said: str

    @property
    def verdict(self) -> str:
        return str(self.report["verdict"])

    def evidence(self, kind: str, check: str | None = None) -> list[dict[str, Any]]:
        return [e for e in self.report["evidence"] if e["kind"] == kind and check in (None, e["check"])]


def folder() -> Path:
    """The rigs' folder, or the test is skipped. docs/guides/gate.md says what it must offer."""
    named = os.environ.get("PAGEFENCE_RIGS")
    if not named:
        pytest.skip("real engines: set PAGEFENCE_RIGS to a folder with up.sh and down.sh (make test-engines RIGS=...)")
    for command in ("up.sh", "down.sh"):
        if not os.access(Path(named) / command, os.X_OK):
            pytest.fail(f"PAGEFENCE_RIGS={named} has no {command} that can be run")
    return Path(named).resolve()


@contextlib.contextmanager
def rig(name: str, **environment: str) -> Iterator[None]:
    """One engine, up while the block runs. A rig that does not come up fails the test with its own words."""
    commands = folder()
    # The tests' interpreter and proxies are none of the engine's business.
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | environment
    try:
        done = subprocess.run(
            [str(commands / "up.sh"), name],
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_START_S,
            check=False,
        )
        if done.returncode != 0:
            pytest.fail(f"{name} did not come up:\n{done.stdout[-2000:]}")
        yield
    finally:
        subprocess.run([str(commands / "down.sh"), name], env=clean, timeout=120, check=False)


def pagefence(report: Path, *arguments: str, timeout_s: float = 1500) -> Answered:
    """Run the command as a process of its own, with two keys that no engine here asks for."""
    keys = {"PAGEFENCE_KEY_A": "rig-tenant-a", "PAGEFENCE_KEY_B": "rig-tenant-b"}
    command = [sys.executable, "-m", "pagefence", *arguments, "--json", str(report)]
    done = subprocess.run(
        command, env=os.environ | keys, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    # Shown by `pytest -s`, and beside a failure: what the engine made of it.
    print(f"\n$ pagefence {' '.join(arguments)}\n{done.stdout}{done.stderr}exit {done.returncode}")
    assert report.exists(), f"no report was written:\n{done.stdout}{done.stderr}"
    seen = " ".join(done.stdout.replace("│", " ").split())
    return Answered(done.returncode, json.loads(report.read_text()), seen)
