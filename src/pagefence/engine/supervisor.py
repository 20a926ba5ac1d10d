"""Starts worker processes, reaps the dead and starts the next incarnation.

Only a reaped process is proven unable to reach memory (I2), so `gone` is called after `wait` returned and never before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from pagefence.engine.cores import OPENMP
from pagefence.engine.kv.capacity import memory_share
from pagefence.engine.settings import WORKER_ROLES, Settings, WorkerOrders
from pagefence.mistakes import Mistake
from pagefence.protocol.messages import Role, WorkerRef

WORKER_COMMAND = ("pagefence.engine.worker",)
STOP_S = 5.0
BACKOFF_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
HEALTHY_AFTER_S = 30.0


@dataclass(slots=True)
class _Post:
    """One place for a worker, and who fills it now."""

    name: str
    role: Role
    seat: int
    http_port: int
    epoch: int = 0
    process: asyncio.subprocess.Process | None = None
    ready: bool = False
    last_beat: float = field(default_factory=time.monotonic)
    early_deaths: int = 0


class StartUpError(Mistake):
    """The fleet could not start; the message is for the operator."""


class Supervisor:
    """Keeps every prefill and decode process alive."""

    def __init__(
        self,
        settings: Settings,
        router: WorkerRef,
        run_dir: str,
        gone: Callable[[WorkerRef], None],
        worker_command: tuple[str, ...] = WORKER_COMMAND,
    ) -> None:
        self._settings, self._router, self._run_dir = settings, router, run_dir
        self._gone, self._command = gone, worker_command
        self._mac_key, self._token = secrets.token_bytes(32), secrets.token_bytes(32)
        self._memory_bytes = memory_share(settings.workers)
        self._posts: dict[str, _Post] = {}
        for role in WORKER_ROLES:
            for number, port in enumerate(settings.ports(role)):
                name = f"{role}-{number}"
                self._posts[name] = _Post(name, role, len(self._posts), port)
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._births: dict[str, asyncio.Future[asyncio.subprocess.Process]] = {}
        self.failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Start every worker and keep it alive until `stop`."""
        self._tasks = [asyncio.create_task(self._keep_alive(post)) for post in self._posts.values()]
        self._tasks.append(asyncio.create_task(self._watch_beats()))
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A keeper that died would leave its worker dead for good: end the fleet aloud instead."""
        if not task.cancelled() and task.exception() is not None and not self.failure.done():
            self.failure.set_result(f"internal error in the supervisor: {task.exception()!r}")

    @property
    def size(self) -> int:
        """How many workers there should be."""
        return len(self._posts)

    def is_alive(self, worker: WorkerRef) -> bool:
        """True until the process of this incarnation was reaped."""
        post = self._posts.get(worker.name)
        return bool(post and post.epoch == worker.epoch and post.process and post.process.returncode is None)

    def ready(self, worker: WorkerRef, http_port: int) -> None:
        """A worker is ready. The next incarnation takes its port, so that its URL stays good."""
        post = self._posts[worker.name]
        post.ready, post.http_port = True, http_port
        self.heard(worker)

    def heard(self, worker: WorkerRef) -> None:
        """A worker's loop turns."""
        post = self._posts.get(worker.name)
        if post is not None and post.epoch == worker.epoch:
            post.last_beat = time.monotonic()

    def start_failed(self, worker: WorkerRef, message: str) -> None:
        """A worker says why it ends: fatal while the fleet starts, retried afterwards."""
        post = self._posts.get(worker.name)
        first = post is not None and post.epoch == worker.epoch == 1 and not post.ready
        if first and not self.failure.done():
            self.failure.set_result(message)
        else:
            print(f"pagefence: {worker} cannot go on: {message}", file=sys.stderr)

    def restart(self, worker: WorkerRef, reason: str) -> None:
        """Kill an incarnation; reaping and the next one follow."""
        process = self._posts[worker.name].process
        if process is not None and self.is_alive(worker):
            print(f"pagefence: restarting {worker}: {reason}", file=sys.stderr)
            _signal(process, signal.SIGKILL)

    async def stop(self) -> None:
        """End all workers: SIGTERM, then SIGKILL. Returns when every process is reaped."""
        self._stopping = True
        processes = [post.process for post in self._posts.values() if post.process is not None]
        for process in processes:
            _signal(process, signal.SIGTERM)
        waits = [asyncio.create_task(process.wait()) for process in processes]
        if waits:
            await asyncio.wait(waits, timeout=STOP_S)
        for process in processes:
            _signal(process, signal.SIGKILL)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*waits, *self._tasks, return_exceptions=True)
        # One that was being started when we were told to stop is in no list above.
        for birth in self._births.values():
            with contextlib.suppress(OSError):
                process = await birth
                _signal(process, signal.SIGKILL)
                await process.wait()

    async def _keep_alive(self, post: _Post) -> None:
        while not self._stopping:
            started = time.monotonic()
            try:
                worker = await self._spawn(post)
            except OSError as error:
                if post.epoch == 1:
                    if not self.failure.done():
                        self.failure.set_result(f"{post.name} could not be started: {error}")
                    return
                print(f"pagefence: {post.name} could not be started: {error}; trying again", file=sys.stderr)
                await asyncio.sleep(BACKOFF_S[-1])
                continue
            assert post.process is not None
            code = await post.process.wait()
            if self._is_stopping():
                return
            self._gone(worker)
            if not post.ready and worker.epoch == 1:
                # Its own words, if it had any, come by message; give them a moment.
                await asyncio.sleep(0.5)
                if not self.failure.done():
                    self.failure.set_result(f"{post.name} ended at start with {_told(code)}")
                return
            healthy = time.monotonic() - started > HEALTHY_AFTER_S
            post.early_deaths = 0 if healthy else post.early_deaths + 1
            pause = BACKOFF_S[min(post.early_deaths, len(BACKOFF_S)) - 1] if post.early_deaths else 0.0
            print(f"pagefence: {worker} ended with {_told(code)}; restarting in {pause:g} s", file=sys.stderr)
            await asyncio.sleep(pause)

    def _is_stopping(self) -> bool:
        return self._stopping

    async def _spawn(self, post: _Post) -> WorkerRef:
        post.epoch += 1
        post.ready, post.last_beat = False, time.monotonic()
        worker = WorkerRef(post.name, post.epoch)
        orders = WorkerOrders(
            me=worker,
            role=post.role,
            router=self._router,
            settings=self._settings,
            run_dir=self._run_dir,
            mac_key=self._mac_key,
            segment_token=self._token,
            http_port=post.http_port,
            seat=post.seat,
            memory_bytes=self._memory_bytes,
        )
        # A session of its own: a Ctrl-C in the terminal is for the supervisor alone.
        birth = asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pagefence.process",
            str(os.getpid()),
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            env={**OPENMP, **os.environ},
            start_new_session=True,
        )
        # Shielded: cancelled between fork and the opening of its pipes, asyncio would wait for them for ever.
        self._births[post.name] = asyncio.ensure_future(birth)
        post.process = await asyncio.shield(self._births[post.name])
        assert post.process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            post.process.stdin.write(msgspec.msgpack.encode(orders))
            await post.process.stdin.drain()
            post.process.stdin.close()
        return worker

    async def _watch_beats(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for post in self._posts.values():
                silent = time.monotonic() - post.last_beat
                if post.ready and silent > self._settings.heartbeat_s:
                    post.last_beat = time.monotonic()
                    self.restart(WorkerRef(post.name, post.epoch), f"silent for {silent:.0f} s")


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _told(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    known = {number.value: number.name for number in signal.Signals}  # real-time signals have no name here
    return f"signal {known.get(-code, -code)}"
