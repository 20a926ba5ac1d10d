"""What the supervisor makes of workers that fail: a start that failed is fatal, a later death is not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable

import msgspec
import psutil
import pytest

from pagefence.engine.run_dir import LOCK, run_dir
from pagefence.engine.settings import Settings
from pagefence.engine.supervisor import Supervisor
from pagefence.protocol.messages import WorkerRef

SLEEPS = ("-c", "import time; time.sleep(60)")
PREFILL = WorkerRef("prefill-0", 1)


def supervised(act: Callable[[Supervisor], Awaitable[None]]) -> None:
    """Run `act` beside two sleeping workers; afterwards none of them is left."""

    async def run() -> None:
        settings = Settings(model="m", model_name="m")
        supervisor = Supervisor(settings, WorkerRef("router", 1), "/nowhere", lambda worker: None, SLEEPS)
        supervisor.start()
        try:
            await act(supervisor)
        finally:
            await supervisor.stop()

    before = set(psutil.Process().children())
    asyncio.run(run())
    assert set(psutil.Process().children()) <= before


async def until_alive(supervisor: Supervisor) -> None:
    while not supervisor.is_alive(PREFILL):
        await asyncio.sleep(0.01)


def test_a_worker_that_cannot_start_is_fatal_and_one_that_dies_later_is_not() -> None:
    async def act(supervisor: Supervisor) -> None:
        await until_alive(supervisor)
        supervisor.ready(PREFILL, 1)
        supervisor.start_failed(PREFILL, "decode was gone")
        assert not supervisor.failure.done()
        supervisor.start_failed(WorkerRef("decode-0", 1), "no model")
        assert supervisor.failure.result() == "no model"

    supervised(act)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
def test_a_stop_while_workers_are_being_started_leaves_none(turns: int) -> None:
    async def act(supervisor: Supervisor) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    supervised(act)


def test_a_worker_whose_supervisor_is_gone_ends_itself() -> None:
    orphan = "from pagefence.process import die_with_parent; die_with_parent(2**22 + 1); print('lives')"
    ended = subprocess.run([sys.executable, "-c", orphan], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (-9, "")


def test_a_folder_that_is_in_use_is_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as parent:
        monkeypatch.setattr(tempfile, "tempdir", parent)
        with run_dir() as first:
            assert (first / LOCK).exists()
            with run_dir() as second:
                assert first.exists()
            assert not second.exists()
        assert not first.exists()


@pytest.mark.parametrize("name", ["prefill_pool_tokens", "decode_pool_tokens"])
def test_a_pool_of_nothing_is_refused_rather_than_taken_for_no_cap(name: str) -> None:
    with pytest.raises(ValueError, match=name.replace("_", "-")):
        msgspec.convert({"model": "m", "model_name": "m", name: 0}, Settings)


def test_a_declared_limit_is_what_workers_report() -> None:
    assert Settings(model="m", model_name="m", context=4096, limit=2048).longest == 2048
    assert Settings(model="m", model_name="m", context=4096, limit=8192).longest == 4096
