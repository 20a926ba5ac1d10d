"""What is noted of a request: a line, counters, a span; none of them names anybody or holds text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pagefence.edge.call import Tenant
from pagefence.edge.logs import Log
from pagefence.edge.mark import Mark, Recorder
from pagefence.edge.metrics import Family, Meters, families
from pagefence.edge.telemetry import spans, telemetry
from pagefence.edge.turns import Turns


def lines_of(write: Callable[[Log], None]) -> list[dict[str, Any]]:
    read, end = os.pipe()
    log = Log(file=end)
    write(log)
    log.close()
    os.close(end)
    with os.fdopen(read, "rb") as file:
        return [json.loads(line) for line in file]


def test_a_line_tells_how_a_request_ended() -> None:
    meters = Meters(families(1), 1)

    def write(log: Log) -> None:
        recorder = Recorder(meters.row(0), log, True)
        mark = recorder.begin("edge-1")
        mark.operation, mark.tenant, mark.status, mark.code = "chat/completions", "tag", 429, "too_many_requests"
        recorder.end(mark)

    (line,) = lines_of(write)
    assert line["event"] == "request"
    assert (line["request_id"], line["tenant"], line["status"], line["code"]) == (
        "edge-1", "tag", 429, "too_many_requests",
    )  # fmt: skip


def test_a_line_without_fields_is_json_too() -> None:
    (line,) = lines_of(lambda log: log("shared_up"))
    assert line["event"] == "shared_up"


def test_with_requests_off_only_what_went_wrong_is_said() -> None:
    def write(log: Log) -> None:
        recorder = Recorder(Meters(families(1), 1).row(0), log, False)
        for code in (None, "overloaded"):
            mark = recorder.begin("edge-1")
            mark.operation, mark.status, mark.code = "completions", 200, code
            recorder.end(mark)

    assert [line.get("code") for line in lines_of(write)] == ["overloaded"]


def test_an_error_of_ours_is_said_without_its_words() -> None:
    def write(log: Log) -> None:
        recorder = Recorder(Meters(families(1), 1).row(0), log, False)
        try:
            raise ValueError("a prompt")
        except ValueError as error:
            recorder.broke(recorder.begin("edge-1"), error)

    (line,) = lines_of(write)
    assert line["kind"] == "ValueError"
    assert "test_proxy_records.py" in line["place"]
    assert "a prompt" not in json.dumps(line)


def test_rows_of_workers_are_added_up_and_unknown_labels_are_other() -> None:
    family = Family("x_total", "counter", "x", (("kind", ("a", "other")),))
    times = Family("y_seconds", "histogram", "y", (), (1.0, 2.0))
    meters = Meters((family, times), 2)
    meters.row(0).add("x_total", "a")
    meters.row(1).add("x_total", "a", by=2)
    meters.row(1).add("x_total", "whatever a client says")
    for seconds in (0.5, 1.0, 1.5, 9.0):
        meters.row(1).histograms("y_seconds")(seconds)
    text = meters.text().decode()
    assert 'x_total{kind="a"} 3.0' in text
    assert 'x_total{kind="other"} 1.0' in text
    assert "whatever" not in text
    assert [f'y_seconds_bucket{{le="{le}"}} {count}' in text for le, count in (("1.0", 2.0), ("2.0", 3.0))] == [
        True
    ] * 2
    assert "y_seconds_count 4.0" in text
    assert "y_seconds_sum 12.0" in text


class Tracer:
    """What OpenTelemetry's tracer is asked for."""

    def __init__(self) -> None:
        self.name, self.attributes, self.times = "", dict[str, object](), dict[str, int]()

    def start_span(self, name: str, start_time: int) -> Tracer:
        self.name, self.times["start"] = name, start_time
        return self

    def set_attribute(self, name: str, value: object) -> None:
        self.attributes[name] = value

    def end(self, end_time: int) -> None:
        self.times["end"] = end_time


def test_a_span_has_the_names_of_the_conventions_and_the_times_of_the_request() -> None:
    tracer = Tracer()
    mark = Mark("edge-1", began=10.0, operation="chat/completions", model="m", status=200, first_byte_at=10.5)
    spans(tracer)(mark, 2.0)
    assert tracer.name == "chat m"
    assert tracer.attributes["gen_ai.operation.name"] == "chat"
    assert tracer.attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.5)
    assert "error.type" not in tracer.attributes
    assert tracer.times["end"] - tracer.times["start"] == 2_000_000_000
    assert telemetry(False) is None


def test_turns_come_back() -> None:
    turns, one = Turns(2, 1), Tenant("one", "", "t")
    other = replace(one, name="other")
    assert turns.take(one) is None
    refusal = turns.take(one)
    assert refusal is not None
    assert refusal.status == 429
    assert turns.take(other) is None
    refusal = turns.take(replace(one, name="third"))
    assert refusal is not None
    assert refusal.status == 503
    turns.give(one)
    assert turns.take(one) is None
