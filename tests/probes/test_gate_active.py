"""What `--active` asks over HTTP: small, harmless, and only when it was to be asked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse

from pagefence.engine.api.body import NEVER_SET
from pagefence.fleet import Fleet, Keys, Target
from pagefence.probes import Config, Examination, Kind, ProbeResult, examine
from pagefence.probes.gate import Policy
from pagefence.probes.gate.active import ask_active, forbidden_values
from pagefence.probes.gate.asked import FIELDS, edge_shown
from tests.probes.toy import KEYS, Toy, application, served, tokens_of


class Strict:
    """A router in front of a toy: refuses fields by name, and prompts over `limit`, before the toy sees them."""

    def __init__(self, toy: Toy, limit: int | None = None, refuses: tuple[str, ...] = FIELDS) -> None:
        self.toy, self.limit, self.refuses = toy, limit, refuses
        self.inner = application(toy)
        self.bodies: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/v1/completions":
            await self.inner(scope, receive, send)
            return
        raw = await Request(scope, receive).body()
        body = json.loads(raw)
        self.bodies.append(body)
        refused = self._refused(body)
        if refused is not None:
            await refused(scope, receive, send)
            return

        unread = [{"type": "http.request", "body": raw, "more_body": False}]

        async def again() -> Any:
            return unread.pop() if unread else await receive()

        await self.inner(scope, again, send)

    def _refused(self, body: dict[str, Any]) -> JSONResponse | None:
        named = next((name for name in self.refuses if name in body), None)
        if named is not None:
            error = {"message": f"{named} is set by the server", "type": "invalid_request_error", "param": named}
            return JSONResponse({"error": error}, 400)
        if self.limit is not None and len(tokens_of(body["prompt"])) > self.limit:
            error = {"message": f"maximum context length is {self.limit}", "code": "context_length_exceeded"}
            return JSONResponse({"error": error}, 400)
        return None


def gated(router: Strict, policy: Policy) -> ProbeResult:
    with served(router) as url:
        router.toy.url = url

        async def ask() -> Examination:
            examination = Examination(Config(("gate",), policy=policy))
            async with Fleet(Target(url), Keys(*KEYS), 10.0) as fleet:
                await examine(fleet, examination, lambda what, done, total: None, lambda line: None)
            return examination

        return asyncio.run(ask()).results()[0]


def broken(result: ProbeResult) -> set[tuple[str, Kind]]:
    return {(e.check, e.kind) for e in result.evidence}


def test_a_router_that_refuses_fields_and_keeps_its_limit_is_clean() -> None:
    router = Strict(Toy(), limit=300)
    assert broken(gated(router, Policy(edge_limit=300, active=True))) == set()
    assert all(body["max_tokens"] == 1 for body in router.bodies)
    assert len(router.bodies) == 1 + len(FIELDS) + 3
    assert {name for body in router.bodies for name in FIELDS if name in body} == set(FIELDS)
    assert sorted(router.toy.calls)[-1] == 300  # what is over the limit reached nobody


def test_nothing_is_sent_unless_it_was_to_be_asked() -> None:
    router = Strict(Toy(), limit=300)
    assert broken(gated(router, Policy(edge_limit=300))) == {("enforced", Kind.INCONCLUSIVE)}
    assert router.bodies == []


def test_every_field_that_our_own_api_never_takes_from_a_client_is_asked_of_others() -> None:
    # `request_id` is another name of `rid`, which some engines give out to clients themselves.
    assert set(FIELDS) == set(forbidden_values()) == NEVER_SET - {"request_id"}


def test_a_router_that_ignores_a_field_fails() -> None:
    router = Strict(Toy(), refuses=tuple(name for name in FIELDS if name != "cache_salt"))
    result = gated(router, Policy(active=True))
    assert broken(result) == {("topology", Kind.FAIL)}
    assert [e.what.split(":")[0] for e in result.evidence] == ["cache_salt"]


def test_an_edge_limit_that_nobody_keeps_fails() -> None:
    assert broken(gated(Strict(Toy()), Policy(edge_limit=300, active=True))) == {("enforced", Kind.FAIL)}


def test_a_fleet_that_does_not_count_tokens_shows_no_exact_limit() -> None:
    router = Strict(Toy(count_tokens=False), limit=300)
    assert broken(gated(router, Policy(edge_limit=300, active=True))) == {("enforced", Kind.INCONCLUSIVE)}


def test_without_a_router_or_permission_nothing_is_shown() -> None:
    async def ask(target: Target, keys: Keys) -> str | None:
        async with Fleet(target, keys, 2.0) as fleet:
            found = await ask_active(fleet, 300)
        assert not edge_shown(found, 300)
        return found.obstacle

    assert "no router" in str(asyncio.run(ask(Target(None, ("http://p",)), Keys())))
    with served(Strict(Toy())) as url:
        assert "HTTP 401" in str(asyncio.run(ask(Target(url), Keys())))
    with served(Starlette()) as url:
        assert "HTTP 404" in str(asyncio.run(ask(Target(url), Keys())))


def test_the_values_are_fresh_and_name_nobody() -> None:
    first, second = forbidden_values(), forbidden_values()
    assert tuple(first) == FIELDS
    for name in ("bootstrap_room", "rid", "cache_salt"):
        assert first[name] != second[name]
    assert first["bootstrap_host"] == "192.0.2.1"
