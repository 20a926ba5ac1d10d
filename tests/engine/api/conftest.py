"""A scripted fleet behind the real API, on a real socket; one server for the module, one script for each test."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from .scripted import KEYS, Running, ScriptedGateway, limited, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ScriptedGateway()) as running_server:
        yield running_server


@pytest.fixture
def fleet(server: Running) -> Running:
    gateway = server.gateway
    gateway.script, gateway.why_not = limited, ()
    gateway.jobs.clear()
    gateway.calls.clear()
    return server


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    """One for the module: to make one costs more than a hundred requests."""
    headers = {"Authorization": f"Bearer {KEYS['ann']}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=10) as made:
        yield made


@pytest.fixture
def ann(fleet: Running, client: httpx.Client) -> httpx.Client:
    return client
