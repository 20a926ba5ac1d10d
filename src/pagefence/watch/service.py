"""The process: a port, a file, the loop that looks at the clock, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from pagefence import __version__
from pagefence.engine.api.serving import listening_socket, server_config
from pagefence.files import READABLE, write_atomically
from pagefence.mistakes import EXIT_INTERRUPTED, Usage
from pagefence.stopping import Stop
from pagefence.watch.app import create_app
from pagefence.watch.config import Settings
from pagefence.watch.lines import Say, lines
from pagefence.watch.one_run import run_once
from pagefence.watch.state import State
from pagefence.watch.watcher import Watcher

_GRACE_S = 10.0


def watch(settings: Settings, as_json: bool = False, forget: tuple[str, ...] = (), announce: Path | None = None) -> int:
    """Watch until SIGTERM (0) or SIGINT (130); the exit code. Raises Usage for what the operator can mend.

    forget    targets whose evidence begins anew
    announce  a file that gets the address as JSON once the port listens
    """
    say = lines((watched.keys for watched in settings.targets), time.time, as_json)
    try:
        sock = listening_socket(settings.host, settings.port)
    except OSError as error:
        raise Usage(f"{error.strerror or error}; choose another one with --port") from None
    with contextlib.closing(sock):
        state = State(settings.state, time.time(), settings.seed)
        with contextlib.closing(state):
            for target in forget:
                state.forget_evidence(target)
                say("forgets", target=target, what="its evidence begins anew")
            run = functools.partial(run_once, fresh=settings.seed is None, keep_answers=settings.keep_answers)
            watcher_of = functools.partial(Watcher, settings, state, run, time.time, say)
            return asyncio.run(_serve(watcher_of, sock, say, announce))


async def _serve(watcher_of: Callable[[], Watcher], sock: socket.socket, say: Say, announce: Path | None) -> int:
    stop = Stop()
    kept = "settings are read at the start only; started anew, it goes on where it was"
    hears = functools.partial(say, "hears", signal="SIGHUP", what=kept)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hears)
    watcher = watcher_of()
    server = _Server(server_config(create_app(watcher)))
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    looking = asyncio.create_task(_look(watcher))
    host, port = sock.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    names = ", ".join(watcher.standings)
    say("watches", version=__version__, url=url, targets=names, state=watcher.settings.state)
    if announce is not None:
        # Whole or not at all: somebody polls for this file.
        write_atomically(announce, msgspec.json.encode({"url": url, "pid": os.getpid()}), READABLE)
    ends: tuple[asyncio.Future[Any], ...] = (stop.first, looking, serving)
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in (looking, serving):
            if task.done():
                task.result()  # what went wrong in it, rather than a watch that looks at nothing
        ending = asyncio.create_task(watcher.stop(_GRACE_S))
        over: tuple[asyncio.Future[Any], ...] = (ending, stop.second)
        await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await watcher.stop(0.0)
        await ending
    finally:
        looking.cancel()
        server.should_exit = True
        await asyncio.gather(serving, looking, return_exceptions=True)
    say("stops")
    return EXIT_INTERRUPTED if stop.first.done() and stop.first.result() is signal.SIGINT else 0


async def _look(watcher: Watcher) -> None:
    """Look at the clock when something is due, when something has ended, and every few seconds to show life."""
    while True:
        watcher.changed.clear()
        watcher.tick()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(watcher.changed.wait(), watcher.nap_s())


class _Server(uvicorn.Server):
    """Signals are ours: runs end first, and while they do, their verdicts can still be read."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
