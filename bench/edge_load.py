"""The two ends of `bench.edge`: nginx with a constant answer, wrk that asks it, streams, and what processes used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import edge_peers
from bench.edge_stream import Timed, streams
from bench.edge_who import ENVIRONMENT, KEY, MODEL
from bench.peers import CannotSetUp
from bench.processes import Tree
from bench.stats import median, quantile

CHUNKS, GAP_S = 200, 0.005
_WAIT_S = 240.0
# Honest, or watching would withhold it: an id of its own, and the prompt's tokens.
ANSWER = (
    '{"id":"$request_id","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",'
    '"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":1,"total_tokens":201}}'
)
WITHOUT = ANSWER.partition(',"usage"')[0] + "}"  # for prompts of any length
NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; client_max_body_size 32m;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e; default_type application/json;
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 '{answer}'; }} }}
  server {{ listen 127.0.0.1:{uncounted} backlog=4096; location / {{ return 200 '{without}'; }} }}
}}
"""
WRK = """
wrk.method = "POST"
wrk.body = [==[{body}]==]
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer {key}"
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One load on one proxy. `cpu_s`: processor seconds of its processes, for a request or a chunk."""

    rate: float
    p50_s: float
    p99_s: float
    cpu_s: float
    errors: int = 0


def body(words: int = 200, stream: bool = False) -> str:
    """A chat request with a prompt of about so many tokens."""
    more = ',"stream":true' if stream else ""
    return f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"{"word " * words}"}}],"max_tokens":16{more}}}'


@contextlib.contextmanager
def started(name: str, line: Sequence[str], port: int, folder: Path, path: str) -> Iterator[Tree]:
    """A process that answers at its port. Raises CannotSetUp with the end of its log."""
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    tree = Tree(list(line), {**kept, **ENVIRONMENT}, folder / f"{name}.log")
    try:
        end = time.monotonic() + _WAIT_S
        while not _answers(port, path, name.endswith("drip")):
            if not tree.alive or time.monotonic() > end:
                last = "\n".join(tree.log.read_text(errors="replace").splitlines()[-8:])
                raise CannotSetUp(f"{name} does not answer; its log ends with:\n{last}")
            time.sleep(0.2)
        yield tree
    finally:
        tree.end()


def _answers(port: int, path: str, stream: bool) -> bool:
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        body(stream=stream).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {KEY}"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wrk(port: int, connections: int, seconds: float, script: Path, tree: Tree | None) -> Row:
    """One run of wrk. Raises CannotSetUp when it fails."""
    before = _cpu_s(tree)
    found = subprocess.run(
        [
            str(edge_peers.tool("wrk")), "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "30s",
            "-s", str(script), f"http://127.0.0.1:{port}/v1/chat/completions",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    line = next((line for line in found.stdout.splitlines() if line.startswith("RESULT")), None)
    if line is None:
        raise CannotSetUp(f"wrk: {found.stdout[-300:]}{found.stderr[-300:]}")
    requests, took_us, p50, p99, errors = (int(word) for word in line.split()[1:])
    used = _cpu_s(tree) - before
    return Row(requests / (took_us / 1e6), p50 / 1e6, p99 / 1e6, used / max(1, requests), errors)


def dripped(port: int, at_once: int, times: int, tree: Tree | None) -> Row:
    """Streams. `p50_s`: to the first chunk; `rate`: chunks a second."""
    asked = body(stream=True).encode()
    request = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {KEY}\r\ncontent-length: {len(asked)}\r\n\r\n"
    ).encode() + asked
    before, began = _cpu_s(tree), time.perf_counter()
    found: list[Timed] = asyncio.run(streams(port, request, at_once, times))
    took, used, chunks = time.perf_counter() - began, _cpu_s(tree) - before, len(found) * CHUNKS
    first = [each.first_s for each in found]
    return Row(chunks / took, median(first) or 0.0, quantile(first, 0.99) or 0.0, used / chunks)


def _cpu_s(tree: Tree | None) -> float:
    used = 0.0
    for process in tree.members() if tree else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return used
