"""A burst meets a bound before anything of it is read, and every way a request can end gives its place back."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from .scripted import KEYS, MODEL, Running, ScriptedGateway, begin, emit, end, limited, running
from .test_client_gone import head, submitted

PLACES = 2
ASK = {"model": MODEL, "prompt": "hello"}


@pytest.fixture
def narrow() -> Iterator[Running]:
    """A fleet that takes one request at a time, so the API holds two."""
    with running(ScriptedGateway(max_in_flight=PLACES // 2)) as server:
        yield server


@pytest.fixture
def ann(narrow: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=narrow.url, headers={"Authorization": f"Bearer {KEYS['ann']}"}, timeout=10) as client:
        yield client


def ask(client: httpx.Client, **more: object) -> httpx.Response:
    return client.post("/v1/completions", json={**ASK, **more})


def freed(client: httpx.Client) -> httpx.Response:
    """The first answer that is not 429; what ended may have its place for a moment longer than its answer."""
    deadline = time.monotonic() + 5
    while (answer := ask(client)).status_code == 429:
        assert time.monotonic() < deadline, "a place was not given back"
        time.sleep(0.01)
    return answer


@pytest.mark.parametrize("stream", [False, True])
def test_a_burst_gets_429_and_what_was_taken_is_answered(narrow: Running, ann: httpx.Client, stream: bool) -> None:
    until = threading.Event()
    narrow.gateway.script = lambda job: [begin(), emit("fine"), until, end(job, 4)]
    with ThreadPoolExecutor(PLACES) as pool:
        taken: list[Future[httpx.Response]] = [pool.submit(ask, ann, stream=stream) for _ in range(PLACES)]
        submitted(narrow, PLACES)
        for _ in range(20):
            refused = ask(ann, stream=stream)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
            assert int(refused.headers["retry-after"]) >= 1
        assert len(narrow.gateway.jobs) == PLACES, "a refused request was submitted"
        until.set()
        for answer in taken:
            assert answer.result(10).status_code == 200
            assert "fine" in answer.result().text or stream
    assert freed(ann).status_code == 200


def test_a_body_that_is_still_being_sent_has_a_place_and_one_that_breaks_off_gives_it_back(
    narrow: Running, ann: httpx.Client
) -> None:
    slow = [socket.create_connection(("127.0.0.1", narrow.port), 5) for _ in range(PLACES)]
    for sock in slow:
        sock.sendall(head(1_000) + b"{")
    deadline = time.monotonic() + 5
    while ask(ann).status_code != 429:
        assert time.monotonic() < deadline, "bodies are read without bound"
    for sock in slow:
        sock.close()
    assert freed(ann).status_code == 200


def test_whoever_is_refused_or_fails_gives_its_place_back(narrow: Running, ann: httpx.Client) -> None:
    for _ in range(3 * PLACES):
        assert ask(ann, colour=1).status_code == 400
        narrow.gateway.script = lambda job: [RuntimeError("no")]
        assert ask(ann).status_code == 500
    narrow.gateway.script = limited
    assert ask(ann).status_code == 200


def test_nobody_without_a_key_takes_a_place(narrow: Running, ann: httpx.Client) -> None:
    """They are refused before a byte of their body is read, so they cannot keep others out."""
    slow = [socket.create_connection(("127.0.0.1", narrow.port), 5) for _ in range(3 * PLACES)]
    for sock in slow:
        sock.sendall(head(1_000).replace(KEYS["ann"].encode(), b"wrong") + b"{")
        assert sock.recv(100).startswith(b"HTTP/1.1 401")
    assert ask(ann).status_code == 200
    for sock in slow:
        sock.close()
