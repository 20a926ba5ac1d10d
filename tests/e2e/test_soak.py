"""A minute of what `make soak` does for fifteen."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from pagefence.ticker import Ticker
from tests.soak import Run, right_answers, soak, table

SECONDS = 60.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_minute_of_load_deaths_and_departures_costs_no_token_and_no_page(tmp_path: Path) -> None:
    run = Run()
    with Ticker(Console(stderr=True)) as tick:
        answers = right_answers(10, 1, tick)
        grown = soak(run, SECONDS, 1, answers, tmp_path, tick)
    print(table(run, grown, SECONDS))
    assert not run.broken
