"""Long prompts through the edge: how long its decision takes, what it holds, and whether others wait meanwhile.

Decision: from the last byte of the body to the request upstream, as the edge's own log says it for each request.
Peak: the most memory of its process at once, above what it had before. Beside it, in the same run, what the fastest
tokenizer that can be found takes to count the same text and nothing else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench import edge_admission, edge_peers
from bench.edge_who import KEY, MODEL, PLENTY, command, edge, edge_toml
from bench.load import free_port
from bench.processes import Tree
from bench.stats import median, quantile
from bench.table import figure
from pagefence import models
from pagefence.engine.model.tokenizer import Tokenizer

HEAD = ("long prompts", "tokens", "decision p50 ms", "p99 ms", "peak MiB", "x bare count")
LATE_HEAD = ("while another asks", "bodies", "answer p50 ms", "p99 ms", "longest ms")
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
_HEADERS = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
_MIB = 1024 * 1024

Start = Callable[[str, Sequence[str], int], contextlib.AbstractContextManager[Tree]]
"""Name, command line, port: a process that answers there."""


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt as a request body, how many tokens it has, and what counting them takes elsewhere (seconds of wall)."""

    body: bytes
    tokens: int
    fastest: str
    bare_s: float


@dataclass(frozen=True, slots=True)
class Decided:
    """Seconds of each decision, and bytes."""

    decisions: Sequence[float]
    peak: int


def text_of(tokens: int, rounds: int) -> Text:
    """Words, with what the fastest counter takes for them."""
    if str(edge_peers.counters()) not in sys.path:
        sys.path.append(str(edge_peers.counters()))
    tokenizer = Tokenizer.load(models.fetch())
    words = edge_admission.prose(tokens, tokenizer)
    counts = edge_admission.peers(words, tokenizer, rounds, slow=False)
    name, best = min(counts, key=lambda row: row[1].processor)  # others have a part in the wall
    exact = next(row.result for found, row in counts if found.startswith("tokenizers"))
    assert isinstance(exact, int)
    return Text(chat(words), exact, name, best.wall)


def chat(words: str) -> bytes:
    return msgspec.json.encode({"model": MODEL, "messages": [{"role": "user", "content": words}], "max_tokens": 16})


def ids(count: int) -> bytes:
    """A completion of token ids."""
    prompt = [100 + number * 7919 % 48_000 for number in range(count)]
    return msgspec.json.encode({"model": MODEL, "prompt": prompt, "max_tokens": 16})


def rows(sizes: Sequence[int], times: int, upstream: int, folder: Path, start: Start) -> Iterator[list[str]]:
    """A row for each way to decide, for each size."""
    for size in sizes:
        text = text_of(size, min(times, 3))
        yield [f"{text.fastest}, count alone", f"{text.tokens:,}", figure(text.bare_s * 1e3), "-", "-", "1"]
        for how, limit in (("bound", PLENTY), ("exact count", round(text.tokens * 1.3))):
            for scan in (False, True):
                name = f"edge, {how}, {'scan' if scan else 'no scan'}"
                port, toml = free_port(), edge_toml(folder / "long.toml", limit, scan=scan)
                line = edge(f"http://127.0.0.1:{upstream}", port, toml)
                with start(f"long-{how[:5]}-{scan}-{size}", line, port) as tree:
                    yield row(name, text.tokens, asked(tree, port, CHAT, text.body, times), text.bare_s)
                    if how == "bound":
                        given = asked(tree, port, COMPLETION, ids(size), times)
                        yield row(f"{name}, token ids", size, given, None)


def row(name: str, tokens: int, found: Decided, bare_s: float | None) -> list[str]:
    p50, p99 = median(found.decisions), quantile(found.decisions, 0.99)
    times = None if p50 is None or bare_s is None else p50 / bare_s
    ms = [figure(None if value is None else value * 1e3) for value in (p50, p99)]
    return [name, f"{tokens:,}", *ms, figure(found.peak / _MIB), figure(times)]


def asked(tree: Tree, port: int, path: str, body: bytes, times: int) -> Decided:
    """One after the other. Raises RuntimeError where the edge refuses: then nothing was measured."""
    pid = tree.process.pid
    before, seen = _memory(pid, "VmRSS"), len(_decisions(tree))
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for _ in range(times):
        _ask(connection, path, body)
    connection.close()
    end = time.monotonic() + 5
    while len(found := _decisions(tree)[seen:]) < times and time.monotonic() < end:
        time.sleep(0.05)  # a log line may come after its answer
    return Decided(found, _memory(pid, "VmHWM") - before)


def late_rows(seconds: float, upstream: int, folder: Path, start: Start) -> Iterator[list[str]]:
    """How long a question waits that the event loop alone answers, while bodies of 1 MiB come one after another."""
    port = free_port()
    loads = (
        ("nobody", CHAT, b""),
        ("text, 1 MiB", CHAT, chat(("the quick brown fox, " * 50_000)[:_MIB])),
        ("text with escapes, 1 MiB", CHAT, chat(('"the"\nquick\tbrown fox, ' * 50_000)[:_MIB])),
        ("token ids, 1 MiB", COMPLETION, ids(180_000)),
        ("token ids, a million", COMPLETION, ids(1_000_000)),
    )
    with start("late", command("edge", port, upstream, folder), port):
        for name, path, body in loads:
            sent, waits = late(port, path, body, seconds)
            ms = [figure(value * 1e3) for value in (median(waits) or 0.0, quantile(waits, 0.99) or 0.0, max(waits))]
            yield [name, str(sent), *ms]


def late(port: int, path: str, body: bytes, seconds: float) -> tuple[int, list[float]]:
    """Bodies that were sent meanwhile, and seconds of each answer of /livez."""
    stop, sent, problems = threading.Event(), [0], list[str]()

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            while not stop.is_set():
                _ask(connection, path, body)
                sent[0] += 1
        except (RuntimeError, OSError) as error:
            problems.append(str(error))

    sender = threading.Thread(target=send)
    if body:
        sender.start()
    waits, end = list[float](), time.monotonic() + seconds
    prober = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while time.monotonic() < end:
        began = time.perf_counter()
        prober.request("GET", "/livez")
        prober.getresponse().read()
        waits.append(time.perf_counter() - began)
        time.sleep(0.001)
    stop.set()
    if body:
        sender.join()
    if problems:
        raise RuntimeError(problems[0])
    return sent[0], waits


def _ask(connection: http.client.HTTPConnection, path: str, body: bytes) -> None:
    connection.request("POST", path, body, _HEADERS)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {said[:300]!r}")


def _decisions(tree: Tree) -> list[float]:
    found = []
    for line in tree.log.read_bytes().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            said = json.loads(line)
            if said.get("event") == "request" and "decision_s" in said:
                found.append(said["decision_s"])
    return found


def _memory(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
