"""kill -9 in the middle of streams: an error or a whole answer for everyone, and a fleet that comes back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from tests.e2e.fleets import MODEL, Fleet, complete

STREAMS = 8
NEW_TOKENS = 40


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one stream ended."""

    status: int
    text: str
    finished: bool
    error: str | None


def prompt_of(stream: int) -> str:
    """A prompt that the model continues with its own number, so that another's text would show."""
    return f"Item {stream}{stream}{stream}. " * 20


def read_stream(fleet: Fleet, stream: int) -> Outcome:
    """Read one stream to its end, whatever that is. A hang fails by the client's time-out."""
    body = {"model": MODEL, "prompt": prompt_of(stream), "max_tokens": NEW_TOKENS, "temperature": 0, "stream": True}
    text, finished, error = "", False, None
    with fleet.client(timeout=60.0) as client, client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            return Outcome(response.status_code, "", False, json.loads(response.read())["error"]["code"])
        for line in response.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                error = event["error"]["code"]
            elif event["choices"]:
                text += event["choices"][0]["text"]
                finished = finished or event["choices"][0]["finish_reason"] is not None
    return Outcome(200, text, finished, error)


@pytest.mark.parametrize("role", ["decode", pytest.param("prefill", marks=pytest.mark.slow)])
def test_killing_a_worker_ends_every_stream_well_and_the_worker_comes_back(fleet: Fleet, role: str) -> None:
    with fleet.client() as client:
        expected = {
            stream: complete(client, prompt_of(stream), NEW_TOKENS).json()["choices"][0]["text"] for stream in (0, 5)
        }
    before = fleet.worker_info(role)
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = [pool.submit(read_stream, fleet, stream) for stream in range(STREAMS)]
        wait_until_busy(fleet, role)
        os.kill(before["pid"], signal.SIGKILL)
        outcomes = [stream.result(90) for stream in streams]

    for stream, outcome in enumerate(outcomes):
        assert outcome.finished != bool(outcome.error), f"stream {stream} ended in neither or both: {outcome}"
        if stream in expected:
            assert expected[stream].startswith(outcome.text), "a stream got text that is not its own"
    assert any(outcome.error == "worker_lost" for outcome in outcomes), "nothing was in the middle: the test is void"

    assert httpx.get(f"{fleet.router}/livez").status_code == 200
    after = wait_for_next_epoch(fleet, role, before["epoch"])
    assert after["pid"] != before["pid"]
    with fleet.client() as client:
        again = complete(client, prompt_of(5), NEW_TOKENS)
    assert again.json()["choices"][0]["text"] == expected[5]
    for pages in fleet.at_rest().values():
        assert pages["free"] + pages["cached"] + pages["retired"] == pages["total"]


def wait_until_busy(fleet: Fleet, role: str) -> None:
    """Until the worker is in the middle: decode generates for someone, prefill holds pages."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        info = fleet.worker_info(role)
        if info["running"] >= 2 if role == "decode" else info["pages"]["leased"]:
            return
        time.sleep(0.02)
    pytest.fail(f"{role} was never busy")


def wait_for_next_epoch(fleet: Fleet, role: str, epoch: int) -> dict[str, object]:
    """What the next incarnation says of itself, once the fleet is ready again."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        # The router may not know yet that the old one is dead.
        with contextlib.suppress(httpx.HTTPError, StopIteration):
            if httpx.get(f"{fleet.router}/readyz").status_code == 200:
                info = fleet.worker_info(role)
                if info["epoch"] > epoch:
                    return info
        time.sleep(0.2)
    pytest.fail(f"{role} did not come back")
