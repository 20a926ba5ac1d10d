"""`described.py`, in a process of its own: every other process would take seconds to read it and to load its plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).with_name("described.py")


def test_every_answer_is_as_the_api_describes_it() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "schemathesis.pytest.plugin", str(TESTS)]
    ended = subprocess.run(command, cwd=TESTS.parents[3], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
