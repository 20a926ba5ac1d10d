"""`pagefence edge` as a user starts it: a process of its own, and where it listens."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest


@dataclass(frozen=True, slots=True)
class Edge:
    url: str
    log: Path

    def counted(self, line: str) -> float:
        """A figure of /metrics by the beginning of its line; 0 where it is not there."""
        said = httpx.get(f"{self.url}/metrics").text.splitlines()
        return next((float(each.rpartition(" ")[2]) for each in said if each.startswith(line)), 0.0)


@contextlib.contextmanager
def running_edge(folder: Path, *flags: str, config: str = "", **environment: str) -> Iterator[Edge]:
    """Ready when it is given out. `config`: more of its `edge.toml`."""
    announce, log, file = folder / "address.json", folder / "edge.log", folder / "edge.toml"
    announce.unlink(missing_ok=True)
    file.write_text(f'[upstream]\nurls = ["http://127.0.0.1:9"]\n{config}')  # --upstream wins over it
    secrets = {"PAGEFENCE_EDGE_SECRET": "a secret of the edge that is long enough", **environment}
    command = [sys.executable, "-m", "pagefence", "edge", "--config", str(file), "--port", "0"]
    command += ["--announce", str(announce), *flags]
    with log.open("wb") as out, subprocess.Popen(command, env={**os.environ, **secrets}, stderr=out) as process:
        try:
            yield Edge(_ready(announce, process, log), log)
        finally:
            process.terminate()


def _ready(announce: Path, process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if announce.exists():
            url = str(json.loads(announce.read_text())["url"])
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/readyz").status_code == 200:
                    return url
        time.sleep(0.05)
    pytest.fail(f"the edge was never ready: {log.read_text()}")
