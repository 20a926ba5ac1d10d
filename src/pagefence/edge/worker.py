"""One process that serves: its event loop, its front, what stands behind it now, and how that is changed or ended."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any

from pagefence.edge.app import Edge
from pagefence.edge.front.connection import Connection
from pagefence.edge.front.front import Front
from pagefence.edge.logs import Log
from pagefence.edge.mark import Recorder
from pagefence.edge.metrics import Meters
from pagefence.edge.refusal import Refusal
from pagefence.edge.settings import Settings
from pagefence.edge.shown import server_info
from pagefence.edge.side import Side
from pagefence.edge.steps import Tells
from pagefence.edge.telemetry import telemetry
from pagefence.edge.upstream.balancer import Balancer, UpstreamPolicy
from pagefence.edge.wire.arrived import arrival
from pagefence.edge.wire.heads import RequestHead
from pagefence.mistakes import EXIT_INTERRUPTED, Mistake

if TYPE_CHECKING:
    from pagefence.edge.serve import Build

_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_GAUGES_S = 1.0
_ONE_S = 0.5  # signals within it are one
_LAST_S = 1.0  # at most, to take those whom the kernel has connected already


class Worker:
    """`run` it in its own process, or in the only one."""

    def __init__(self, settings: Settings, build: Build, meters: Meters, number: int) -> None:
        self._settings, self._build, self._meters = settings, build, meters
        self._row = meters.row(number)
        self._row.clear_gauges()
        self._number = number
        self._stopping = False
        self._reloading: asyncio.Task[None] | None = None
        self._reload_again = False
        self._edge: Edge

    def run(self, sock: socket.socket) -> int:
        """Until a signal ends it; the exit code."""
        # Until the event loop hears them they wait; the thread of the log never gets one.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        self._log = Log(on_dropped=lambda: self._row.add("pagefence_edge_log_lines_dropped_total"))
        try:
            return _run(self._serve(sock))
        finally:
            self._log.close()

    async def _serve(self, sock: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        ends: asyncio.Queue[signal.Signals] = asyncio.Queue()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ends.put_nowait, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload_soon)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        loop.set_exception_handler(self._broke)
        self._edge = await self._built(self._settings)
        gc.collect()
        gc.freeze()  # what lives as long as the process is not looked at again and again
        front = Front(self._handle, self._settings.front, self._refused)
        server = await loop.create_server(front, sock=sock)
        gauges = loop.create_task(self._gauges(front))
        self._log("serves", worker=self._number, upstreams=[each.url for each in self._settings.upstreams])
        first = await ends.get()
        self._stopping = True
        self._log("stops", worker=self._number, in_flight=front.connections)
        draining = loop.create_task(self._drain(front, server, sock))
        second = loop.create_task(_another(ends))
        done, _ = await asyncio.wait({draining, second}, return_when=asyncio.FIRST_COMPLETED)
        if draining not in done:
            draining.cancel()
            await front.drain(0.0)
        second.cancel()
        gauges.cancel()
        self._end(self._edge)
        front.close()
        self._row.clear_gauges()
        self._log("stopped", worker=self._number)
        return EXIT_INTERRUPTED if first is signal.SIGINT else 0

    async def _drain(self, front: Front, server: asyncio.Server, sock: socket.socket) -> None:
        """First not ready, for those who balance over edges; then no new connections; then no connections."""
        await asyncio.sleep(self._settings.delay_s)
        loop, queue = asyncio.get_running_loop(), arrival(sock)
        end = loop.time() + _LAST_S
        while queue.poll(0) and loop.time() < end:
            await asyncio.sleep(0.002)
        server.close()
        cut = await front.drain(self._settings.drain_s)
        if cut:
            self._log("cut", worker=self._number, connections=cut)

    def _handle(self, head: RequestHead, client: Connection) -> Awaitable[None]:
        return self._edge.handle(head, client)  # of the edge that is there now: a reload puts another one here

    async def _built(self, settings: Settings) -> Edge:
        steps = self._build.steps(settings, Tells(self._log.line, self._row.add, self._gauge))
        tls = settings.tls.context() if any(each.tls for each in settings.upstreams) else None
        policy = UpstreamPolicy(
            settings.timeouts, settings.health, settings.upstream_connections, settings.upstream_keep_s, tls
        )
        spans = telemetry(settings.traces)  # before `start`: what a refused reload began nobody would end
        if steps.start is not None:
            await steps.start()
        balancer = Balancer(settings.upstreams, policy, self._notice, steps.barred)
        recorder = Recorder(self._row, self._log, settings.log_requests, spans)
        side = Side(settings.cors, self._unready, self._meters.text if settings.metrics else None, self._info)
        return Edge(settings, steps, balancer, recorder, side)

    def _reload_soon(self) -> None:
        """One after the other, or the settings of the slower one would win; of several that wait only one is needed."""
        self._reload_again = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.get_running_loop().create_task(self._reloads())

    async def _reloads(self) -> None:
        while self._reload_again and not self._stopping:
            self._reload_again = False
            await self._reload()

    async def _reload(self) -> None:
        """New settings, or the old ones and a line that says why. Requests in progress keep what they began with."""
        try:
            new = self._build.load()
            fixed = self._settings.needs_restart(new)
            edge = await self._built(new)
        except Mistake as error:
            self._row.add("pagefence_edge_reloads_total", "refused")
            self._log("reload_refused", worker=self._number, why=str(error))
            return
        except Exception as error:  # its words may quote anything
            self._row.add("pagefence_edge_reloads_total", "refused")
            self._log("reload_refused", worker=self._number, why=f"the edge failed: {type(error).__name__}")
            return
        old, self._edge, self._settings = self._edge, edge, new
        # Its threads count, and its figures are read, until the last request that needs them has ended.
        old.retire(lambda: self._end(old))
        self._row.add("pagefence_edge_reloads_total", "done")
        self._log("reloaded", worker=self._number, needs_restart=fixed or None)

    @staticmethod
    def _end(edge: Edge) -> None:
        edge.balancer.close()
        edge.steps.stop()

    def _unready(self) -> list[str]:
        reasons = ["it is stopping"] if self._stopping else []
        reasons += [] if self._edge.balancer.well else ["no upstream is well"]
        own = self._edge.steps.unready()
        return [*reasons, own] if own else reasons

    def _info(self) -> bytes:
        return server_info(self._edge.steps.room(), not self._unready())

    def _broke(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Of an error outside of any request only its kind is said: its words may quote one."""
        self._log("internal_error", worker=self._number, kind=type(context.get("exception")).__name__)

    def _refused(self, refusal: Refusal) -> None:
        self._row.add("pagefence_edge_refusals_total", refusal.code)

    def _notice(self, event: str, upstream: str, why: str) -> None:
        self._log(event, worker=self._number, upstream=upstream, why=why)
        if event == "upstream_failed":
            self._row.add("pagefence_edge_upstream_failures_total", upstream, why.partition(":")[0])

    def _gauge(self, name: str, to: float) -> None:
        self._row.set(name, to=to)

    async def _gauges(self, front: Front) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._row.set("pagefence_edge_connections", to=front.connections)
            for upstream in self._edge.balancer.upstreams[: len(self._settings.upstreams)]:
                well = float(upstream.health.well(loop.time()))
                self._row.set("pagefence_edge_upstream_well", upstream.name, to=well)
                for state, count in (("busy", upstream.pool.outstanding), ("idle", upstream.pool.idle)):
                    self._row.set("pagefence_edge_upstream_connections", upstream.name, state, to=count)
            await asyncio.sleep(_GAUGES_S)


async def _another(ends: asyncio.Queue[signal.Signals]) -> None:
    """A second wish to end. systemd signals every process, and the parent hands its own on: that is one."""
    first = asyncio.get_running_loop().time()
    while True:
        await ends.get()
        if asyncio.get_running_loop().time() - first > _ONE_S:
            return


def _run(main: Coroutine[Any, Any, int]) -> int:
    """On uvloop where it is installed: half the time for a request (docs/decisions.md)."""
    with contextlib.suppress(ImportError):
        import uvloop

        return int(uvloop.run(main))
    return asyncio.run(main)
