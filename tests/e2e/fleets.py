"""Real fleets for tests: `pagefence serve` as a child process, its URLs, and what the operating system knows of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

# Beside another process of the suite, two threads of one fleet would wait for each other at every barrier.
ONE_THREAD = ("--threads", "1") if "PYTEST_XDIST_WORKER" in os.environ else ()
KEY_A, KEY_B = "key-of-a", "key-of-b"
START_S = 90.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """A running fleet. `process` is the router; the workers are its children."""

    process: subprocess.Popen[bytes]
    router: str

    def client(self, key: str = KEY_A, timeout: float = 120.0) -> httpx.Client:
        """An HTTP client of one tenant."""
        return httpx.Client(base_url=self.router, headers={"Authorization": f"Bearer {key}"}, timeout=timeout)

    def worker_info(self, role: str) -> dict[str, Any]:
        """What the first living worker of this role says of itself."""
        router = httpx.get(f"{self.router}/server_info").json()
        url = next(worker["url"] for worker in router["workers"] if worker["role"] == role)
        info: dict[str, Any] = httpx.get(f"{url}/server_info").json()
        return info

    def workers(self) -> dict[str, dict[str, Any]]:
        """What every living worker says of itself, by name."""
        listed = httpx.get(f"{self.router}/server_info").json()["workers"]
        return {worker["name"]: httpx.get(f"{worker['url']}/server_info").json() for worker in listed}

    def at_rest(self, within_s: float = 20.0) -> dict[str, dict[str, int]]:
        """Page counts of all workers once every page is free, cached or retired; fails when that does not come."""
        deadline = time.monotonic() + within_s
        while True:
            pages = {}
            with contextlib.suppress(httpx.HTTPError):
                pages = {name: info["pages"] for name, info in self.workers().items()}
                roles = {name.partition("-")[0] for name in pages}
                if len(roles) == 2 and all(map(_whole, pages.values())):
                    return pages
            assert time.monotonic() < deadline, f"pages are still held: {pages}"
            time.sleep(0.1)


def _whole(count: dict[str, int]) -> bool:
    return count["free"] + count["cached"] + count["retired"] == count["total"]


def complete(client: httpx.Client, prompt: str | list[int], max_tokens: int = 8, **more: Any) -> httpx.Response:
    """One greedy completion."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **more}
    return client.post("/v1/completions", json=body)


MODEL = "smol"


@contextlib.contextmanager
def serving(
    folder: Path,
    *flags: str,
    command: tuple[str, ...] = ("-m", "pagefence", "serve"),
    wait_ready: bool = True,
    environ: dict[str, str] | None = None,
) -> Iterator[Fleet]:
    """A fleet with these flags; ended afterwards, with a check that nothing of it is left."""
    announce, log = folder / "fleet.json", folder / "fleet.log"
    announce.unlink(missing_ok=True)
    arguments = [sys.executable, *command, "--port", "0", "--model-name", MODEL, "--announce", str(announce)]
    arguments += [*ONE_THREAD, *flags]
    environment = {**os.environ, "PAGEFENCE_API_KEYS": f"a={KEY_A},b={KEY_B}", **(environ or {})}
    with log.open("wb") as out:
        process = subprocess.Popen(arguments, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + START_S
        while not announce.exists():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        fleet = Fleet(process, json.loads(announce.read_text())["router"])
        if wait_ready:
            assert httpx.get(f"{fleet.router}/readyz").status_code == 200, log.read_text()
        yield fleet
    finally:
        family = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            assert gone(family), "a process outlived the fleet"


def descendants(pid: int) -> list[psutil.Process]:
    """The process and everything it started."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def gone(family: list[psutil.Process], within_s: float = 10.0) -> bool:
    """True when all of them have ended."""
    _, alive = psutil.wait_procs(family, within_s)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive if process.is_running())
