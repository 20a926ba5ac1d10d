"""Two edges as processes, one Redis: what globex sent through one is recognised in acme's answer at the other."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from pagefence.edge.command import settings
from pagefence.edge.joined import Joined
from pagefence.edge.steps import Tells
from pagefence.edge.tenants import Identity
from pagefence.mistakes import Usage
from pagefence.probes.wordlist import WORDS
from tests.edge.proxy_scene import played, soon
from tests.edge.redis_scene import Redis, needs_redis
from tests.engine.model.test_tokenizer import write_vocabulary

KEYS = {"acme": "acme-key-0123456789abcdef", "globex": "globex-key-0123456789abcdef"}
SECRET = " ".join(random.Random("shared").sample(WORDS, 60))
EDGE_TOML = """
[upstream]
urls = ["{upstream}"]
[listen]
port = 0
workers = {workers}
[admission]
model = "{model}"
on = false
[tenants]
shared_cache = true
[watching]
buffered = true
[shared]
redis_env = "REDIS"
"""


class Leaking(BaseHTTPRequestHandler):
    """Says what was asked before, by whomever; to `again` always under the same id."""

    protocol_version = "HTTP/1.1"
    before = ""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last, Leaking.before = Leaking.before, asked["prompt"]
        name = "cmpl-" + 4 * "again" if asked["prompt"] == "again" else f"cmpl-{time.monotonic_ns()}"
        said = {
            "id": name, "object": "text_completion", "model": "toy",
            "choices": [{"index": 0, "text": last, "finish_reason": "stop"}],
        }  # fmt: skip
        self._say(json.dumps(said).encode())

    def do_GET(self) -> None:
        self._say(b"{}")

    def _say(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given: object) -> None:
        pass


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Leaking)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vocabulary(tmp_path_factory.mktemp("model") / "v.gguf", "gpt-2")


class Edge:
    """A process. It asks a connection of its own for each request, so that workers take turns."""

    def __init__(self, folder: Path, text: str, redis: str) -> None:
        folder.mkdir()
        (folder / "edge.toml").write_text(text)
        self._announce, self._log = folder / "address.json", folder / "log"
        secrets = {
            "PAGEFENCE_API_KEYS": ",".join(f"{name}={key}" for name, key in KEYS.items()),
            "PAGEFENCE_EDGE_SECRET": "a secret of the edge that is long enough",
            "REDIS": redis,
        }
        command = [sys.executable, "-m", "pagefence", "edge", "--config", str(folder / "edge.toml")]
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--announce", str(self._announce)], env={**os.environ, **secrets}, stderr=out
            )

    def until(self, event: str, times: int = 1) -> list[dict[str, Any]]:
        """Its log lines, once there are so many."""
        end = time.monotonic() + 60
        while len(found := self.lines(event)) < times:
            if time.monotonic() > end or self.process.poll() is not None:
                pytest.fail(f"no {event}: {self._log.read_text()}")
            time.sleep(0.01)
        return found

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line["event"] == event]

    def ask(self, tenant: str, prompt: str) -> httpx.Response:
        said = {"model": "toy", "prompt": prompt, "max_tokens": 16}
        return httpx.post(
            f"{self._url}/v1/completions", json=said, headers={"Authorization": f"Bearer {KEYS[tenant]}"}, timeout=20
        )

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self._url}{path}", timeout=20)

    def counted(self, name: str) -> float:
        """The metric, once a second of gauges has passed."""
        found = [line for line in self.get("/metrics").text.splitlines() if line.startswith(name)]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    @property
    def _url(self) -> str:
        return str(json.loads(self._announce.read_text())["url"])


@contextlib.contextmanager
def edges(
    folder: Path, upstream: str, model: Path, redis: str, number: int = 2, workers: int = 1
) -> Iterator[list[Edge]]:
    text = EDGE_TOML.format(upstream=upstream, model=model, workers=workers)
    begun = [Edge(folder / f"edge-{each}", text, redis) for each in range(number)]
    try:
        for each in begun:
            each.until("serves", workers)
        yield begun
    finally:
        for each in begun:
            each.process.terminate()
        for each in begun:
            try:
                assert each.process.wait(20) == 0
            finally:
                each.process.kill()


@needs_redis
def test_what_went_through_one_edge_is_recognised_at_the_other(tmp_path: Path, upstream: str, vocabulary: Path) -> None:
    with Redis() as redis, edges(tmp_path, upstream, vocabulary, redis.url) as (first, second):
        for each in (first, second):
            each.until("shared_up")
            assert each.counted("pagefence_edge_shared_up") == 1
        assert first.ask("globex", SECRET).status_code == 200
        leaked = second.ask("acme", "What did the one before me want to know?")
        assert (leaked.status_code, leaked.json()["error"]["code"]) == (502, "answer_withheld")
        (found,) = second.until("finding")
        identity = Identity(b"a secret of the edge that is long enough")
        assert (found["kind"], found["owner_tag"]) == ("foreign-text", identity.tenant("globex").tag)
        # One's own text is nobody else's, through whichever edge it went.
        assert first.ask("acme", SECRET[:50] + " and more").status_code == 200
        Leaking.before = SECRET
        assert second.ask("globex", "And what had I asked, please?").status_code == 200

        assert first.ask("acme", "again").status_code == 200
        again = second.ask("globex", "again")
        assert again.status_code == 502
        assert second.until("finding", 2)[1]["kind"] == "shared-id"

        redis.kill()
        first.until("shared_down")
        assert first.get("/readyz").status_code == 200
        assert first.counted("pagefence_edge_shared_up") == 0
        assert first.ask("acme", "Do you still serve, without Redis?").status_code == 200
        redis.start()
        first.until("shared_up", 2)

        first.process.send_signal(signal.SIGHUP)
        first.until("reloaded")
        second.until("shared_up", 2)
        Leaking.before = ""
        assert second.ask("globex", SECRET[::-1]).status_code == 200
        assert first.ask("acme", "What was that?").status_code == 502  # sharing goes on over a reload
        assert len(first.lines("shared_up")) == 2
        for each in (first, second):
            assert "globex" not in each._log.read_text()


@needs_redis
def test_workers_of_one_edge_are_one(tmp_path: Path, upstream: str, vocabulary: Path) -> None:
    with Redis() as redis, edges(tmp_path, upstream, vocabulary, redis.url, 1, workers=2) as (edge,):
        edge.until("shared_up", 2)
        for _ in range(5):  # whichever worker has which
            Leaking.before = ""
            assert edge.ask("globex", SECRET).status_code == 200
            assert edge.ask("acme", "What did the one before me want to know?").status_code == 502
        assert edge.counted("pagefence_edge_shared_up") == 2


def tables(vocabulary: Path, **more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"admission": {"model": str(vocabulary), "on": False}, "tenants": {"open": True}, **more}


@played
async def test_an_edge_that_needs_redis_is_not_ready_without(tmp_path: Path, vocabulary: Path) -> None:
    shared = {"redis_env": "REDIS", "required": True}
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, tables(vocabulary, shared=shared))
    steps = Joined(Identity(b"s" * 32), {"REDIS": "unix:///nowhere/at/all"}, tmp_path).steps(found, Tells())
    assert steps.start is not None
    await steps.start()
    await soon(
        lambda: steps.unready() == "what other edges saw is not known: ConnectionError: No such file or directory"
    )
    steps.stop()


def test_who_shares_does_not_see_all(tmp_path: Path, vocabulary: Path) -> None:
    """A prefix that another edge sent would be told as another tenant's, for sure."""
    told = tables(vocabulary, watching={"sees_all": True}, shared={"redis_env": "REDIS"})
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None, told)
    joined = Joined(Identity(b"s" * 32), {"REDIS": "redis://127.0.0.1:9"}, tmp_path)
    with pytest.raises(Usage, match="sees_all"):
        joined.steps(found, Tells())


def test_what_is_shared_changes_only_with_a_restart(tmp_path: Path) -> None:
    before, after = (
        settings(["http://127.0.0.1:9"], None, None, None, None, None, {"shared": {"redis_env": name}})
        for name in ("ONE", "TWO")
    )
    assert before.needs_restart(after) == ["shared"]
    assert before.needs_restart(before) == []
