"""One fleet: the router and its API in this process, the workers as children. Starts it, announces it, stops it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from pagefence.engine import recorder
from pagefence.engine.api.app import create_app
from pagefence.engine.api.serving import listening_socket, server_config
from pagefence.engine.api.tenants import Tenants
from pagefence.engine.model.tokenizer import IncrementalDecoder, Tokenizer
from pagefence.engine.router import Router
from pagefence.engine.run_dir import run_dir
from pagefence.engine.settings import Settings
from pagefence.engine.supervisor import WORKER_COMMAND, StartUpError, Supervisor
from pagefence.files import READABLE, write_atomically
from pagefence.protocol.decisions import Decisions
from pagefence.stopping import Stop


def serve(
    settings: Settings,
    tenants: Tenants,
    announce: Path | None = None,
    decisions: Decisions | None = None,
    worker_command: tuple[str, ...] | None = None,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> int:
    """Run a fleet until SIGINT or SIGTERM, let requests in flight finish, and stop; the exit code.

    `announce`: a file that gets the URLs as JSON once every port listens. Raises StartUpError, ModelError, OSError,
    ValueError, CannotWrite for what the operator can mend. The lab passes other decisions and another worker command;
    the product passes neither.
    """
    if settings.record:
        recorder.prepare(Path(settings.record))
    with run_dir() as folder:
        fleet = _Fleet(settings, tenants, folder, decisions or Decisions(), worker_command or WORKER_COMMAND, say)
        return asyncio.run(fleet.run(announce))


class _Server(uvicorn.Server):
    """Signals are ours: uvicorn would end the workers' clients before the workers know."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Fleet:
    def __init__(
        self,
        settings: Settings,
        tenants: Tenants,
        folder: Path,
        decisions: Decisions,
        worker_command: tuple[str, ...],
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._tenants, self._folder = settings, tenants, folder
        self._decisions, self._command, self._say = decisions, worker_command, say

    async def run(self, announce: Path | None) -> int:
        settings = self._settings
        # The port first: whoever has it already should be told before a model is loaded.
        sock = listening_socket(settings.host, settings.port)
        stop = Stop()
        router = Router(settings, self._folder, self._decisions)
        supervisor = Supervisor(settings, router.me, str(self._folder), router.worker_gone, self._command)
        router.supervisor = supervisor
        url = settings.url(sock.getsockname()[1])
        workers = f"{settings.prefill_workers} prefill + {settings.decode_workers} decode workers"
        self._say(f"pagefence: starting {workers} for {settings.model_name}")
        supervisor.start()
        parcels = asyncio.create_task(router.run())
        try:
            tokenizer = await asyncio.to_thread(Tokenizer.load, Path(settings.model))
            app = create_app(router, tokenizer, self._tenants, lambda: IncrementalDecoder(tokenizer))
            server = _Server(server_config(app))
            serving = asyncio.create_task(server.serve(sockets=[sock]))
            try:
                return await self._until(stop, router, supervisor, (serving, parcels), url, announce)
            finally:
                router.close()
                server.should_exit = True
                await asyncio.gather(serving, return_exceptions=True)
                router.ended()
        finally:
            sock.close()
            parcels.cancel()
            await supervisor.stop()

    async def _until(
        self,
        stop: Stop,
        router: Router,
        supervisor: Supervisor,
        tasks: tuple[asyncio.Task[None], ...],
        url: str,
        announce: Path | None,
    ) -> int:
        complete = asyncio.create_task(router.complete())
        ends: tuple[asyncio.Future[Any], ...] = (stop.first, supervisor.failure, *tasks)
        await asyncio.wait((*ends, complete), return_when=asyncio.FIRST_COMPLETED)
        if complete.done():
            self._tell(router, url, announce)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        complete.cancel()
        if supervisor.failure.done():
            raise StartUpError(supervisor.failure.result())
        if stop.first.done():
            await self._drain(router, (stop.second, supervisor.failure, *tasks))
            self._say("pagefence: stopping")
            return 130 if stop.first.result() is signal.SIGINT else 0
        for task in tasks:
            if task.done():
                task.result()  # what went wrong in it, rather than a router that hears nobody
        raise StartUpError("the HTTP server ended")

    async def _drain(self, router: Router, at_once: tuple[asyncio.Future[Any], ...]) -> None:
        """Let requests in flight finish, for so long as the operator grants, or until one of `at_once` happens."""
        drained = asyncio.create_task(router.drain())
        await asyncio.sleep(0)  # from here on nothing new is taken
        if router.open_calls:
            grace = f"up to {self._settings.shutdown_s:g} s; a second signal stops at once"
            self._say(f"pagefence: draining: {router.open_calls} requests in flight, {grace}")
        ends = (drained, *at_once)
        await asyncio.wait(ends, timeout=self._settings.shutdown_s, return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()

    def _tell(self, router: Router, url: str, announce: Path | None) -> None:
        urls = router.worker_urls()
        for role, workers in urls.items():
            self._say(f"pagefence: {role} worker: {', '.join(workers)}")
        reasons = router.reasons()
        for reason in reasons:
            self._say(f"pagefence: NOT READY (I8): {reason}")
        if not reasons:
            self._say(f"pagefence: ready: {url}/v1 (longest prompt {router.max_prompt_tokens} tokens)")
        if announce is not None:
            # Whole or not at all: somebody polls for this file.
            write_atomically(announce, msgspec.json.encode({"router": url, **urls, "pid": os.getpid()}), READABLE)
