"""A worker tells what it has while it computes, in whichever thread, and says at once when its port is taken."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from pagefence.engine.api.serving import ThreadedServer, listening_socket
from pagefence.engine.worker_http import serve_worker_http

from .scripted import anybody

INFO: dict[str, object] = {"max_total_num_tokens": 2560, "page_size": 64, "disaggregation_mode": "decode"}


@pytest.fixture
def worker() -> Iterator[ThreadedServer]:
    handle = serve_worker_http(lambda: dict(INFO), lambda: b"pagefence_pages_total 40.0\n", "127.0.0.1", 0)
    yield handle
    handle.stop()


def test_it_answers_what_operators_ask(worker: ThreadedServer) -> None:
    url = f"http://127.0.0.1:{worker.port}"
    assert anybody.get(f"{url}/server_info").json() == anybody.get(f"{url}/get_server_info").json() == INFO
    assert anybody.get(f"{url}/health").status_code == anybody.get(f"{url}/livez").status_code == 200
    assert anybody.get(f"{url}/metrics").text == "pagefence_pages_total 40.0\n"
    assert anybody.get(f"{url}/v1/completions").json()["error"]["code"] == "not_found"
    assert anybody.post(f"{url}/server_info").status_code == 405


def test_it_answers_while_the_main_thread_computes(worker: ThreadedServer) -> None:
    """Pure Python is the worst case: tensor code lets go of the interpreter, this does not until it is made to."""
    ask = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{worker.port}/server_info').status)"
    with subprocess.Popen([sys.executable, "-c", ask], stdout=subprocess.PIPE) as client:
        deadline = time.monotonic() + 10
        while client.poll() is None:
            assert time.monotonic() < deadline, "no answer while the main thread was busy"
            sum(range(10_000))
        assert client.stdout is not None
        assert client.stdout.read().strip() == b"200"


def test_a_snapshot_that_fails_is_an_error_and_not_an_empty_answer() -> None:
    def broken() -> dict[str, object]:
        raise RuntimeError("my-secret")

    handle = serve_worker_http(broken, lambda: b"", "127.0.0.1", 0)
    try:
        answer = anybody.get(f"http://127.0.0.1:{handle.port}/server_info")
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
        assert "my-secret" not in answer.text
        assert anybody.get(f"http://127.0.0.1:{handle.port}/livez").status_code == 200
    finally:
        handle.stop()


def test_a_port_in_use_is_said_to_the_caller(worker: ThreadedServer) -> None:
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{worker.port}: Address already in use") as error:
        serve_worker_http(dict, bytes, "127.0.0.1", worker.port)
    assert error.value.errno == errno.EADDRINUSE
    with listening_socket("127.0.0.1", 0) as taken, pytest.raises(OSError, match="Address already in use"):
        listening_socket("127.0.0.1", taken.getsockname()[1])  # before anybody serves on it
    for host, port in (("127.0.0.1", 70_000), ("no.such.host.invalid", 0)):
        with pytest.raises(OSError, match="cannot listen on"):
            serve_worker_http(dict, bytes, host, port)


def test_stopping_frees_the_port_and_ends_the_thread() -> None:
    before = threading.active_count()
    handle = serve_worker_http(dict, bytes, "127.0.0.1", 0)
    with httpx.Client() as client:
        client.get(f"http://127.0.0.1:{handle.port}/livez")  # keeps its connection open
        handle.stop()
    handle.stop()
    listening_socket("127.0.0.1", handle.port).close()
    assert not any(thread.name == "pagefence-worker-http" for thread in threading.enumerate()), before


def test_small_writes_go_out_at_once(worker: ThreadedServer) -> None:
    """Without TCP_NODELAY an answer of two writes waits for the client's delayed ACK, 40 ms and more on Linux."""
    with socket.create_connection(("127.0.0.1", worker.port), 5) as sock:
        started = time.monotonic()
        for _ in range(20):
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            got = b""
            while b'"ok"' not in got:
                got += sock.recv(65536)
        assert time.monotonic() - started < 20 * 0.03
