"""Alerts: whatever is wrong with one, it is counted, and the next has its turn."""

from __future__ import annotations

import asyncio

import pytest

from pagefence.edge import alerts
from pagefence.edge.alerts import Alerts


def test_an_address_that_is_none_fails_each_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line end at the end of a variable: httpx says so with an error that is none of its HTTP errors."""
    counted: list[str] = []

    async def put() -> None:
        alerting = Alerts("http://127.0.0.1:9/hook\n", counted.append)
        alerting.put(b"{}")
        alerting.put(b"{}")
        assert alerting._task is not None
        await alerting._task

    monkeypatch.setattr(alerts, "_FIRST_WAIT_S", 0.0)
    asyncio.run(put())
    assert counted == ["failed", "failed"]
