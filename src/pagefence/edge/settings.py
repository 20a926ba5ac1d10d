"""Everything that an edge is told, checked. `edge_file.py` reads it from a file, `command.py` from flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagefence.edge.front.front import FrontLimits
from pagefence.edge.side import Cors
from pagefence.edge.upstream.address import Address
from pagefence.edge.upstream.balancer import Timeouts
from pagefence.edge.upstream.health import HealthPolicy
from pagefence.fleet.target import Tls
from pagefence.mistakes import Usage

PORT = 8780


@dataclass(frozen=True, slots=True)
class Settings:
    """Raises Usage for what cannot be.

    upstreams        who is asked; several are balanced
    workers          processes; each has its own connections and its part of `requests` and `tenant_requests`
    requests         in progress at once, in each worker; more are told 503
    tenant_requests  of one tenant; more are told 429
    answer_bytes     of an answer that is no stream, which is held until it is whole
    authorization    what upstream gets as Authorization; a client's never goes there
    models           names that may stand in the label model_name
    log_requests     a line for each request, not only for refused ones
    delay_s, drain_s after SIGTERM: still served, but not ready; then for replies in progress
    tables           what other steps are told, by the name of their table
    """

    upstreams: tuple[Address, ...]
    host: str = "127.0.0.1"
    port: int = PORT
    workers: int = 1
    front: FrontLimits = field(default_factory=FrontLimits)
    requests: int = 1024
    tenant_requests: int = 256
    answer_bytes: int = 64 * 1024 * 1024
    timeouts: Timeouts = field(default_factory=Timeouts)
    health: HealthPolicy = field(default_factory=HealthPolicy)
    upstream_connections: int = 1024
    upstream_keep_s: float = 4.0
    tls: Tls = field(default_factory=Tls)
    authorization: str | None = field(default=None, repr=False)
    cors: Cors = field(default_factory=Cors)
    models: tuple[str, ...] = ()
    metrics: bool = True
    traces: bool = False
    log_requests: bool = True
    delay_s: float = 0.0
    drain_s: float = 30.0
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.upstreams:
            raise Usage("an edge stands in front of something: name it with --upstream URL, or under [upstream] urls")
        twice = next((a.url for a in self.upstreams if self.upstreams.count(a) > 1), None)
        if twice is not None:
            raise Usage(f"upstream {twice} is named twice")
        if self.authorization is not None and not (self.authorization.isascii() and self.authorization.isprintable()):
            raise Usage("the key for upstream has a character that no header can hold")
        for origin in self.cors.origins:
            if (origin != "*" and not origin.startswith(("http://", "https://"))) or origin.endswith("/"):
                raise Usage(
                    f"cors.origins: {origin[:80]!r} is no origin; write https://HOST, without a slash at its end"
                )

    def needs_restart(self, new: Settings) -> list[str]:
        """What a reload cannot change."""
        fixed = ("host", "port", "workers", "metrics", "models", "front")
        changed = [name for name in fixed if getattr(self, name) != getattr(new, name)]
        return changed + ["shared"] * (self.tables.get("shared") != new.tables.get("shared"))
