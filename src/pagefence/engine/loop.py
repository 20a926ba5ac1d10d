"""The loop that both kinds of worker run: receive, step the machine, carry out effects, do one unit of work.

One thread owns the machine's state, so no lock guards a decision. Whatever blocks is cut into units (one forward
pass of prefill, one decode step) short enough for an abort to be heard between them.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import zmq

from pagefence.engine.cores import Cores
from pagefence.engine.recorder import Recorder
from pagefence.engine.settings import WorkerOrders
from pagefence.engine.wire import Beat, Hello, Inbox, Post
from pagefence.protocol.effects import Dropped, Effect, Effects, Send, SetTimer
from pagefence.protocol.messages import Capacity, Envelope, PeerUp, Reaped, Timer
from pagefence.protocol.recording import State

S = TypeVar("S", bound=State)
BEAT_EVERY_S = 1.0
IDLE_S = 0.1


class Work(Protocol):
    """The part of a worker that touches tensors."""

    def perform(self, effect: Effect) -> None:
        """Carry out one effect; answers go to the worker's `post_local`."""

    def has_work(self) -> bool:
        """True when `do_one` has something to do now."""

    def do_one(self) -> None:
        """One forward pass of prefill or one decode step."""

    def peer_up(self, peer: PeerUp) -> None:
        """An incarnation of the other role is alive at this address."""

    def peer_gone(self, peer: Reaped) -> None:
        """An incarnation was reaped. Before the machine hears of it: the machine frees what it could still reach."""

    def info(self) -> dict[str, object]:
        """What only this kind of worker can tell about itself."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    message: object


class Loop(Generic[S]):
    """Drives one machine."""

    def __init__(
        self, orders: WorkerOrders, step: Callable[[S, Any], tuple[S, Effects]], state: S, cores: Cores
    ) -> None:
        self.orders, self.state, self._cores = orders, state, cores
        folder = orders.settings.record
        self._recorder = Recorder(Path(folder), state) if folder else None
        self._step = self._recorder.around(step) if self._recorder else step
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        run_dir = Path(orders.run_dir)
        self._inbox = Inbox(context, run_dir, orders.me)
        self.post = Post(context, run_dir, orders.me)
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._local: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._helper = ThreadPoolExecutor(1, "pagefence-helper")
        self._awaited = 0
        self._stopping = False
        self._next_beat = 0.0
        self.dropped: dict[str, int] = {}

    def post_local(self, message: object) -> None:
        """Deliver a message from this process to its own machine. Safe from any thread."""
        self._local.put(message)

    def run_beside(self, job: Callable[[], object]) -> None:
        """Run `job` on the helper thread and deliver the message that it returns. Where it raises, the loop does."""

        def work() -> None:
            try:
                self._local.put(_Awaited(job()))
            except Exception as error:
                self._local.put(_Awaited(error))

        self._awaited += 1
        self._helper.submit(work)

    def announce(self, capacity: Capacity, http_port: int, address: str) -> None:
        """Tell the supervisor that this incarnation is ready."""
        hello = Hello(self.orders.me, self.orders.role, capacity, http_port, address)
        self.post.send_parcel(self.orders.router, hello)

    def run(self, work: Work) -> None:
        """Until SIGTERM. However it ends, the sockets are closed: one left open would keep the process from ending."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_stopping", True))
        try:
            self._run(work)
            if self._recorder:
                self._recorder.end()
        finally:
            self._helper.shutdown(wait=False, cancel_futures=True)
            self.post.flush_and_close()
            self._inbox.close()

    def _run(self, work: Work) -> None:
        while not self._stopping:
            self._beat()
            for parcel in self._inbox.receive(self._patience(work)):
                if isinstance(parcel, Envelope):
                    self._handle(work, parcel)
            self._handle_local(work)
            while self._timers and self._timers[0][0] <= time.monotonic():
                self._handle(work, heapq.heappop(self._timers)[2])
            if not work.has_work():
                self._cores.rest()
                continue
            self._cores.work()
            work.do_one()
            self._handle_local(work)

    def _patience(self, work: Work) -> float:
        """How long to wait for messages. A helper thread cannot wake the poll, so wait briefly while one is at work."""
        if work.has_work() or not self._local.empty():
            return 0.0
        if self._awaited:
            return 0.001
        if self._timers:
            return max(0.0, min(IDLE_S, self._timers[0][0] - time.monotonic()))
        return IDLE_S

    def _handle_local(self, work: Work) -> None:
        while not self._local.empty():
            message = self._local.get()
            if isinstance(message, _Awaited):
                self._awaited -= 1
                message = message.message
            if isinstance(message, Exception):
                raise message  # a room would wait for this answer until its timer: better reaped than silent
            self._handle(work, message)

    def _handle(self, work: Work, message: object) -> None:
        if isinstance(message, Envelope) and isinstance(message.body, Reaped):
            work.peer_gone(message.body)
        self.state, effects = self._step(self.state, message)
        if isinstance(message, Envelope) and isinstance(message.body, PeerUp):
            work.peer_up(message.body)
        for effect in effects:
            if isinstance(effect, Send):
                self.post.send(effect.to, effect.body)
            elif isinstance(effect, SetTimer):
                at = time.monotonic() + effect.seconds
                heapq.heappush(self._timers, (at, next(self._order), Timer(effect.room, effect.kind)))
            elif isinstance(effect, Dropped):
                self.dropped[effect.what] = self.dropped.get(effect.what, 0) + 1
            else:
                work.perform(effect)
        if isinstance(message, Envelope) and isinstance(message.body, Reaped):
            self.post.forget(message.body.worker)

    def _beat(self) -> None:
        now = time.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + BEAT_EVERY_S
        self.post.send_parcel(self.orders.router, Beat(self.orders.me))
