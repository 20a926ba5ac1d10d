"""A process of the edge: settings that are refused begin nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pagefence.edge import worker
from pagefence.edge.command import settings
from pagefence.edge.metrics import Meters, families
from pagefence.edge.passing import passing
from pagefence.edge.serve import Build
from pagefence.edge.worker import Worker
from pagefence.mistakes import Usage


def test_what_a_refused_reload_made_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would end it: figures would be read, and other edges heard, as often as it was tried."""
    begun = []

    async def start() -> None:
        begun.append("steps")

    def refuses(wanted: bool) -> None:
        raise Usage("no OpenTelemetry")

    monkeypatch.setattr(worker, "telemetry", refuses)
    found = settings(["http://127.0.0.1:9"], None, None, None, None, None)
    build = Build(lambda: found, lambda settings, tells: replace(passing(), start=start))
    made = Worker(found, build, Meters(families(1), 1), 0)
    made._log = cast(Any, SimpleNamespace(line=None))
    with pytest.raises(Usage):
        asyncio.run(made._built(found))
    assert begun == []
