"""`pagefence edge` as a process: it drains on SIGTERM, reloads on SIGHUP, and several workers are one edge."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

# The command alone, as a proxy that checks nothing: what is tested here is how it begins, changes and ends.
START = """
import sys
import typer
from pagefence.edge import joined
from pagefence.edge.command import edge
from pagefence.edge.passing import passing
from pagefence.run import run
joined.Joined.steps = lambda self, settings, tells: passing()
app = typer.Typer()
app.command()(edge)
sys.exit(run(app, sys.argv[1:]))
"""


class Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    name = b"first"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(10):
            event = b"data: %b %d\n\n" % (self.name, number)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            time.sleep(0.05)
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *given: object) -> None:
        pass


class Second(Upstream):
    name = b"second"


@contextlib.contextmanager
def upstream(handler: type[Upstream] = Upstream) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class Running:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self._announce, self._log = folder / "address.json", folder / "log"
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, "--port", "0", "--announce", str(self._announce), *arguments],
                stderr=out,
            )
        self.until("serves")
        self.port = int(json.loads(self._announce.read_text())["url"].rpartition(":")[2])

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def until(self, event: str, times: int = 1) -> dict[str, object]:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            found = [each for each in self.events() if each["event"] == event]
            if len(found) >= times:
                return found[-1]
            time.sleep(0.02)
        raise AssertionError(f"no {event}: {self._log.read_text()}")

    def until_counted(self, line: str) -> None:
        """A request is counted when it has ended, which its client hears a moment earlier."""
        end = time.monotonic() + 30
        while line not in (said := self.ask("GET", "/metrics")[1]):
            assert time.monotonic() < end, said
            time.sleep(0.02)

    def ask(self, method: str = "POST", path: str = "/v1/chat/completions") -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        body = b"{}" if method == "POST" else None
        connection.request(method, path, body, {"content-type": "application/json"} if body else {})
        answer = connection.getresponse()
        try:
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Running]:
    edge = Running(folder, *arguments)
    try:
        yield edge
    finally:
        edge.process.kill()
        edge.process.wait()


def test_what_is_being_answered_ends_well_and_then_the_process_does(tmp_path: Path) -> None:
    with upstream() as url, running(tmp_path, "--upstream", url) as edge:
        answers: list[tuple[int, str]] = []
        asking = threading.Thread(target=lambda: answers.append(edge.ask()))
        asking.start()
        idle = socket.create_connection(("127.0.0.1", edge.port))
        time.sleep(0.2)
        edge.process.send_signal(signal.SIGTERM)
        asking.join()
        assert edge.process.wait(10) == 0
        assert answers[0][0] == 200
        assert "first 9" in answers[0][1]
        assert idle.recv(1) == b""
        idle.close()
        with pytest.raises(ConnectionRefusedError):
            edge.ask()


def test_it_goes_on_with_old_settings_until_new_ones_are_well(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    with upstream() as first, upstream(Second) as second:
        file.write_text(f'[upstream]\nurls = ["{first}"]\n')
        with running(tmp_path, "--config", str(file)) as edge:
            assert "first" in edge.ask()[1]
            file.write_text('[upstream]\nurls = ["nonsense"]\n')
            edge.process.send_signal(signal.SIGHUP)
            assert "nonsense" in str(edge.until("reload_refused")["why"])
            assert "first" in edge.ask()[1]
            file.write_text(f'[upstream]\nurls = ["{second}"]\n[listen]\nport = 9\n')
            answers: list[tuple[int, str]] = []
            asking = threading.Thread(target=lambda: answers.append(edge.ask()))
            asking.start()
            time.sleep(0.2)
            edge.process.send_signal(signal.SIGHUP)
            edge.until("reloaded")
            assert "second" in edge.ask()[1]
            asking.join()
            assert "first 9" in answers[0][1], "what had begun went on as it began"


def test_several_workers_are_one_edge_and_one_that_dies_is_started_again(tmp_path: Path) -> None:
    with upstream() as url, running(tmp_path, "--upstream", url, "--workers", "2") as edge:
        edge.until("serves", times=2)
        for _ in range(6):
            assert edge.ask()[0] == 200
        edge.until_counted('status="200"} 6.0')
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(edge.process.pid)], capture_output=True, check=True)
        os.kill(int(listed.stdout.split()[0]), signal.SIGKILL)
        edge.until("worker_died")
        edge.until("serves", times=3)
        assert edge.ask()[0] == 200
        edge.until_counted('status="200"} 7.0')
        edge.process.send_signal(signal.SIGTERM)
        assert edge.process.wait(10) == 0


def test_a_mistake_in_a_step_ends_several_workers_before_they_begin(tmp_path: Path) -> None:
    """Not one worker after the other, again and again."""
    command = [sys.executable, "-m", "pagefence", "edge", "--upstream", "http://127.0.0.1:9", "--port", "0"]
    nobody = {**os.environ, "PAGEFENCE_API_KEYS": ""}
    command += ["--workers", "2"]
    ended = subprocess.run(command, env=nobody, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "nobody could ask" in ended.stderr
    assert "worker_died" not in ended.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_who_came_before_the_end_is_answered_and_who_comes_after_it_is_told_at_once(
    tmp_path: Path, workers: str
) -> None:
    """Also those whose connection or request it has not heard of yet. All processes get the signal, as from systemd."""
    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-type: application/json\r\n"
    request += b"content-length: 2\r\n\r\n{}"
    with upstream() as url, running(tmp_path, "--upstream", url, "--workers", workers) as edge:
        edge.until("serves", times=int(workers))
        early = [socket.create_connection(("127.0.0.1", edge.port), timeout=20) for _ in range(4)]
        time.sleep(0.1)
        pids = subprocess.run(["ps", "-o", "pid=", "--ppid", str(edge.process.pid)], capture_output=True, check=False)
        stopped = [edge.process.pid, *map(int, pids.stdout.split())]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        late = [socket.create_connection(("127.0.0.1", edge.port), timeout=20) for _ in range(8)]
        for client in (*early, *late):
            client.sendall(request)
        for pid in stopped:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)
        answers = [b"".join(iter(lambda c=client: c.recv(65536), b"")) for client in (*early, *late)]  # type: ignore[misc]
        assert all(answer.endswith(b"0\r\n\r\n") for answer in answers)
        with pytest.raises(ConnectionRefusedError):
            edge.ask()
        assert edge.process.wait(10) == 0
