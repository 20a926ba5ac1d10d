"""The edge that is soaked: a real `pagefence edge`, and what the kernel says of its processes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.edge.soak.clients import TENANTS
from tests.engine.model.test_tokenizer import small_vocabulary

READY_S = 90.0
LIMIT = 4096  # tokens that a prompt and its answer may have
_TEMPLATE = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
# Time is compressed: what takes minutes in production takes seconds here, and less in a run of seconds.
SETTINGS = """
[upstream]
urls = [{urls}]
keep = 1
timeouts = {{ connect = 1, first_byte = {first_byte}, idle = {idle}, total = {total} }}
health = {{ every = 0.5, timeout = 0.5, out = 0.2, longest = 1 }}
[listen]
workers = {workers}
[limits]
head = 10
body = 2
idle = 20
write = 2
[cors]
origins = {origins}
[log]
requests = false
[tenants]
file = "tenants.toml"
[policy]
engine = "vllm"
[admission]
model = "vocabulary.gguf"
default_new_tokens = 64
[capacity]
limit = {limit}
refresh = 2
stale = 8
"""


def write_model(path: Path) -> None:
    """A vocabulary and a chat template, which is all that an edge wants of a model."""
    import gguf

    vocabulary, merges = small_vocabulary()
    tokens = [*sorted(vocabulary, key=vocabulary.__getitem__), "<|endoftext|>"]
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 1) + [3])
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(len(tokens) - 1)
    writer.add_chat_template(_TEMPLATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_settings(
    folder: Path, urls: Sequence[str], workers: int = 1, origins: Sequence[str] = (), patience: float = 1.0
) -> Path:
    """edge.toml, tenants.toml and a vocabulary. `patience`: of the edge with its upstreams, 1 for a second or two."""
    write_model(folder / "vocabulary.gguf")
    keys = {name: f"sha256:{hashlib.sha256(key.encode()).hexdigest()}" for name, key in TENANTS.items()}
    (folder / "tenants.toml").write_text("".join(f'[tenant.{name}]\nkeys = ["{key}"]\n' for name, key in keys.items()))
    file = folder / "edge.toml"
    listed = ", ".join(f'"{url}"' for url in urls)
    times = {"first_byte": 1.5 * patience, "idle": patience, "total": 5 * patience}
    said = SETTINGS.format(urls=listed, workers=workers, limit=LIMIT, origins=json.dumps(list(origins)), **times)
    file.write_text(said)
    return file


@dataclass(frozen=True, slots=True)
class Sockets:
    """Connections as the kernel has them: of clients, and to upstreams."""

    clients: int
    upstreams: int


class Guard:
    """The process and its workers. `fault`: one of `tests.edge.soak.faults`, planted in it."""

    def __init__(
        self,
        folder: Path,
        settings: Path,
        upstream_ports: Sequence[int],
        fault: str | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self._announce, self.log = folder / "address.json", folder / "edge.log"
        self._ports = frozenset(upstream_ports)
        module = ["tests.edge.soak.faults", fault] if fault else ["pagefence"]
        command = [sys.executable, "-m", *module, "edge", "--config", str(settings), "--port", "0", *flags]
        environment = {**os.environ, "PAGEFENCE_EDGE_SECRET": "a secret of the soak that is long enough"}
        with self.log.open("wb") as out:
            self.process = subprocess.Popen([*command, "--announce", str(self._announce)], stderr=out, env=environment)

    async def ready(self, workers: int) -> None:
        """Every worker serves, and somebody can be asked."""
        async with asyncio.timeout(READY_S):
            while self.said("serves") < workers:
                if self.process.poll() is not None:
                    raise AssertionError(f"the edge ended: {self.log.read_text()[-2000:]}")
                await asyncio.sleep(0.05)
            self.port = int(json.loads(self._announce.read_text())["url"].rpartition(":")[2])

    @staticmethod
    def until(true: Callable[[], bool], within_s: float = 20.0) -> None:
        """Wait until it is so. Raises AssertionError."""
        end = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < end, "it never was so"
            time.sleep(0.05)

    def said(self, event: str) -> int:
        """How many lines of its log tell of this."""
        return self.log.read_text(errors="replace").count(f'"event":"{event}"')

    def pids(self) -> list[int]:
        """Those that serve."""
        children = [child.pid for child in psutil.Process(self.process.pid).children()]
        return children or [self.process.pid]

    def descriptors(self) -> int:
        return sum(psutil.Process(pid).num_fds() for pid in self.pids())

    def memory_mib(self) -> float:
        """What its processes have to themselves. Shared pages are those of the fork and of files."""
        infos = [psutil.Process(pid).memory_info() for pid in self.pids()]
        return float(sum(info.rss - info.shared for info in infos) / 2**20)

    def sockets(self) -> Sockets:
        """Open ones; what is closing counts no more."""
        clients = upstreams = 0
        for pid in self.pids():
            for each in psutil.Process(pid).net_connections("tcp"):
                if each.status == psutil.CONN_ESTABLISHED and each.raddr:
                    clients += each.laddr.port == self.port
                    upstreams += each.raddr.port in self._ports
        return Sockets(clients, upstreams)

    async def metrics(self) -> Metrics:
        """Of all workers: whoever answers adds them up."""
        url = f"http://127.0.0.1:{self.port}/metrics"

        def read() -> str:
            request = urllib.request.Request(url, headers={"connection": "close"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                return str(answer.read().decode())

        return Metrics(await asyncio.get_running_loop().run_in_executor(None, read))

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """At once, whatever it does."""
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            self.process.kill()
        self.process.wait()


class Metrics:
    """What /metrics said at one moment."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    def sum(self, name: str, **labels: str) -> float:
        """Over everything with these labels."""
        found = 0.0
        for line in self._lines:
            match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            said: dict[str, Any] = dict(re.findall(r'(\w+)="([^"]*)"', match[1] or "")) if match else {}
            if match and labels.items() <= said.items():
                found += float(match[2])
        return found


def idle_connections(port: int, count: int) -> list[socket.socket]:
    """Clients that say nothing."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
