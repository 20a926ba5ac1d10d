"""Seconds of what `make soak-edge` does for minutes, and that it sees what it is there to see."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.edge.soak.faults import FAULTS
from tests.edge.soak.run import Plan, soak, table

# By what each fault is seen. `grows` needs a slope, so it takes a minute.
SEEN = {
    "kept-too-early": "words of another",
    "ends-well-always": "wrong",
    "never-closed": "descriptors at rest",
    "grows": "memory grew",
    "cuts-when-it-ends": "lost while the edge ended",
    "miscounts": "/metrics says",
    "mixes-tenants": "isolation keys",
}


def soaked(plan: Plan, folder: Path) -> list[str]:
    outcome = asyncio.run(soak(plan, folder, lambda what, done, total: None))
    print(table(plan, outcome))
    return outcome.broken


def test_each_client_gets_its_own_words_and_nothing_is_lost_or_kept(tmp_path: Path) -> None:
    assert soaked(Plan(seconds=2, seed=1, clients=20), tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_minute_of_it(tmp_path: Path) -> None:
    assert soaked(Plan(seconds=60, seed=2, clients=100), tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_it_sees_that_something_is_wrong(fault: str, tmp_path: Path) -> None:
    plan = Plan(seconds=60 if fault == "grows" else 12, seed=3, clients=40, fault=fault)
    assert any(SEEN[fault] in each for each in soaked(plan, tmp_path))
