"""The router's driver: clients on one side, workers on the other, the machine between. One event loop, no locks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from pagefence import __version__
from pagefence.engine.api.ports import CallEvent, Job
from pagefence.engine.metrics import counter, gauge, render
from pagefence.engine.recorder import Recorder
from pagefence.engine.settings import Settings
from pagefence.engine.supervisor import Supervisor
from pagefence.engine.wire import Beat, Hello, Post, StartFailed, address, decode
from pagefence.protocol.decisions import GUARDS, Decisions
from pagefence.protocol.effects import Begin, Dropped, Effect, Emit, End, Refuse, Restart, Send, SetTimer
from pagefence.protocol.messages import ClientGone, Envelope, LastOrders, Submit, Timer, WorkerGone, WorkerRef, WorkerUp
from pagefence.protocol.router import Input, Machine, RouterConfig, RouterState, why_not_ready

NONCE_BYTES = 16


class Call:
    """One request on its way: the events of its outcome, in order."""

    def __init__(self, router: Router, ticket: int) -> None:
        self._router, self.ticket = router, ticket
        self.queue: asyncio.Queue[CallEvent] = asyncio.Queue()

    async def events(self) -> AsyncIterator[CallEvent]:
        """Until the outcome, which is the last event."""
        while True:
            event = await self.queue.get()
            yield event
            if isinstance(event, End | Refuse):
                return

    def cancel(self) -> None:
        """Nobody listens any more. Says nothing twice and costs nothing after the outcome."""
        self._router.client_gone(self.ticket)


class Router:
    """Implements the API's `Gateway` port."""

    def __init__(self, settings: Settings, run_dir: Path, decisions: Decisions) -> None:
        self._settings, self._decisions = settings, decisions
        self.me = WorkerRef("router", secrets.randbits(48))
        config = RouterConfig(
            settings.context,
            settings.headroom,
            settings.limit,
            settings.max_in_flight,
            settings.deadline_s,
            settings.prefix_cache,
        )
        self._state = RouterState(self.me, config)
        step = Machine(decisions).step
        self._recorder = Recorder(Path(settings.record), self._state) if settings.record else None
        self._machine_step = self._recorder.around(step) if self._recorder else step
        self._context = zmq.asyncio.Context()
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self._inbox.bind(address(run_dir, self.me))
        self._post = Post(zmq.Context(self._context), run_dir, self.me)
        self._tickets = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._open: set[int] = set()
        self._idle = asyncio.Event()
        self._urls: dict[str, str] = {}
        self._outcomes: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._started = time.time()
        self.supervisor: Supervisor | None = None
        self._complete = asyncio.Event()

    # --- the API's side -------------------------------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """The name that requests must use."""
        return self._settings.model_name

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self._state.topology.longest

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that every living worker holds."""
        return self._decisions.longest_prompt(self._state.topology)

    def reasons(self) -> tuple[str, ...]:
        """Why the fleet is not ready; empty when it is (I8)."""
        return why_not_ready(self._decisions, self._state)

    @property
    def max_in_flight(self) -> int:
        """How many requests may be without an outcome at a time."""
        return self._settings.max_in_flight

    @property
    def open_calls(self) -> int:
        """How many calls the API has not let go of: some have their outcome, and a client that still reads it."""
        return len(self._open)

    async def drain(self) -> None:
        """Take nothing new. Returns when the API has let go of every call."""
        self._step(LastOrders())
        while self._open:
            self._idle.clear()
            await self._idle.wait()

    def submit(self, job: Job) -> Call:
        """Start a request."""
        call = Call(self, next(self._tickets))
        self._calls[call.ticket] = call
        self._open.add(call.ticket)
        sampling = job.sampling
        if sampling.seed is None:
            # One seed for both legs: prefill samples the first token, decode the others.
            sampling = msgspec.structs.replace(sampling, seed=secrets.randbits(63))
        self._step(
            Submit(
                ticket=call.ticket,
                nonce=secrets.token_hex(NONCE_BYTES),
                isolation_key=job.isolation_key,
                token_ids=job.token_ids,
                max_new_tokens=job.max_new_tokens,
                sampling=msgspec.msgpack.encode(sampling),
                param=job.param,
            )
        )
        return call

    def client_gone(self, ticket: int) -> None:
        """Abort both legs, unless the request has its outcome."""
        self._open.discard(ticket)
        if not self._open:
            self._idle.set()
        if self._calls.pop(ticket, None) is not None:
            self._count("cancelled")
            self._step(ClientGone(ticket))

    def server_info(self) -> dict[str, object]:
        """The fleet as the router sees it, from the living workers."""
        reasons = self.reasons()
        return {
            "engine": "pagefence",
            "version": __version__,
            "role": "router",
            "model_name": self.model_name,
            "context_length": self.context,
            "max_req_input_len": self.max_prompt_tokens,
            "headroom": self._settings.headroom,
            "ready": not reasons,
            "reasons": list(reasons),
            "guards": {guard: guard in self._decisions.guards for guard in GUARDS},
            "in_flight": len(self._state.requests),
            "max_in_flight": self.max_in_flight,
            "workers": [
                {"name": name, "role": up.role, "url": self._urls.get(name), "epoch": up.worker.epoch, "alive": True}
                for name, up in sorted(self._state.workers.items())
            ],
        }

    def metrics(self) -> bytes:
        """Prometheus text."""
        labels = {"model_name": self.model_name}
        return render(
            (
                gauge("pagefence_ready", "1 when the fleet may take traffic (I8).", labels, not self.reasons()),
                gauge("pagefence_requests_in_flight", "Rooms without outcome.", labels, len(self._state.requests)),
                gauge("pagefence_start_time_seconds", "When the router started.", labels, self._started),
                counter("pagefence_requests", "Requests by outcome (I5).", labels, self._outcomes, "outcome"),
                counter("pagefence_router_dropped_messages", "Stale messages.", labels, self._dropped, "message"),
            )
        )

    # --- the workers' side ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take parcels from workers until cancelled."""
        while True:
            data: bytes = await self._inbox.recv()
            with contextlib.suppress(msgspec.DecodeError):
                self._take(decode(data))

    async def complete(self) -> None:
        """Until every worker has said that it is ready to work."""
        await self._complete.wait()

    def worker_urls(self) -> dict[str, list[str]]:
        """HTTP faces of the living workers by role."""
        workers = sorted(self._state.workers.items())
        return {role: [self._urls[n] for n, up in workers if up.role == role] for role in ("prefill", "decode")}

    def worker_gone(self, worker: WorkerRef) -> None:
        """The supervisor reaped an incarnation."""
        self._step(WorkerGone(worker))
        self._post.forget(worker)
        self._urls.pop(worker.name, None)

    def close(self) -> None:
        """Give every waiting client an outcome and close the sockets.

        No worker is told: none is reaped yet, and a peer that believed so would free pages without proof (I2).
        """
        workers = [up.worker for up in self._state.workers.values()]
        if self._recorder:
            self._recorder.closing()
        for worker in workers:
            self._post.forget(worker)
        for worker in workers:
            self._step(WorkerGone(worker))
        self._post.flush_and_close(0)
        self._inbox.close(linger=0)

    def ended(self) -> None:
        """No client is left either."""
        if self._recorder:
            self._recorder.end()

    def _take(self, parcel: Envelope | Hello | Beat | StartFailed) -> None:
        assert self.supervisor is not None
        if isinstance(parcel, Envelope):
            self._step(parcel)
        elif isinstance(parcel, Hello):
            self._welcome(parcel, self.supervisor)
        elif isinstance(parcel, Beat):
            self.supervisor.heard(parcel.worker)
        else:
            self.supervisor.start_failed(parcel.worker, parcel.message)

    def _welcome(self, hello: Hello, supervisor: Supervisor) -> None:
        if not supervisor.is_alive(hello.worker):
            return  # it was reaped before its greeting was read
        supervisor.ready(hello.worker, hello.http_port)
        self._urls[hello.worker.name] = self._settings.url(hello.http_port)
        self._step(WorkerUp(hello.worker, hello.role, hello.capacity, hello.address))
        if len(self._state.workers) == supervisor.size:
            self._complete.set()

    def _step(self, message: Input) -> None:
        self._state, effects = self._machine_step(self._state, message)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._post.send(effect.to, effect.body)
        elif isinstance(effect, SetTimer):
            timer = Timer(effect.room, effect.kind)
            asyncio.get_running_loop().call_later(effect.seconds, self._step, timer)
        elif isinstance(effect, Begin | Emit):
            call = self._calls.get(effect.ticket)
            if call is not None:
                call.queue.put_nowait(effect)
        elif isinstance(effect, End | Refuse):
            self._count("refused" if isinstance(effect, Refuse) else effect.reason)
            call = self._calls.pop(effect.ticket, None)
            if call is not None:
                call.queue.put_nowait(effect)
        elif isinstance(effect, Restart):
            assert self.supervisor is not None
            self.supervisor.restart(effect.worker, effect.reason)
        elif isinstance(effect, Dropped):
            self._dropped[effect.what] = self._dropped.get(effect.what, 0) + 1
        else:
            raise TypeError(f"the router cannot perform {effect}")

    def _count(self, outcome: str) -> None:
        self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
