"""A router, a prefill and a decode worker in one process: everything that serves but sockets and clocks.

Machines, forward passes, memory and transfer are the engine's own. What a clock or a kernel would decide, which message
arrives and who computes next, a random number decides, and with it how requests share batches and when clients leave.
"""

from __future__ import annotations

import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from pagefence.engine.decode import DecodeWork
from pagefence.engine.kv import backends
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.offer import new_token
from pagefence.engine.kv.segment import Segment
from pagefence.engine.loop import Work
from pagefence.engine.model.decoder import Decoder
from pagefence.engine.prefill import PrefillWork
from pagefence.engine.settings import Settings, WorkerOrders
from pagefence.pool.pages import PagePool
from pagefence.pool.slots import SlotPool
from pagefence.protocol import decode, prefill, router
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeConfig, DecodeState
from pagefence.protocol.effects import Begin, Dropped, Effect, Emit, End, Refuse, Send, SetTimer
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import (
    Capacity,
    ClientGone,
    Envelope,
    PeerUp,
    Role,
    Room,
    Submit,
    WorkerRef,
    WorkerUp,
)
from pagefence.protocol.router import RouterConfig, RouterState
from tests.alone import Ask

ROUTER = WorkerRef("router", 7)


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks what, and hangs up after so many `moves` of anybody or so many `tokens` unless it has its outcome."""

    ask: Ask
    tenant: int = 0
    moves: int | None = None
    tokens: int | None = None


@dataclass(slots=True)
class Got:
    """What reached a client."""

    client: Client
    ids: list[int] = field(default_factory=list)
    cached: int = 0
    outcome: End | Refuse | None = None
    age: int = 0
    left_in: router.Phase | None = None


class Worker:
    """One worker; stands in for `engine.loop.Loop` before the work that it drives."""

    def __init__(self, orders: WorkerOrders, step: Callable[[Any, Any], Any], state: Any, segment: Segment) -> None:
        self.orders, self.state, self.segment = orders, state, segment
        self._step = step
        self.local: deque[object] = deque()
        self.beside: deque[Callable[[], object]] = deque()
        self.work: Work

    def post_local(self, message: object) -> None:
        """As the loop's."""
        self.local.append(message)

    def run_beside(self, job: Callable[[], object]) -> None:
        """As the loop's; when it is done is a move of its own."""
        self.beside.append(job)

    def handle(self, message: object) -> list[Envelope]:
        """One message and, as in the loop, everything local that follows from it; what is to be sent."""
        self.local.append(message)
        return self.settle()

    def settle(self) -> list[Envelope]:
        """Everything local, in order; what is to be sent."""
        sent: list[Envelope] = []
        while self.local:
            message = self.local.popleft()
            self.state, effects = self._step(self.state, message)
            if isinstance(message, Envelope) and isinstance(message.body, PeerUp):
                self.work.peer_up(message.body)
            for effect in effects:
                if isinstance(effect, Send):
                    sent.append(Envelope(self.orders.me, effect.to, effect.body))
                elif not isinstance(effect, SetTimer | Dropped):
                    self.work.perform(effect)
        return sent


class Pair:
    """The three, their post and their clients. `seen` counts what a run went through."""

    def __init__(self, settings: Settings, prefill: Worker, decode: Worker, decisions: Decisions, address: str) -> None:
        self.prefill, self.decode = prefill, decode
        config = RouterConfig(settings.context, settings.headroom, prefix_cache=settings.prefix_cache)
        self._machine, self._router = router.Machine(decisions), RouterState(ROUTER, config)
        self._post: dict[tuple[WorkerRef, WorkerRef], deque[Envelope]] = {}
        self.clients: list[Got] = []
        self.seen: Counter[str] = Counter()
        for worker, where in ((prefill, ""), (decode, address)):
            pool = worker.state.pool
            capacity = Capacity(pool.capacity, pool.page_size, settings.max_requests)
            self._tell_router(WorkerUp(worker.orders.me, worker.orders.role, capacity, where))
        self.play([], Random(0))

    def play(self, clients: Sequence[Client], random: Random) -> list[Got]:
        """Until every client has its outcome or has left, and nothing is left to do."""
        coming = deque(clients)
        before = len(self.clients)
        while moves := self._moves(coming):
            random.choice(moves)()
            for ticket, got in enumerate(self.clients):
                self._grow_older(ticket, got)
        return self.clients[before:]

    def at_rest(self) -> bool:
        """No page and no row is held, and no room is open."""
        pools = [worker.state.pool.counts() for worker in (self.prefill, self.decode)]
        held = sum(pool.leased + pool.quarantined for pool in pools)
        return (
            not held
            and not self._router.requests
            and not self.prefill.state.requests
            and not self.decode.state.requests
        )

    def _moves(self, coming: deque[Client]) -> list[Callable[[], None]]:
        moves: list[Callable[[], None]] = []
        for way, letters in self._post.items():
            if letters:
                moves.append(lambda way=way: self._deliver(way))  # type: ignore[misc]
        for worker in (self.prefill, self.decode):
            if worker.beside:
                moves.append(lambda worker=worker: self._send(worker.handle(worker.beside.popleft()())))  # type: ignore[misc]
            if worker.work.has_work():
                moves.append(lambda worker=worker: self._work(worker))  # type: ignore[misc]
        if coming:
            moves.append(lambda: self._submit(coming.popleft()))
        return moves

    def _deliver(self, way: tuple[WorkerRef, WorkerRef]) -> None:
        letter = self._post[way].popleft()
        if letter.receiver == ROUTER:
            self._tell_router(letter)
        else:
            worker = self.prefill if letter.receiver == self.prefill.orders.me else self.decode
            self._send(worker.handle(letter))

    def _work(self, worker: Worker) -> None:
        running = worker.work.info().get("running", 0)
        self.seen["rows in a step"] = max(self.seen["rows in a step"], int(running))  # type: ignore[call-overload]
        worker.work.do_one()
        if worker is self.prefill:
            self.seen["passes of prefill"] += 1
            self.seen["prompts in a pass"] = max(self.seen["prompts in a pass"], len(worker.local))
        self._send(worker.settle())

    def _submit(self, client: Client) -> None:
        ticket, ask = len(self.clients), client.ask
        self.clients.append(Got(client))
        sampling = msgspec.msgpack.encode(ask.sampling)
        self._tell_router(Submit(ticket, f"n{ticket}", f"tenant-{client.tenant}", ask.prompt, ask.new_tokens, sampling))

    def _grow_older(self, ticket: int, got: Got) -> None:
        if got.outcome is not None or got.left_in is not None:
            return
        client = got.client
        if got.age == client.moves or (client.tokens is not None and len(got.ids) >= client.tokens):
            got.left_in = self._router.phase(self._router.rooms[ticket])
            self.seen[f"left when {got.left_in}"] += 1
            self._tell_router(ClientGone(ticket))
        got.age += 1

    def _tell_router(self, message: router.Input) -> None:
        self._router, effects = self._machine.step(self._router, message)
        for effect in effects:
            if isinstance(effect, Send):
                self._send([Envelope(ROUTER, effect.to, effect.body)])
            else:
                self._tell_client(effect)

    def _tell_client(self, effect: Effect) -> None:
        if isinstance(effect, Begin):
            self.clients[effect.ticket].cached = effect.cached_tokens
            self.seen["cached tokens"] += effect.cached_tokens
        elif isinstance(effect, Emit):
            self.clients[effect.ticket].ids += effect.token_ids
        elif isinstance(effect, End | Refuse):
            self.clients[effect.ticket].outcome = effect

    def _send(self, letters: list[Envelope]) -> None:
        for letter in letters:
            self._post.setdefault((letter.sender, letter.receiver), deque()).append(letter)


@contextmanager
def paired(model: Decoder, settings: Settings, decisions: Decisions | None = None) -> Iterator[Pair]:
    """A pair under these settings; pools are as large as `..._pool_tokens`."""
    decisions = decisions or Decisions()
    config, secret, token = model.config, bytes(32), new_token()
    layout = Layout(1, settings.page_size, config.layers, config.kv_heads, config.head_dim, "float32")
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as folder:

        def orders(role: Role) -> WorkerOrders:
            return WorkerOrders(
                me=WorkerRef(f"{role}-0", 1),
                role=role,
                router=ROUTER,
                settings=settings,
                run_dir=folder,
                mac_key=secret,
                segment_token=token,
                http_port=0,
                seat=0,
                memory_bytes=0,
            )

        def pages(role: Role) -> int:
            return (settings.pool_tokens(role) or 0) // settings.page_size

        mine, theirs = orders("prefill"), orders("decode")
        with Segment.create(layout.with_pages(pages("prefill"))) as source, \
             Segment.create(layout.with_pages(pages("decode"))) as target, \
             backends.offered(theirs, target) as offer:  # fmt: skip
            prefill_state = prefill.PrefillState(
                Membership(mine.me, ROUTER),
                prefill.PrefillConfig(config.layers, secret, prefix_cache=settings.prefix_cache),
                PagePool.of(source.layout.pages, settings.page_size),
            )
            decode_state = DecodeState(
                Membership(theirs.me, ROUTER),
                DecodeConfig(config.layers, secret),
                PagePool.of(target.layout.pages, settings.page_size),
                SlotPool[Room].of(settings.max_requests),
            )
            one = Worker(mine, prefill.Machine(decisions).step, prefill_state, source)
            other = Worker(theirs, decode.Machine(decisions).step, decode_state, target)
            one.work = PrefillWork(one, model, source, decisions)  # type: ignore[arg-type]
            other.work = DecodeWork(other, model, target, decisions, offer.revoke)  # type: ignore[arg-type]
            yield Pair(settings, one, other, decisions, offer.address)
