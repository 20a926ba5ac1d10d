"""What the supervisor makes of workers that fail: a start that failed is fatal, a later death is not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from pagefence.engine.run_dir import LOCK, run_dir
from pagefence.engine.settings import Settings, WorkerOrders
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


NOTES_ITS_ORDERS = """
import os, pathlib, sys, time
part = pathlib.Path({folder!r}, f"{{os.getpid()}}.part")
part.write_bytes(sys.stdin.buffer.read())
part.rename(part.with_suffix(".orders"))
time.sleep(60)
"""


def orders_in(folder: Path) -> dict[str, WorkerOrders]:
    """What each living worker was told; with its pid in place of the folder, which is the same for all."""
    found = {}
    for path in folder.glob("*.orders"):
        if psutil.pid_exists(int(path.stem)):
            told = msgspec.msgpack.decode(path.read_bytes(), type=WorkerOrders)
            found[told.me.name] = msgspec.structs.replace(told, run_dir=path.stem)
    return found


def test_a_fleet_of_several_is_told_apart_by_name_seat_and_port_and_one_death_is_no_business_of_the_others(
    tmp_path: Path,
) -> None:
    settings = Settings(model="m", model_name="m", prefill_workers=2, decode_workers=2, decode_port=9100)
    command = ("timeit", "-n", "1", "-r", "1", NOTES_ITS_ORDERS.format(folder=str(tmp_path)))
    gone: list[WorkerRef] = []

    async def until(names: set[str]) -> dict[str, WorkerOrders]:
        while set(found := orders_in(tmp_path)) != names:
            await asyncio.sleep(0.02)
        return found

    async def run() -> None:
        supervisor = Supervisor(settings, WorkerRef("router", 1), "/nowhere", gone.append, command)
        supervisor.start()
        try:
            assert supervisor.size == 4
            names = {"prefill-0", "prefill-1", "decode-0", "decode-1"}
            before = await asyncio.wait_for(until(names), 60)
            told = sorted((o.seat, o.me.name, o.role, o.http_port) for o in before.values())
            assert told == [
                (0, "prefill-0", "prefill", 0),
                (1, "prefill-1", "prefill", 0),
                (2, "decode-0", "decode", 9100),
                (3, "decode-1", "decode", 9101),
            ]
            (share,) = {o.memory_bytes for o in before.values()}
            assert 0 < 4 * share < psutil.virtual_memory().total

            victim = WorkerRef("decode-0", 1)
            supervisor.ready(victim, 9100)
            supervisor.restart(victim, "a test")
            await asyncio.wait_for(until(names - {"decode-0"}), 60)
            after = await asyncio.wait_for(until(names), 60)
            assert gone == [victim]
            assert after.pop("decode-0").me == WorkerRef("decode-0", 2)
            assert after == {name: o for name, o in before.items() if name != "decode-0"}
        finally:
            await supervisor.stop()

    asyncio.run(run())


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
