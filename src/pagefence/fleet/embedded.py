"""A fleet of our own for one run: started, announced, stopped, and gone whatever happens to us meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import msgspec

from pagefence.engine.run_dir import run_dir
from pagefence.fleet.target import Keys, Target
from pagefence.mistakes import CouldNotAsk
from pagefence.process import die_with_parent

STOP_S = 10.0


class CouldNotStart(CouldNotAsk):
    """The embedded fleet did not come up; the message says why in words for a user."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to start. With a fault the lab builds the world, pools included. `record`: a folder for recordings.

    `flags`: more of `pagefence serve`; settings of a fault's own world go before them.
    """

    model: str | None = None
    context: int = 2048
    pool_tokens: int = 2560
    fault: str | None = None
    guards: str | None = None
    start_timeout_s: float = 120.0
    ready_timeout_s: float = 60.0
    record: Path | None = None
    flags: tuple[str, ...] = ()

    def command(self, announce: Path) -> list[str]:
        if self.fault is None:
            command = [sys.executable, "-m", "pagefence", "serve"]
        else:
            command = [sys.executable, "-m", "pagefence.lab.fleet", "--fault", self.fault]
            command += ["--guards", self.guards] if self.guards else []
        command += ["--host", "127.0.0.1", "--port", "0", "--announce", str(announce)]
        if self.fault is None:
            command += ["--context", str(self.context), "--kv-pool-tokens", str(self.pool_tokens)]
        command += ["--record", str(self.record)] if self.record else []
        return command + (["--model", self.model] if self.model else []) + list(self.flags)

    def scaled(self, context: int) -> Recipe:
        """The same with another context; the pool keeps its headroom of 1.25."""
        return replace(self, context=context, pool_tokens=context * 5 // 4)


@dataclass(frozen=True, slots=True)
class Running:
    """A fleet that listens. `ready` is False when it came up but refuses to become ready (the gate says why)."""

    target: Target
    keys: Keys
    pid: int
    ready: bool
    started_s: float


class _Announced(msgspec.Struct, frozen=True):
    router: str
    prefill: list[str]
    decode: list[str]
    pid: int


@contextlib.contextmanager
def embedded(
    recipe: Recipe,
    progress: Callable[[str], None],
    command: Callable[[Path], list[str]] | None = None,
    keys: Keys | None = None,
) -> Iterator[Running]:
    """Start a fleet, yield where it is, and stop it: nothing of it survives this block, nor this process.

    Keys are fresh ones unless two are given. `command` gets the path to announce to; tests start something else.
    """
    if keys is None or not keys.two:
        keys = Keys(secrets.token_hex(16), secrets.token_hex(16))
    # The engine's own kind of folder: what a killed run leaves behind, the next one sweeps.
    with run_dir() as folder:
        announce, log = folder / "fleet.json", folder / "fleet.log"
        child: subprocess.Popen[bytes] | None = None
        try:
            with log.open("wb") as stderr:
                parent = os.getpid()
                child = subprocess.Popen(
                    (command or recipe.command)(announce),
                    stdin=subprocess.DEVNULL,
                    stdout=stderr,
                    stderr=stderr,
                    env={**os.environ, "PAGEFENCE_API_KEYS": f"tenant-a={keys.a},tenant-b={keys.b}"},
                    start_new_session=True,
                    preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509  (one system call, no lock, no import)
                )
            yield _wait(recipe, child, announce, log, keys, progress)
        finally:
            if child is not None:
                stop(child)


def _wait(
    recipe: Recipe,
    child: subprocess.Popen[bytes],
    announce: Path,
    log: Path,
    keys: Keys,
    progress: Callable[[str], None],
) -> Running:
    started = time.monotonic()
    while (said := _read_announcement(announce)) is None:
        waited = time.monotonic() - started
        if ended(child):
            raise CouldNotStart(f"the embedded fleet ended while it started{tail(log, keys)}")
        if waited > recipe.start_timeout_s:
            raise CouldNotStart(f"the embedded fleet did not listen within {waited:.0f} s{tail(log, keys)}")
        progress(f"starting the embedded fleet, loading the model ({waited:.0f} s)")
        time.sleep(0.1)
    listening = time.monotonic()
    ready = False
    with httpx.Client(timeout=5.0, trust_env=False) as client:
        while not ready and time.monotonic() - listening < recipe.ready_timeout_s:
            if ended(child):
                raise CouldNotStart(f"the embedded fleet ended before it was ready{tail(log, keys)}")
            progress(f"waiting until the fleet is ready ({time.monotonic() - listening:.0f} s)")
            ready, final = _asked(client, said.router)
            if final:
                break
            time.sleep(0.1)
    target = Target(said.router, tuple(said.prefill), tuple(said.decode))
    return Running(target, keys, child.pid, ready, time.monotonic() - started)


def _asked(client: httpx.Client, router: str) -> tuple[bool, bool]:
    """(ready, no use to wait any longer): a fleet whose pool is too small will not become ready by waiting."""
    try:
        reply = client.get(router.rstrip("/") + "/readyz")
        if reply.status_code == 200:
            return True, True
        reasons = msgspec.json.decode(reply.content)["reasons"]
        return False, any("I8" in str(r) or "pool" in str(r) for r in reasons)
    except (httpx.HTTPError, msgspec.DecodeError, KeyError, TypeError):
        return False, False


def _read_announcement(path: Path) -> _Announced | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Announced)
    except (OSError, msgspec.DecodeError):
        return None


def tail(log: Path, keys: Keys, lines: int = 12) -> str:
    """The last lines that the child wrote, for a message; empty when it wrote nothing."""
    try:
        said = log.read_text(errors="replace").strip().splitlines()[-lines:]
    except OSError:
        return ""
    return keys.redact(":\n  " + "\n  ".join(said)) if said else " without a word"


def ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether it ended, without reaping it: until we do, its pid and process group can be nobody else's."""
    if child.returncode is not None:
        return True
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def stop(child: subprocess.Popen[bytes], grace_s: float = STOP_S) -> None:
    """SIGTERM, a grace, then SIGKILL for the whole group (a Ctrl-C meanwhile goes straight to the kill, and on)."""
    try:
        until = time.monotonic() + grace_s
        if not ended(child):
            os.kill(child.pid, signal.SIGTERM)
        while not ended(child) and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
