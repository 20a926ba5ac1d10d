"""Hundreds of simulated SGLang nodes on one port: a process of its own, so that it takes no time from who asks.

Every address of 127.0.0.0/8 is this machine, so each node has an address of its own, as real ones have. The first part
of the path says what the node is: `/prefill` or `/decode` (and `8` for eight ranks), or `/silent`, which accepts and
never answers. Answers have the size of real ones: about 37 kB for one rank (SGLang 0.5.23).

    python -m tests.fleet.many                           prints the port, serves until standard input ends
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

POOL, CONTEXT = 10_240, 8_192
_FLAGS = {f"launch_flag_number_{i}": f"value-{i}" for i in range(520)}


def _info(role: str, ranks: int) -> bytes:
    state = _FLAGS | {"memory_usage": {"weight": 1.0, "kvcache": 2.0, "token_capacity": POOL}}
    return json.dumps(
        _FLAGS
        | {
            "version": "0.5.23",
            "disaggregation_mode": role,
            "disaggregation_transfer_backend": "mooncake",
            "disaggregation_enable_kv_checksum": True,
            "allow_auto_truncate": False,
            "max_total_num_tokens": POOL,
            "max_req_input_len": CONTEXT - 6,
            "page_size": 64,
            "kv_cache_dtype": "auto",
            "dp_size": ranks,
            "internal_states": [state] * ranks,
        }
    ).encode()


_MODELS = json.dumps({"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": CONTEXT}]}).encode()


def _answer(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


_ANSWERS = {
    f"/{role}{'' if ranks == 1 else ranks}{path}": _answer("200 OK", body)
    for role in ("prefill", "decode")
    for ranks in (1, 8)
    for path, body in (("/server_info", _info(role, ranks)), ("/v1/models", _MODELS))
}
_NONE = _answer("404 Not Found", b'{"detail":"Not Found"}')


class _Node(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.read = b""

    def data_received(self, data: bytes) -> None:
        self.read += data
        while b"\r\n\r\n" in self.read:
            head, _, self.read = self.read.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            if not path.startswith("/silent"):
                self.transport.write(_ANSWERS.get(path, _NONE))


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Node, "0.0.0.0", 0, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def many(nodes: int, ranks: int = 1) -> Iterator[list[str]]:
    """URLs of running nodes, the first half of them prefill."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.fleet.many"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert child.stdout is not None
    try:
        port = int(child.stdout.readline())
        kind = "" if ranks == 1 else str(ranks)
        roles = ("prefill" if i < nodes // 2 else "decode" for i in range(nodes))
        yield [f"http://127.1.{i // 250}.{i % 250 + 1}:{port}/{role}{kind}" for i, role in enumerate(roles)]
    finally:
        child.communicate()


if __name__ == "__main__":
    asyncio.run(_serve())
