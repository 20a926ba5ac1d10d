"""What the edge costs, beside LiteLLM's proxy and sglang-router, in front of one and the same upstream.

    python -m bench.edge [--seconds 8] [--rounds 3] [--write FILE] [--only edge,router] [--config edge.toml]

First plain answers: nginx gives a constant one, wrk asks with 200-token prompts at 1, 16 and 128 connections. Then
streams: an upstream drips 200 chunks, 5 ms apart; the time to the first chunk and the processor time for each chunk.
Everybody has one worker process. Proxies take turns within a round, and medians over the rounds are shown; `added` is
the difference of medians to asking the upstream directly. Processor time is what the processes used, user and
system: of all figures it suffers least from what else the machine does. Sets its peers up (`bench.edge_peers`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import edge_peers
from bench.edge_stream import Timed, streams
from bench.load import free_port
from bench.peers import CannotSetUp
from bench.processes import Tree
from bench.stats import median, quantile
from bench.table import figure, markdown, text

CONNECTIONS = (1, 16, 128)
CHUNKS, GAP_S = 200, 0.005
MODEL = "m"
_WAIT_S = 240.0
_OFFLINE = {
    "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # it listens on loopback, for minutes
}
_ANSWER = (
    '{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",'
    '"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":1,"total_tokens":201}}'
)
_NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; client_max_body_size 32m;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e; default_type application/json;
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 '{answer}'; }} }}
}}
"""
_WRK = """
wrk.method = "POST"
wrk.body = [==[{body}]==]
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer sk-bench"
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


class Measured(dict[tuple[str, str], list[Row]]):
    """Rows of all rounds by proxy and load."""

    def of(self, who: str, load: str, name: str) -> float | None:
        """The median over the rounds."""
        return median([getattr(row, name) for row in self.get((who, load), [])])


def body(words: int = 200, stream: bool = False) -> str:
    """A chat request with a prompt of about so many tokens."""
    more = ',"stream":true' if stream else ""
    return f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"{"word " * words}"}}],"max_tokens":16{more}}}'


def command(who: str, port: int, upstream: int, folder: Path, config: Path | None) -> list[str]:
    """How a proxy is started."""
    url = f"http://127.0.0.1:{upstream}"
    if who == "edge":
        more = ["--config", str(config)] if config else []
        return [sys.executable, "-m", "pagefence", "edge", "--upstream", url, "--port", str(port), *more]
    if who == "router":
        start = [str(edge_peers.router()), "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
        return [
            *start,
            "--port",
            str(port),
            "--worker-urls",
            url,
            "--policy",
            "round_robin",
            "--log-level",
            "error",
            "--prometheus-port",
            str(free_port()),
        ]
    file = folder / f"litellm-{upstream}.yaml"
    parameters = f"{{model: openai/{MODEL}, api_base: {url}/v1, api_key: none}}"
    file.write_text(f"model_list:\n  - {{model_name: {MODEL}, litellm_params: {parameters}}}\n")
    return [str(edge_peers.litellm()), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]


@contextlib.contextmanager
def started(name: str, line: Sequence[str], port: int, folder: Path, path: str) -> Iterator[Tree]:
    """A process that answers at its port. Raises CannotSetUp with the end of its log."""
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    tree = Tree(list(line), {**kept, **_OFFLINE}, folder / f"{name}.log")
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
        f"http://127.0.0.1:{port}{path}", body(5, stream).encode(), {"content-type": "application/json"}
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
        f"authorization: Bearer sk-bench\r\ncontent-length: {len(asked)}\r\n\r\n"
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


def measure(who: Sequence[str], rounds: int, seconds: float, config: Path | None, folder: Path) -> Measured:
    """Everything, with every proxy that is named; "direct" is always there."""
    measured, script = Measured(), folder / "post.lua"
    script.write_text(_WRK.format(body=body()))
    plain, drip = free_port(), free_port()
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder, port=plain, answer=_ANSWER))
    nginx = [str(edge_peers.tool("nginx")), "-e", str(folder / "nginx.log"), "-c", str(folder / "nginx.conf")]
    dripping = [sys.executable, "-m", "bench.edge_stream", str(drip), str(CHUNKS), str(GAP_S)]
    chat = "/v1/chat/completions"
    with contextlib.ExitStack() as running:
        running.enter_context(started("nginx", nginx, plain, folder, chat))
        running.enter_context(started("dripping", dripping, drip, folder, chat))
        ports: dict[str, tuple[int, int, Tree | None, Tree | None]] = {"direct": (plain, drip, None, None)}
        for each in who:
            pair: list[tuple[int, Tree]] = []
            for kind, upstream in (("plain", plain), ("drip", drip)):
                port = free_port()
                _say(f"{each}: starting in front of {kind}")
                line = command(each, port, upstream, folder, config)
                pair.append((port, running.enter_context(started(f"{each}-{kind}", line, port, folder, chat))))
            ports[each] = (pair[0][0], pair[1][0], pair[0][1], pair[1][1])
        for number in range(rounds):
            for each, (port, drip_port, tree, drip_tree) in ports.items():
                _say(f"round {number + 1} of {rounds}: {each}")
                for connections in CONNECTIONS:
                    wrk(port, connections, 1, script, tree)  # warm
                    row = wrk(port, connections, seconds, script, tree)
                    measured.setdefault((each, f"{connections}"), []).append(row)
                for at_once in (1, 16):
                    row = dripped(drip_port, at_once, 2, drip_tree)
                    measured.setdefault((each, f"stream {at_once}"), []).append(row)
    return measured


def tables(measured: Measured, who: Sequence[str]) -> list[tuple[list[str], list[list[str]]]]:
    """Plain answers, then streams; ratios are the edge to the others."""
    plain, streamed = list[list[str]](), list[list[str]]()
    for load in map(str, CONNECTIONS):
        for each in ("direct", *who):
            p50, base = measured.of(each, load, "p50_s"), measured.of("direct", load, "p50_s")
            p99, base99 = measured.of(each, load, "p99_s"), measured.of("direct", load, "p99_s")
            rate, ours = measured.of(each, load, "rate"), measured.of("edge", load, "rate")
            errors = sum(row.errors for row in measured.get((each, load), []))
            plain.append(
                [
                    f"{each}, {load}", figure(rate), figure(_less(p50, base, 1e3)), figure(_less(p99, base99, 1e3)),
                    figure(_times(measured.of(each, load, "cpu_s"), 1e6)), figure(_ratio(ours, rate)), str(errors),
                ]
            )  # fmt: skip
    for load in ("stream 1", "stream 16"):
        for each in ("direct", *who):
            p50, base = measured.of(each, load, "p50_s"), measured.of("direct", load, "p50_s")
            cpu, ours = measured.of(each, load, "cpu_s"), measured.of("edge", load, "cpu_s")
            cells = [figure(_less(p50, base, 1e3)), figure(_times(cpu, 1e6)), figure(_ratio(cpu, ours))]
            streamed.append([f"{each}, {load.split()[1]}", *cells])
    return [
        (["plain, connections", "requests/s", "p50 added ms", "p99 added ms", "cpu us", "edge is x", "errors"], plain),
        (["streams at once", "first chunk added ms", "cpu us a chunk", "x edge"], streamed),
    ]


def _less(value: float | None, base: float | None, by: float) -> float | None:
    return None if value is None or base is None else (value - base) * by


def _times(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> int:
    """Parse, set up, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each run of wrk")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="edge,router,litellm", help="proxies, with commas")
    parser.add_argument("--config", type=Path, help="edge.toml for the edge; by default nothing but the proxy")
    parser.add_argument("--write", type=Path, help="a Markdown file for the tables")
    options = parser.parse_args()
    who = options.only.split(",")
    busy = os.getloadavg()[0]
    try:
        edge_peers.set_up(_say)
        with tempfile.TemporaryDirectory(prefix="pagefence-bench-") as folder:
            Path(folder).chmod(0o755)  # nginx' worker is nobody
            measured = measure(who, options.rounds, options.seconds, options.config, Path(folder))
    except CannotSetUp as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    said = f"{os.cpu_count()} cores, load {busy:.1f} before it began, {options.rounds} rounds of {options.seconds:g} s"
    shown = tables(measured, who)
    print("\n\n".join(text(head, rows) for head, rows in shown), f"\n{said}", sep="\n")
    if options.write is not None:
        parts = [f"Measured by `make bench-edge`: {said}.", *(markdown(head, rows) for head, rows in shown)]
        options.write.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
