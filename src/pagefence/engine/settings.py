"""What the operator decides, and what one worker process is told at its start."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from pagefence.protocol.messages import Role, WorkerRef

WORKER_ROLES: Final[tuple[Role, ...]] = ("prefill", "decode")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One fleet. Sizes in tokens, times in seconds.

    `..._pool_tokens` cap a worker's pool; without them it is what memory leaves, up to a full batch. `..._port`: of the
    first worker of that role, the others have those after it; 0 is a free one for each. `limit` is a declared limit
    below the context, enforced by the router (I8). `shutdown_s`: how long requests in flight may take once the fleet is
    told to end. `mode`: quantised has decode multiply by a file's 4- and 8-bit weights as they are; prefill dequantises
    them in either mode. `record`: a folder for recordings of every machine; they hold prompts. `transfer_host`: where
    prefill reaches decode's memory when `transfer` is not shared memory.
    """

    model: str
    model_name: str
    prefill_workers: int = 1
    decode_workers: int = 1
    mode: Literal["exact", "quantised"] = "exact"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    context: int = 2048
    page_size: int = 64
    prefill_pool_tokens: int | None = None
    decode_pool_tokens: int | None = None
    chunk_tokens: int = 256
    max_requests: int = 16
    max_in_flight: int = 256
    prefix_cache: bool = True
    threads: int = 2
    headroom: float = 1.25
    limit: int | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    prefill_port: int = 0
    decode_port: int = 0
    deadline_s: float = 600.0
    handoff_s: float = 300.0
    drain_s: float = 30.0
    heartbeat_s: float = 60.0
    shutdown_s: float = 30.0
    record: str | None = None
    transfer: Literal["shm", "mooncake"] = "shm"
    transfer_host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        """Raises ValueError that names the flag."""
        checks = (
            (self.context >= 2, "--context must be at least 2 tokens"),
            (1 <= self.page_size <= 64, "--page-size must be 1 to 64 tokens"),
            (self.chunk_tokens >= self.page_size, "--chunk-tokens must be at least one page"),
            (self.chunk_tokens % max(self.page_size, 1) == 0, "--chunk-tokens must be a multiple of --page-size"),
            (1 <= self.prefill_workers <= 64, "--prefill-workers must be 1 to 64"),
            (1 <= self.decode_workers <= 64, "--decode-workers must be 1 to 64"),
            (1 <= self.max_requests <= 1024, "--max-requests must be 1 to 1024"),
            (1 <= self.max_in_flight <= 65536, "--max-in-flight must be 1 to 65536"),
            (0 <= self.shutdown_s <= 86400, "--drain-seconds must be 0 to 86400"),
            (1 <= self.threads <= 256, "--threads must be 1 to 256"),
            (1.0 <= self.headroom <= 100.0, "--headroom must be 1.0 to 100"),
            (self.limit is None or self.limit >= 2, "--limit must be at least 2 tokens"),
            (
                self.prefill_pool_tokens is None or self.prefill_pool_tokens >= 1,
                "--prefill-pool-tokens must be at least 1",
            ),
            (
                self.decode_pool_tokens is None or self.decode_pool_tokens >= 1,
                "--decode-pool-tokens must be at least 1",
            ),
        )
        for holds, message in checks:
            if not holds:
                raise ValueError(message)
        self._check_ports()

    def _check_ports(self) -> None:
        taken = {self.port: "--port"}
        for role in WORKER_ROLES:
            for port in self.ports(role):
                if port > 65535:
                    raise ValueError(f"--{role}-port is too high: the last {role} worker would have port {port}")
                if port and port in taken:
                    raise ValueError(f"port {port} is both {taken[port]}'s and --{role}-port's; workers count upwards")
                taken[port] = f"--{role}-port"

    @property
    def longest(self) -> int:
        """Tokens that prompt and answer may have together: the context, or the declared limit below it."""
        return min(self.context, self.limit or self.context)

    def url(self, port: int) -> str:
        """Where a port of this fleet answers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}"

    @property
    def workers(self) -> int:
        """How many there are, of both roles."""
        return self.prefill_workers + self.decode_workers

    def ports(self, role: Role) -> tuple[int, ...]:
        """The HTTP port of each worker of this role; 0: a free one."""
        first, count = (
            (self.prefill_port, self.prefill_workers) if role == "prefill" else (self.decode_port, self.decode_workers)
        )
        return tuple(first + i if first else 0 for i in range(count))

    def pool_tokens(self, role: Role) -> int | None:
        """The cap on the pool of a worker of this role."""
        return self.prefill_pool_tokens if role == "prefill" else self.decode_pool_tokens


class WorkerOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor tells one incarnation, over its standard input: nothing of it shows in a process list.

    `seat`: its place among all workers of the fleet, from 0. `memory_bytes`: what weights and pool may take together.
    """

    me: WorkerRef
    role: Role
    router: WorkerRef
    settings: Settings
    run_dir: str
    mac_key: bytes
    segment_token: bytes
    http_port: int
    seat: int
    memory_bytes: int
