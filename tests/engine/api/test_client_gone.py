"""A client that hangs up holds nothing a moment longer, wherever its request was (I5, I10). Real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import MutableMapping

import pytest

from pagefence.engine.api.app import create_app
from pagefence.engine.api.exchange import once

from .scripted import (
    KEYS,
    MODEL,
    ByteText,
    ByteTokenizer,
    Running,
    ScriptedGateway,
    anybody,
    begin,
    emit,
    end,
    running,
    two_tenants,
)


def head(length: int) -> bytes:
    lines = ["POST /v1/completions HTTP/1.1", "Host: x", f"Authorization: Bearer {KEYS['ann']}"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def send(port: int, stream: bool) -> socket.socket:
    body = json.dumps({"model": MODEL, "prompt": "hello", "stream": stream}).encode()
    sock = socket.create_connection(("127.0.0.1", port), 5)
    sock.sendall(head(len(body)) + body)
    return sock


def submitted(fleet: Running, count: int = 1) -> None:
    deadline = time.monotonic() + 5
    while len(fleet.gateway.calls) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_hangs_up_lets_go_at_once(fleet: Running, stream: bool, begun: bool) -> None:
    never = threading.Event()
    fleet.gateway.script = lambda job: [begin(), emit("a"), never] if begun else [never]
    sock = send(fleet.port, stream)
    submitted(fleet)
    if stream and begun:
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
    call = fleet.gateway.calls[0]
    assert not call.cancelled.wait(0.1), "let go of while the client was still there"
    sock.close()
    assert call.cancelled.wait(1), "the client is gone and the call was not cancelled"
    time.sleep(0.1)
    assert call.cancels == 1


def test_a_client_that_does_not_read_and_then_resets_stalls_nobody(fleet: Running) -> None:
    """Its answer is all there: the events must neither be written into a void nor hold the loop."""
    many = [emit("y" * 20)] * 20_000
    fleet.gateway.script = lambda job: [begin(), *many, end(job, 400_000)]
    sock = send(fleet.port, stream=True)
    submitted(fleet)
    time.sleep(0.3)
    assert anybody.get(f"{fleet.url}/livez", timeout=1).status_code == 200
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    sock.close()
    assert fleet.gateway.calls[0].cancelled.wait(1)
    assert anybody.get(f"{fleet.url}/livez", timeout=1).status_code == 200


def test_one_client_leaving_disturbs_no_other(fleet: Running) -> None:
    gate = threading.Event()
    fleet.gateway.script = lambda job: [begin(), emit("a"), gate, emit("b"), gate]
    socks = [send(fleet.port, stream=True) for _ in range(6)]
    submitted(fleet, 6)
    for sock in socks[::2]:
        sock.close()
    time.sleep(0.3)
    assert sorted(call.cancels for call in fleet.gateway.calls) == [0, 0, 0, 1, 1, 1]
    gate.set()
    for sock in socks[1::2]:
        got = b""
        while received := sock.recv(65536):
            got += received
            if got.endswith(b"0\r\n\r\n"):
                break
        assert got.count(b'"text":"b"') == 1
        sock.close()


def test_a_client_that_leaves_in_the_middle_of_its_body(fleet: Running) -> None:
    with socket.create_connection(("127.0.0.1", fleet.port), 5) as sock:
        sock.sendall(head(500) + b"{")
    deadline = time.monotonic() + 2
    while 'status="499"' not in anybody.get(f"{fleet.url}/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not fleet.gateway.jobs


def test_a_server_that_stops_lets_go_of_its_calls() -> None:
    never = threading.Event()
    with running(ScriptedGateway(lambda job: [begin(), emit("a"), never])) as fleet:
        sock = send(fleet.port, stream=True)
        submitted(fleet)
    assert fleet.gateway.calls[0].cancels == 1
    sock.close()


def test_a_long_prompt_stalls_nobody() -> None:
    """Reading and tokenising happen beside the event loop."""

    class Slow(ByteTokenizer):
        def encode(self, text: str, add_special: bool = False) -> list[int]:
            entered.set()
            assert leave.wait(5)
            return super().encode(text)

    entered, leave = threading.Event(), threading.Event()
    with running(ScriptedGateway(), tokenizer=Slow()) as fleet:
        sock = send(fleet.port, stream=False)
        assert entered.wait(2)
        assert anybody.get(f"{fleet.url}/livez", timeout=2).status_code == 200
        leave.set()
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        sock.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["answered", "cancelled", "broken pipe"])
def test_a_handler_lets_go_however_it_ends(stream: bool, how: str) -> None:
    """Without a server's help: some never say that a client is gone, some raise on a write, some cancel the task."""
    never = threading.Event()
    gateway = ScriptedGateway(lambda job: [begin(), emit("a"), *([never] if how == "cancelled" else []), end(job, 1)])
    app = create_app(gateway, ByteTokenizer(), two_tenants(), ByteText)
    body = json.dumps({"model": MODEL, "prompt": "hello", "stream": stream, "n": 2}).encode()
    messages: list[dict[str, object]] = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, object]:
        if messages:
            return messages.pop()
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, object]) -> None:
        if how == "broken pipe":
            raise OSError("broken pipe")

    async def ask() -> None:
        headers = [(b"authorization", f"Bearer {KEYS['ann']}".encode())]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers, "query_string": b""}
        handler = asyncio.create_task(app(scope, receive, send))
        if how == "cancelled":
            await asyncio.sleep(0.1)
            handler.cancel()
        await asyncio.wait([handler], timeout=5)
        assert handler.done()
        assert handler.cancelled() or handler.exception() is None or how == "broken pipe"

    asyncio.run(ask())
    assert [call.cancels for call in gateway.calls] == [1, 1]


def test_once_is_once() -> None:
    calls: list[int] = []
    release = once(lambda: calls.append(1))
    release()
    release()
    assert calls == [1]
