"""Log lines: one event each, and nothing in them that a fleet or an operator would not want there."""

from __future__ import annotations

import msgspec
import pytest

from pagefence.fleet import Keys
from pagefence.watch.lines import lines


def said(as_json: bool, **fields: object) -> str:
    written: list[str] = []
    lines([Keys("sk-one", "sk-two", "sk-admin"), Keys("sk-other")], lambda: 0.0, as_json, written.append)(
        "ended", **fields
    )
    (line,) = written
    return line


def test_a_json_line_has_time_event_and_fields() -> None:
    line = msgspec.json.decode(said(True, run=7, seconds=1.5, verdict="CLEAN"))
    assert line == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "event": "ended",
        "run": 7,
        "seconds": 1.5,
        "verdict": "CLEAN",
    }


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("key", ["sk-one", "sk-two", "sk-admin", "sk-other"])
def test_a_key_that_an_error_quotes_is_taken_out_whosever_it_is(as_json: bool, key: str) -> None:
    assert key not in said(as_json, sentence=f"HTTP 401: {key} is no key")


def test_a_key_at_the_end_of_what_fits_is_taken_out_before_the_rest_is_cut_off() -> None:
    for before in range(490, 501):
        assert "sk-o" not in said(True, sentence="x" * before + "sk-other")


@pytest.mark.parametrize("as_json", [True, False])
def test_what_a_fleet_said_cannot_begin_a_line_or_fill_the_disk(as_json: bool) -> None:
    line = said(as_json, sentence="x\n1970 ended verdict=CLEAN \x1b[2J" + "y" * 10_000)
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 1000
