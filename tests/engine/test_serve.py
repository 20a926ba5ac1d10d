"""How a fleet ends: what is in flight may finish, nothing new is taken, and whoever insists is obeyed."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from pagefence.engine.api.ports import Job
from pagefence.engine.api.tenants import Tenants
from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.engine.router import Router
from pagefence.engine.serve import _Fleet
from pagefence.engine.settings import Settings
from pagefence.engine.supervisor import WORKER_COMMAND
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Refuse
from pagefence.stopping import Stop

JOB = Job("tenant", (1, 2, 3), 4, SamplingParams(), "prompt")
SAID: list[str] = []


def beside_a_router(act: Callable[[Router, _Fleet], Awaitable[None]], shutdown_s: float = 30.0) -> None:
    """Run `act` with a router that has no workers, and the fleet that would end it."""
    settings = Settings(model="m", model_name="m", port=0, shutdown_s=shutdown_s)
    SAID.clear()

    async def run() -> None:
        with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as folder:
            fleet = _Fleet(settings, cast(Tenants, None), Path(folder), Decisions(), WORKER_COMMAND, SAID.append)
            router = Router(settings, Path(folder), Decisions())
            try:
                await act(router, fleet)
            finally:
                router.close()

    asyncio.run(run())


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def test_a_fleet_without_requests_ends_at_once_and_without_a_word() -> None:
    async def act(router: Router, fleet: _Fleet) -> None:
        await asyncio.wait_for(fleet._drain(router, (never(),)), 5)
        assert router.reasons() == ("draining",)

    beside_a_router(act)
    assert not SAID


def test_a_draining_fleet_waits_until_the_api_lets_go_of_every_call() -> None:
    async def act(router: Router, fleet: _Fleet) -> None:
        calls = [router.submit(JOB) for _ in range(2)]
        ending = asyncio.create_task(fleet._drain(router, (never(),)))
        for call in calls:
            await asyncio.sleep(0.02)
            assert not ending.done(), "its outcome is there, but nobody has read it"
            call.cancel()
        await asyncio.wait_for(ending, 5)

    beside_a_router(act)
    assert SAID == ["pagefence: draining: 2 requests in flight, up to 30 s; a second signal stops at once"]


def test_what_is_submitted_meanwhile_is_refused_and_may_be_tried_again_elsewhere() -> None:
    async def act(router: Router, fleet: _Fleet) -> None:
        held = router.submit(JOB)
        ending = asyncio.create_task(fleet._drain(router, (never(),)))
        await asyncio.sleep(0.02)
        late = router.submit(JOB)
        events = [event async for event in late.events()]
        assert isinstance(events[-1], Refuse)
        error = events[-1].error
        assert (error.status, error.message) == (503, "The fleet is not ready: draining")
        assert error.retry_after_s
        late.cancel()
        held.cancel()
        await asyncio.wait_for(ending, 5)

    beside_a_router(act)


@pytest.mark.parametrize("by", ["patience", "word"])
def test_a_call_that_never_ends_holds_a_fleet_up_only_so_long(by: str) -> None:
    async def act(router: Router, fleet: _Fleet) -> None:
        router.submit(JOB)
        at_once = never()
        if by == "word":
            asyncio.get_running_loop().call_later(0.05, at_once.set_result, None)
        began = time.monotonic()
        await asyncio.wait_for(fleet._drain(router, (at_once,)), 5)
        assert 0.04 < time.monotonic() - began < 4

    beside_a_router(act, shutdown_s=30.0 if by == "word" else 0.05)


def test_the_first_signal_asks_and_the_second_insists() -> None:
    async def run() -> None:
        stop = Stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.wait_for(stop.first, 5) is signal.SIGTERM
        assert not stop.second.done()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert await asyncio.wait_for(stop.second, 5) is signal.SIGINT
        await asyncio.sleep(0.02)  # a third one is one too many, and harmless

    asyncio.run(run())
