"""One worker process: reads its orders, loads the model, takes its memory, opens its faces, runs its loop.

Started by the supervisor through `pagefence.process`, so that it ends with it; orders come on standard input.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
import zmq

from pagefence import __version__
from pagefence.engine.cores import Cores
from pagefence.engine.decode import DecodeWork
from pagefence.engine.kv import backends
from pagefence.engine.kv.capacity import NotEnoughMemory, own_bytes, size_pool
from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import BackendMissing
from pagefence.engine.loop import Loop, Work
from pagefence.engine.metrics import worker_metrics
from pagefence.engine.model.config import Dtype, ModelConfig
from pagefence.engine.model.decoder import Decoder
from pagefence.engine.model.dtype import choose_dtype
from pagefence.engine.model.matrix import Forms
from pagefence.engine.prefill import PrefillWork
from pagefence.engine.settings import WorkerOrders
from pagefence.engine.speed import speed
from pagefence.engine.wire import Post, StartFailed
from pagefence.engine.worker_http import serve_worker_http
from pagefence.models import ModelError
from pagefence.pool.pages import PagePool
from pagefence.pool.slots import SlotPool
from pagefence.protocol import decode, prefill
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.decode_state import DecodeConfig, DecodeState
from pagefence.protocol.membership import Membership
from pagefence.protocol.messages import Capacity, Room


def main(decisions: Decisions | None = None) -> int:
    """Run one worker until SIGTERM. The lab passes other decisions; the product passes none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides when to stop
    said = sys.stdin.buffer.read()
    if not said:
        return 1  # the supervisor died before it could say anything
    orders = msgspec.msgpack.decode(said, type=WorkerOrders)
    try:
        run(orders, decisions or Decisions())
    except (ModelError, NotEnoughMemory, BackendMissing, OSError) as error:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        post = Post(context, Path(orders.run_dir), orders.me)
        post.send_parcel(orders.router, StartFailed(orders.me, f"{orders.me.name}: {error}"))
        post.flush_and_close()
        context.term()
        return 1
    return 0


def _forms(orders: WorkerOrders) -> Forms:
    """Prefill multiplies many tokens at a time, decode a few or many."""
    if orders.role == "prefill":
        return "dense"
    return "panels" if orders.settings.mode == "quantised" else "both"


def run(orders: WorkerOrders, decisions: Decisions) -> None:
    """Set up and loop. Raises ModelError, NotEnoughMemory, BackendMissing, OSError for what the operator can mend."""
    settings = orders.settings
    backends.require(settings)
    cores = Cores(Path(orders.run_dir), orders.seat, settings.workers, settings.threads, torch.set_num_threads)
    cores.work()
    dtype = choose_dtype(settings.dtype)
    model = Decoder.load(Path(settings.model), dtype, forms=_forms(orders))
    if settings.longest > model.config.context:
        message = f"{settings.model_name} holds {model.config.context} tokens, --context asks for {settings.longest}"
        raise ModelError(f"{message}: lower --context, or declare --limit {model.config.context}.")
    segment = Segment.create(pool_layout(model.config, dtype, orders))
    pool = PagePool.of(segment.layout.pages, segment.layout.page_size)
    members = Membership(orders.me, orders.router)
    capacity = Capacity(pool.capacity, settings.page_size, settings.max_requests)
    layers = model.config.layers
    face = _Face(orders, capacity, segment, speed(model.config, dtype))
    if orders.role == "prefill":
        prefill_config = prefill.PrefillConfig(layers, orders.mac_key, prefix_cache=settings.prefix_cache)
        state = prefill.PrefillState(members, prefill_config, pool)
        loop = Loop(orders, prefill.Machine(decisions).step, state, cores)
        face.serve(loop, PrefillWork(loop, model, segment, decisions), "")
        return
    config = DecodeConfig(layers, orders.mac_key, handoff_s=settings.handoff_s, drain_s=settings.drain_s)
    slots = SlotPool[Room].of(settings.max_requests)
    decode_loop = Loop(orders, decode.Machine(decisions).step, DecodeState(members, config, pool, slots), cores)
    with backends.offered(orders, segment) as offer:
        face.serve(decode_loop, DecodeWork(decode_loop, model, segment, decisions, offer.revoke), offer.address)


def pool_layout(config: ModelConfig, dtype: Dtype, orders: WorkerOrders) -> Layout:
    """The pool is what memory leaves to this worker beside its weights, capped by what the operator asked for (I8).

    Without a cap, more than every row of the batch at full length would never be used, only cleared at start.
    """
    settings = orders.settings
    page = Layout(1, settings.page_size, config.layers, config.kv_heads, config.head_dim, dtype)
    useful = int(settings.max_requests * settings.context * settings.headroom)
    cap = settings.pool_tokens(orders.role) or useful
    layout, fit = size_pool(page, max(cap, settings.page_size), orders.memory_bytes - own_bytes())
    if fit.shrunk:
        print(f"pagefence {orders.me.name}: pool {fit}", file=sys.stderr)
    return layout


@dataclass(frozen=True, slots=True)
class _Face:
    """What a worker shows of itself."""

    orders: WorkerOrders
    capacity: Capacity
    segment: Segment
    speed: Mapping[str, int]

    def serve(self, loop: Loop[Any], work: Work, address: str) -> None:
        """Open the HTTP face, say hello, loop until told to stop."""
        host = self.orders.settings.host

        def info() -> dict[str, object]:
            return {**self._fixed(), "pages": msgspec.to_builtins(loop.state.pool.counts()), **work.info()}

        http = serve_worker_http(info, lambda: worker_metrics(info(), loop.dropped), host, self.orders.http_port)
        try:
            loop.announce(self.capacity, http.port, address)
            loop.run(work)
        finally:
            http.stop()
            self.segment.close()

    def _fixed(self) -> dict[str, object]:
        settings, me, pool = self.orders.settings, self.orders.me, self.capacity.pool_tokens
        return {
            "engine": "pagefence",
            "version": __version__,
            "model_name": settings.model_name,
            "disaggregation_mode": self.orders.role,
            "max_total_num_tokens": pool,
            "max_req_input_len": min(settings.longest - 1, pool - (self.orders.role == "decode")),
            "page_size": settings.page_size,
            "prefix_cache": settings.prefix_cache and self.orders.role == "prefill",
            "context_length": settings.longest,
            "kv_bytes_per_token": self.segment.layout.token_bytes,
            "mode": settings.mode,
            "dtype": self.segment.layout.dtype,
            "worker": me.name,
            "epoch": me.epoch,
            "pid": os.getpid(),
            **self.speed,
        }


if __name__ == "__main__":
    sys.exit(main())
