"""The real `pagefence watch`: killed in the middle of a run, started again, stopped; its log holds no secret."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pagefence.watch.state import State
from tests.probes.toy import KEYS, Toy, running


@dataclass
class Started:
    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def history(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = httpx.get(f"{self.url}/history", timeout=30).json()["runs"]
        return runs

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 100
        while not holds():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)


@contextlib.contextmanager
def started(folder: Path, name: str) -> Iterator[Started]:
    announce, log = folder / f"{name}.json", folder / f"{name}.log"
    command = [sys.executable, "-m", "pagefence", "watch", "--config", str(folder / "watch.toml"), "--log-json"]
    environment = os.environ | {"TOY_A": KEYS[0], "TOY_B": KEYS[1]}
    with log.open("wb") as lines:
        process = subprocess.Popen([*command, "--announce", str(announce)], stderr=lines, env=environment)
    watch = Started(process, "", log)
    try:
        watch.until(announce.exists)
        watch.url = json.loads(announce.read_text())["url"]
        yield watch
    finally:
        process.kill()
        process.wait()


CONFIG = """
[listen]
port = 0

[[target]]
name = "toy"
url = "{url}"
keys_env = "TOY"
modules = ["gate", "border", "hourly"]

[module.gate]
probes = ["gate"]
every = 1
jitter = 0

[module.border]
probes = ["boundary"]
every = 0
tokens = 30000

[module.hourly]
probes = ["gate"]
every = 3600
"""


def test_killed_in_the_middle_and_started_again_nothing_is_lost_or_counted_twice(tmp_path: Path) -> None:
    toy = Toy()
    with running(toy):
        (tmp_path / "watch.toml").write_text(CONFIG.format(url=toy.url))
        with started(tmp_path, "first") as watch:
            watch.until(lambda: any(r["module"] == "hourly" and r["phase"] == "finished" for r in watch.history()))
            toy.bug = "hangs"

            def ask() -> None:
                with contextlib.suppress(httpx.HTTPError):  # it is killed before it answers
                    httpx.get(f"{watch.url}/probe?target=toy&module=border", timeout=100)

            asking = threading.Thread(target=ask, daemon=True)
            asking.start()
            watch.until(lambda: watch.history()[0]["module"] == "border")
            before = watch.history()
            assert before[0]["phase"] == "running"
            watch.process.send_signal(signal.SIGKILL)
            watch.process.wait()
        toy.bug = ""
        with started(tmp_path, "second") as watch:
            watch.until(lambda: watch.history()[0]["id"] > before[0]["id"])
            after = {run["id"]: run for run in watch.history()}
            for run in before[1:]:
                assert after[run["id"]] == run
            cut = after[before[0]["id"]]
            assert (cut["phase"], cut["verdict"], cut["charged"]) == ("interrupted", "INCONCLUSIVE", 30000)
            assert [e["run"] for e in watch.events() if e.get("phase") == "interrupted"] == [cut["id"]]
            assert sum(run["module"] == "hourly" for run in after.values()) == 1  # its next one is due in an hour
            watch.process.send_signal(signal.SIGHUP)  # whose terminal went away goes on
            watch.until(lambda: any(e["event"] == "hears" for e in watch.events()))
            watch.process.send_signal(signal.SIGTERM)
            assert watch.process.wait(30) == 0
            assert watch.events()[-1]["event"] == "stops"
        state = State(tmp_path / "watch.db", time.time())
        assert state.interrupted == ()
        assert sum(runs for *_, runs in state.totals()) == len(state.history(999))
        state.close()
        seeds = [run["seed"] for run in after.values()]
        assert len(set(seeds)) == len(seeds)
        for log in tmp_path.glob("*.log"):
            assert not any(key in log.read_text() for key in KEYS)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("watch.db*"))
    assert not any(key.encode() in stored for key in KEYS)
