"""The processes: one, or several that share a port and their counters; an orderly end, a reload."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pagefence import __version__
from pagefence.edge.metrics import Family, Meters, families
from pagefence.edge.settings import Settings
from pagefence.edge.steps import Steps, Tells
from pagefence.edge.worker import Worker
from pagefence.files import READABLE, write_atomically
from pagefence.mistakes import EXIT_INTERRUPTED, Mistake, Usage
from pagefence.process import die_with_parent

_AGAIN_S = 1.0  # between two starts of a worker that dies


@dataclass(frozen=True, slots=True)
class Build:
    """What is needed to begin and to reload.

    load      reads the settings anew; raises Usage
    steps     makes the steps of one process from settings, and is told where they tell what they see
    families  what the steps count, besides the proxy's own
    announce  a file that gets the address as JSON once the port listens
    """

    load: Callable[[], Settings]
    steps: Callable[[Settings, Tells], Steps]
    families: tuple[Family, ...] = ()
    announce: Path | None = None


def serve(settings: Settings, build: Build) -> int:
    """Serve until SIGTERM (0) or SIGINT (130); the exit code. Raises Usage for a port or a step that cannot be."""
    meters = Meters((*families(len(settings.upstreams), settings.models), *build.families), settings.workers)
    shared = settings.workers > 1
    sockets = [listening(settings.host, settings.port, shared)]
    port = sockets[0].getsockname()[1]
    sockets += [listening(settings.host, port, shared) for _ in range(1, settings.workers)]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    if build.announce is not None:
        found = msgspec.json.encode({"url": f"http://{host}:{port}", "pid": os.getpid()})
        write_atomically(build.announce, found, READABLE)
    say("edge_begins", version=__version__, url=f"http://{host}:{port}", workers=settings.workers)
    if not shared:
        return Worker(settings, build, meters, 0).run(sockets[0])
    wrong = _tried(settings, build)
    if wrong is not None:
        raise Usage(wrong)
    return _Parent(settings, build, meters, sockets).run()


def listening(host: str, port: int, shared: bool) -> socket.socket:
    """Bound and listening. `shared`: each worker has a socket of its own on the port, and the kernel spreads clients.

    Raises Usage.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named in full, so that the event loop sets TCP_NODELAY: without it tokens wait for an ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
        sock.listen(4096)
        sock.setblocking(False)
    except (OSError, OverflowError) as error:
        sock.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise Usage(f"cannot listen on {host}:{port}: {reason}; choose another one with --port") from None
    return sock


def _tried(settings: Settings, build: Build) -> str | None:
    """What is wrong with settings, before any worker has them: one that dies of them would die again and again.

    In a process of its own, because what steps hold (threads, keys with their counters) is not to be inherited.
    """
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "the edge failed while it read its settings"
        try:
            build.steps(settings, Tells()).stop()
            said = ""
        except Mistake as error:
            said = str(error)
        finally:
            os.write(told, said.encode()[:60_000])
            os._exit(0)
    os.close(told)
    with os.fdopen(heard, "rb") as pipe:
        wrong = pipe.read().decode(errors="replace")
    os.waitpid(pid, 0)
    return wrong or None


class _Parent:
    """Forks the workers, hands signals on, starts a worker that died again. It answers nothing itself."""

    def __init__(self, settings: Settings, build: Build, meters: Meters, sockets: list[socket.socket]) -> None:
        self._settings, self._build, self._meters, self._sockets = settings, build, meters, sockets
        self._workers: dict[int, int] = {}
        self._began: dict[int, float] = {}
        self._ending: signal.Signals | None = None
        self._ends = 0

    def run(self) -> int:
        # Blocked and waited for, so that no signal is lost between two of them and none interrupts a fork.
        heard = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, heard)
        for number in range(self._settings.workers):
            self._fork(number)
        while self._workers:
            self._heard(signal.Signals(signal.sigwait(heard)))
            self._reap()
        return EXIT_INTERRUPTED if self._ending is signal.SIGINT else 0

    def _heard(self, number: signal.Signals) -> None:
        if number is signal.SIGHUP and self._ending is None:
            try:
                new = self._build.load()
                wrong = _tried(new, self._build)
            except Mistake as error:
                wrong = str(error)
            if wrong is not None:
                say("reload_refused", why=wrong)
                return
            self._settings = new
            self._send(signal.SIGHUP)
        elif number in (signal.SIGTERM, signal.SIGINT):
            self._ending = self._ending or number
            self._ends += 1
            for sock in self._sockets:
                sock.close()  # the workers have theirs; here clients would be queued whom nobody serves
            self._send(signal.SIGTERM)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self._workers.pop(pid, None)
            if number is not None and self._ending is None:
                say("worker_died", worker=number, code=os.waitstatus_to_exitcode(status))
                time.sleep(max(0.0, self._began[number] + _AGAIN_S - time.monotonic()))
                self._fork(number)

    def _send(self, number: signal.Signals) -> None:
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _fork(self, number: int) -> None:
        self._began[number] = time.monotonic()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._workers[pid] = number
            return
        code = 70
        try:
            die_with_parent(parent)
            for other, sock in enumerate(self._sockets):
                if other != number:
                    sock.close()  # the parent keeps it; a copy here would be a queue that nobody serves
            code = Worker(self._settings, self._build, self._meters, number).run(self._sockets[number])
        except BaseException as error:
            say("worker_failed", worker=number, kind=type(error).__name__, why=str(error)[:300])
        finally:
            sys.stderr.flush()
            os._exit(code)


def say(event: str, **fields: object) -> None:
    line = msgspec.json.encode({"event": event, **fields}).decode()
    print(line, file=sys.stderr, flush=True)
