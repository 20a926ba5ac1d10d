"""A fleet is reached as it has to be: with an authority of one's own, a client certificate, a proxy, another try."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvicorn
from cryptography.hazmat.primitives import serialization
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pagefence.fleet import Fleet, FleetFacts, Keys, Target
from pagefence.fleet.describe import describe
from pagefence.fleet.facts import SINGLE
from pagefence.fleet.target import Tls
from pagefence.mistakes import Usage
from tests.probes.toy import served

SOUND = {"engine": "pagefence", "max_total_num_tokens": 2560, "context_length": 2048, "disaggregation_mode": "null"}


def ask(target: Target, timeout_s: float = 10.0) -> FleetFacts:
    async def go() -> FleetFacts:
        async with Fleet(target, Keys("ka", "kb", "admin-key"), timeout_s) as fleet:
            return await describe(fleet)

    return asyncio.run(go())


def saying(respond: Any) -> Starlette:
    async def endpoint(request: Request) -> Response:
        made: Response = respond(request)
        return made

    return Starlette(routes=[Route("/server_info", endpoint)])


@dataclass(frozen=True)
class Authority:
    ca: trustme.CA
    folder: Path

    @property
    def file(self) -> Path:
        path = self.folder / "ca.pem"
        self.ca.cert_pem.write_to_path(str(path))
        return path

    def client(self) -> tuple[Path, Path]:
        issued = self.ca.issue_cert("client@example.org")
        certificate, key = self.folder / "client.pem", self.folder / "client.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(trustme.CA(), tmp_path)


@contextmanager
def encrypted(authority: Authority, wants_client: bool = False) -> Iterator[str]:
    """A sound node behind TLS at https://localhost; yields its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.ca.issue_cert("localhost").configure_cert(context)
    if wants_client:
        authority.ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    config = uvicorn.Config(saying(lambda request: JSONResponse(SOUND)), log_level="critical", lifespan="off")
    config.load()
    config.ssl = context
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            threading.Event().wait(0.01)
        try:
            yield f"https://localhost:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(5)


def problem(facts: FleetFacts) -> str:
    return " ".join(str(node.problem) for node in facts.everyone())


def test_a_node_whose_authority_is_named_is_read(authority: Authority) -> None:
    with encrypted(authority) as url:
        assert ask(Target(url, tls=Tls(authority.file))).nodes[0].pool.value == 2560


def test_a_node_whose_authority_is_not_named_is_not_trusted_and_says_what_to_do(authority: Authority) -> None:
    with encrypted(authority) as url:
        facts = ask(Target(url))
    assert "not trusted" in problem(facts)
    assert "--ca FILE" in problem(facts)


def test_a_node_that_wants_a_certificate_is_read_with_one_and_says_so_without(authority: Authority) -> None:
    with encrypted(authority, wants_client=True) as url:
        assert ask(Target(url, tls=Tls(authority.file, *authority.client()))).nodes[0].pool.value == 2560
        assert "--client-cert" in problem(ask(Target(url, tls=Tls(authority.file), retries=0)))


@pytest.mark.parametrize("broken", ["missing", "no PEM", "other key", "pass phrase"])
def test_what_is_wrong_with_a_client_certificate_is_said_with_its_file(broken: str, authority: Authority) -> None:
    certificate, key = authority.client()
    if broken == "missing":
        key.unlink()
    elif broken == "no PEM":
        key.write_text("this is no key")
    elif broken == "other key":
        authority.ca.issue_cert("somebody@example.org").private_key_pem.write_to_path(str(key))
    else:
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        encoding, shape = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        key.write_bytes(loaded.private_bytes(encoding, shape, serialization.BestAvailableEncryption(b"sesame")))
    with pytest.raises(Usage, match=r"client\.key"):
        Tls(authority.file, certificate, key).context()


def test_a_proxy_is_asked_in_the_place_of_the_node() -> None:
    asked: list[str] = []

    def proxy(request: Request) -> Response:
        asked.append(str(request.url))
        return JSONResponse(SOUND)

    async def any_path(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        await proxy(request)(scope, receive, send)

    with served(any_path) as url:
        facts = ask(Target("http://node.invalid:1234", proxy=url))
    assert facts.nodes[0].pool.value == 2560
    assert asked


@pytest.mark.parametrize(("retries", "read"), [(1, True), (0, False)])
def test_a_node_that_is_overloaded_once_is_asked_again_if_it_may_be(retries: int, read: bool) -> None:
    calls: list[int] = []

    def respond(request: Request) -> Response:
        calls.append(1)
        return JSONResponse({}, 503) if len(calls) == 1 else JSONResponse(SOUND)

    with served(saying(respond)) as url:
        facts = ask(Target(url, retries=retries))
    found = facts.everyone()[0]
    assert (found.pool.value == 2560) is read
    assert len(calls) == (2 if read else 1)
    assert read or "503" in problem(facts)


def test_figures_are_read_with_the_administrators_key() -> None:
    seen: list[str] = []

    def respond(request: Request) -> Response:
        seen.append(request.headers["authorization"])
        return JSONResponse(SOUND)

    with served(saying(respond)) as url:
        ask(Target(url))
    assert set(seen) == {"Bearer admin-key"}


@pytest.mark.parametrize(("status", "open_api"), [(200, True), (401, False), (503, None)])
def test_whether_an_api_is_open_is_asked_without_a_key(status: int, open_api: bool | None) -> None:
    async def models(request: Request) -> Response:
        return JSONResponse({"data": []}, 200 if "authorization" in request.headers else status)

    async def info(request: Request) -> Response:
        return JSONResponse(SOUND)

    with served(Starlette(routes=[Route("/server_info", info), Route("/v1/models", models)])) as url:
        facts = ask(Target(None, workers=(url,)))
    assert facts.nodes[0].open_api is open_api


def test_a_worker_of_its_own_is_read_behind_its_router_and_contradicts_its_declaration() -> None:
    def respond(request: Request) -> Response:
        return JSONResponse(SOUND | {"disaggregation_mode": "null"})

    with (
        served(saying(respond)) as url,
        served(saying(lambda r: JSONResponse(SOUND | {"role": "prefill", "disaggregation_mode": "prefill"}))) as other,
    ):
        facts = ask(Target("http://127.0.0.1:9", workers=(url, other)))
    assert facts.nodes[0].role == SINGLE
    assert facts.nodes[0].problem is None
    assert "says that it is prefill" in str(facts.nodes[1].problem)
