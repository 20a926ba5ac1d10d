"""What the edge answers by itself: is it alive, is it ready, what did it count, and what a browser asks beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from pagefence.edge.front.connection import Connection
from pagefence.edge.mark import Mark
from pagefence.edge.metrics import CONTENT_TYPE
from pagefence.edge.refusal import Refusal, body_of
from pagefence.edge.wire.heads import RequestHead

_JSON = {"content-type": "application/json"}
_ASKED_BEFORE = "authorization, content-type"
_PLACES = ("/livez", "/readyz", "/metrics", "/server_info")


@dataclass(frozen=True, slots=True)
class Cors:
    """Which pages of a browser may ask. Empty: none. "*": all, without cookies, which this API does not use."""

    origins: tuple[str, ...] = ()
    max_age_s: int = 600

    def allows(self, origin: str) -> bool:
        """Whether a page from there may read answers."""
        return "*" in self.origins or origin in self.origins


@dataclass(frozen=True, slots=True)
class Side:
    """`unready`: reasons not to send requests here; empty when ready. `metrics`: None where they are not shown. `info`:
    what is told of the limits that are kept."""

    policy: Cors
    unready: Callable[[], list[str]]
    metrics: Callable[[], bytes] | None
    info: Callable[[], bytes] = lambda: b"{}"

    def answer(self, head: RequestHead, client: Connection, mark: Mark, known: bool) -> None:
        """One of our own paths, a preflight, or 404."""
        status, headers, content = self._made(head, known)
        mark.status = status
        client.send(status, {**headers, "x-request-id": mark.request_id, **self.cors(head)}, content)

    def cors(self, head: RequestHead) -> dict[str, str]:
        """Headers for the page that asked, if it may."""
        said = head.headers.get(b"origin")
        if said is None or not self.policy.origins:
            return {}
        origin = said.decode("latin-1")
        if not self.policy.allows(origin):
            return {"vary": "origin"}
        return {
            "access-control-allow-origin": "*" if "*" in self.policy.origins else origin,
            "access-control-expose-headers": "x-request-id, retry-after",
            "vary": "origin",
        }

    def _made(self, head: RequestHead, known: bool) -> tuple[int, dict[str, str], bytes]:
        if head.method == "OPTIONS" and known:
            return self._preflight(head)
        shown = head.path in _PLACES and (head.path != "/metrics" or self.metrics is not None)
        if not shown:
            return _refused(Refusal(404, "not_found", "there is nothing at this path; the API is under /v1."))
        if head.method not in ("GET", "HEAD"):
            status, headers, content = _refused(Refusal(405, "method_not_allowed", f"{head.path} is asked with GET."))
            return status, {**headers, "allow": "GET, HEAD"}, content
        if head.path == "/metrics":
            assert self.metrics is not None
            return 200, {"content-type": CONTENT_TYPE}, self.metrics()
        if head.path == "/server_info":
            return 200, _JSON, self.info()
        if head.path == "/livez":
            return 200, _JSON, b'{"alive":true}'
        reasons = self.unready()
        return 503 if reasons else 200, _JSON, msgspec.json.encode({"ready": not reasons, "reasons": reasons})

    def _preflight(self, head: RequestHead) -> tuple[int, dict[str, str], bytes]:
        origin = head.headers.get(b"origin", b"").decode("latin-1")
        if not self.policy.allows(origin):
            return _refused(Refusal(405, "method_not_allowed", "this origin may not ask here (cors.origins)."))
        asked = head.headers.get(b"access-control-request-headers", b"").decode("latin-1")
        named = [name.strip() for name in asked.split(",") if name.strip()]
        return 204, {
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": ", ".join(named) if named else _ASKED_BEFORE,
            "access-control-max-age": str(self.policy.max_age_s),
        }, b""  # fmt: skip


def _refused(refusal: Refusal) -> tuple[int, dict[str, str], bytes]:
    return refusal.status, _JSON, body_of(refusal)
