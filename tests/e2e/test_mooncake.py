"""A fleet whose KV goes over TCP answers as one whose KV goes through shared memory, and survives the same deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from pagefence.engine.kv.mooncake import require
from pagefence.engine.kv.transfer import BackendMissing
from tests.e2e.fleets import KEY_A, KEY_B, Fleet, complete, serving
from tests.e2e.test_crash import wait_for_next_epoch

pytestmark = pytest.mark.mooncake

PROMPTS: tuple[str | list[int], ...] = ("The capital of France is", [11, 12, 13] * 64)
FLAGS = ("--context", "512", "--kv-pool-tokens", "1024")


def answers(fleet: Fleet) -> list[str]:
    with fleet.client() as client:
        return [complete(client, prompt, 8).json()["choices"][0]["text"] for prompt in PROMPTS]


@pytest.fixture(autouse=True)
def mooncake_loads() -> None:
    """Skips where Mooncake or a library that it links is missing."""
    try:
        require()
    except BackendMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.timeout(600)
def test_the_tokens_are_those_of_shared_memory_and_a_dead_worker_leaves_no_page_behind(tmp_path: Path) -> None:
    with serving(tmp_path, *FLAGS) as through_memory:
        expected = answers(through_memory)
    with serving(tmp_path, *FLAGS, "--transfer", "mooncake") as over_tcp:
        assert answers(over_tcp) == expected
        for role in ("prefill", "decode"):
            before = over_tcp.worker_info(role)
            os.kill(before["pid"], signal.SIGKILL)
            wait_for_next_epoch(over_tcp, role, before["epoch"])
            assert answers(over_tcp) == expected
        over_tcp.at_rest()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_fleet_whose_kv_crosses_between_two_hosts_is_clean(tmp_path: Path, namespaces: tuple[str, str]) -> None:
    command = ("-m", "tests.two_hosts", "serve", *namespaces)
    flags = ("--context", "1024", "--kv-pool-tokens", "1280", "--prefill-workers", "2", "--decode-workers", "2")
    with serving(tmp_path, *flags, command=command) as fleet:
        listed = httpx.get(f"{fleet.router}/server_info").json()["workers"]
        urls = (fleet.router, *(word for one in listed for word in (f"--{one['role']}", one["url"])))
        environment = {**os.environ, "PAGEFENCE_KEY_A": KEY_A, "PAGEFENCE_KEY_B": KEY_B}
        asked = [sys.executable, "-m", "pagefence", "verify", *urls, "--seed", "1", "--yes"]
        ended = subprocess.run(asked, capture_output=True, text=True, timeout=800, check=False, env=environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "CLEAN" in ended.stdout
        taken = [info["handoffs"] for name, info in fleet.workers().items() if name.startswith("decode")]
        assert min(taken) > 0
        assert sum(taken) > 10
