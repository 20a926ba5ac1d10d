"""A fleet whose KV goes over TCP answers as one whose KV goes through shared memory, and survives the same deaths."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pagefence.engine.kv.mooncake import require
from pagefence.engine.kv.transfer import BackendMissing
from tests.e2e.fleets import Fleet, complete, serving
from tests.e2e.test_crash import wait_for_next_epoch

pytestmark = pytest.mark.mooncake

PROMPTS: tuple[str | list[int], ...] = ("The capital of France is", "word " * 300, [11, 12, 13] * 64)
FLAGS = ("--context", "1024", "--kv-pool-tokens", "2560")


def answers(fleet: Fleet) -> list[str]:
    with fleet.client() as client:
        return [complete(client, prompt, 12).json()["choices"][0]["text"] for prompt in PROMPTS]


def test_the_tokens_are_those_of_shared_memory_and_a_dead_worker_leaves_no_page_behind(tmp_path: Path) -> None:
    try:
        require()
    except BackendMissing as missing:
        pytest.skip(str(missing))
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
