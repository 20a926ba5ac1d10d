"""A log is read once, whatever its shape; what cannot be used is counted and named."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path

import pytest

from pagefence.mistakes import Usage
from pagefence.probes.evidence import ProbeResult
from pagefence.probes.latency.fields import Fields, fields, moment
from pagefence.probes.latency.log import LONGEST_LINE, Read, points
from pagefence.probes.latency.offline import Source, from_log, source
from pagefence.probes.latency.points import Point
from pagefence.probes.latency.tally import Floors
from tests.probes.latency.test_findings import PHYSICS, honest

OTEL = {
    "gen_ai.request.model": "m",
    "gen_ai.usage.input_tokens": 1000,
    "gen_ai.usage.cache_read.input_tokens": 64,
    "gen_ai.response.time_to_first_chunk": 0.5,
    "timestamp": "2026-09-09T10:00:00Z",
}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def read_all(path: Path, how: Fields | None = None) -> tuple[list[Point], Read]:
    read = Read()
    return list(points(path, how or Fields(), read, lambda done, size: None)), read


def record(point: Point) -> dict[str, object]:
    return {"prompt_tokens": point.tokens, "cached_tokens": point.cached_tokens, "ttft_ms": point.ttft_s * 1000}


def judged(path: Path, **more: object) -> ProbeResult:
    return from_log(Source(Floors(PHYSICS), path, **more), path, lambda what, done, size: None)  # type: ignore[arg-type]


def test_opentelemetry_names_are_understood_flat_and_as_attributes(tmp_path: Path) -> None:
    found, _ = read_all(write(tmp_path / "a.jsonl", OTEL, {"attributes": OTEL, "time": 1789000000}))
    assert [(p.uncached_tokens, p.cached_tokens, p.ttft_s) for p in found] == [(936, 64, 0.5)] * 2
    assert [p.at for p in found] == [1788948000.0, 1788948000.0]


def test_nested_usage_csv_and_gzip_say_the_same(tmp_path: Path) -> None:
    nested = {"usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 2}}, "ttft_ms": 250}
    plain = write(tmp_path / "a.jsonl", nested)
    table = write(tmp_path / "b.csv", "prompt_tokens,cached_tokens,ttft_ms", "10,2,250")
    packed = tmp_path / "c.gz"
    packed.write_bytes(gzip.compress(table.read_bytes()))
    assert {(p.uncached_tokens, p.ttft_s) for f in (plain, table, packed) for p in read_all(f)[0]} == {(8, 0.25)}


def test_bad_lines_are_counted_by_reason_and_the_rest_is_used(tmp_path: Path) -> None:
    good = {"prompt_tokens": 10, "ttft_s": 1}
    path = write(
        tmp_path / "a.jsonl",
        good,
        "{no json",
        "[1]",
        {"ttft_s": 1},
        {"prompt_tokens": 10},
        {"prompt_tokens": -1, "ttft_s": 1},
        {"prompt_tokens": 10, "ttft_s": "soon"},
        {"prompt_tokens": 10, "ttft_s": 1, "cached_tokens": 11},
        "x" * (LONGEST_LINE * 2 + 5),
        {**good, "error.type": "timeout"},
        {**good, "status": 503},
        "",
        good,
    )
    found, read = read_all(path)
    assert len(found) == read.used == 2
    assert (sum(read.bad.values()), len(read.bad), read.failed) == (8, 8, 2)
    assert read.first["is no JSON"] == 2
    assert read.too_many_bad


def test_a_log_with_too_many_bad_lines_is_inconclusive_and_names_the_reason(tmp_path: Path) -> None:
    lines: list[object] = [record(p) for p in honest()]
    assert judged(write(tmp_path / "a", *lines)).evidence == ()
    result = judged(write(tmp_path / "b", *lines, "{broken", "{broken"))
    assert [e.check for e in result.evidence] == ["lines"]
    assert "is no JSON" in result.evidence[0].what
    assert result.claim is None


def test_a_short_circuit_in_a_log_is_corrupt_with_its_line(tmp_path: Path) -> None:
    odd = Point(2048, 0.01)
    result = judged(write(tmp_path / "a", *[record(p) for p in [*honest(), odd]]))
    assert [(str(e.kind), e.where) for e in result.evidence] == [("CORRUPT", "line 49")]


def test_without_cached_tokens_it_is_a_doubt_unless_nothing_is_ever_cached(tmp_path: Path) -> None:
    lines = [{"prompt_tokens": p.tokens, "ttft_s": p.ttft_s} for p in [*honest(), Point(2048, 0.01)]]
    path = write(tmp_path / "a", *lines)
    assert {str(e.kind) for e in judged(path).evidence} == {"INCONCLUSIVE"}
    assert [str(e.kind) for e in judged(path, no_cache=True).evidence] == ["CORRUPT"]


def test_an_empty_log_and_one_that_breaks_off_are_inconclusive(tmp_path: Path) -> None:
    assert [str(e.kind) for e in judged(write(tmp_path / "a")).evidence] == ["INCONCLUSIVE"]
    whole = gzip.compress("".join(json.dumps(record(p)) + "\n" for p in honest() * 40).encode())
    (tmp_path / "b.gz").write_bytes(whole[: len(whole) // 2])
    assert any("breaks off" in e.what for e in judged(tmp_path / "b.gz").evidence)


def test_only_lines_with_a_value_count(tmp_path: Path) -> None:
    path = write(tmp_path / "a", OTEL, {**OTEL, "gen_ai.request.model": "other"})
    found, read = read_all(path, fields({"only": "gen_ai.request.model=m"}))
    assert (len(found), read.others) == (1, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ttft_field": "latency"}, "has no unit"),
        ({"ttft_unit": "minutes"}, "is none of s, ms"),
        ({"only": "model"}, "is no FIELD=VALUE"),
    ],
)
def test_fields_that_say_too_little_are_usage_errors(given: dict[str, str | None], said: str) -> None:
    with pytest.raises(Usage, match=said):
        fields(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ttft_unit": "s"}, "add --log"),
        ({"log": Path("x"), "prometheus": "http://p"}, "two sources"),
        ({"log": Path("x"), "url": ["http://r"]}, "no fleet is asked"),
        ({"prometheus": "ftp://p"}, "no URL"),
        ({"no_prefix_cache": True}, "goes with --log"),
    ],
)
def test_sources_that_do_not_fit_together_are_usage_errors(given: dict[str, object], said: str) -> None:
    with pytest.raises(Usage, match=said):
        source(given, {}, {})


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="cannot read"):
        read_all(tmp_path / "none")


@pytest.mark.parametrize("value", [1789000000, 1789000000000, 1789000000000000, 1789000000000000000, "1789000000"])
def test_the_unit_of_a_moment_shows_in_its_size(value: object) -> None:
    assert moment(value) == pytest.approx(1789000000.0)


@pytest.mark.parametrize("value", [None, True, "yesterday", -5, 12, [1]])
def test_what_is_no_moment_is_none(value: object) -> None:
    assert moment(value) == 0.0


@pytest.mark.parametrize(
    "line",
    [
        "100,0.5," + "y" * 200_000,  # a column that Python's reader refuses
        "100\r5,0.5,x",  # a line end that is none
        "100,0.5",
    ],
    ids=["long column", "stray line end", "short"],
)
def test_a_table_line_that_no_reader_takes_is_counted_and_the_next_one_is_used(tmp_path: Path, line: str) -> None:
    found, read = read_all(write(tmp_path / "a.csv", "prompt_tokens,ttft_s,x", line, "100,0.5,x"))
    assert len(found) == 1
    assert read.bad == {"has another number of columns than the first line": 1}


def test_a_first_line_that_no_reader_takes_makes_no_line_usable(tmp_path: Path) -> None:
    found, read = read_all(write(tmp_path / "a.csv", "prompt_tokens,ttft_s," + "y" * 200_000, "100,0.5,x"))
    assert not found
    assert read.too_many_bad


def test_a_number_that_no_float_holds_is_no_number(tmp_path: Path) -> None:
    found, read = read_all(write(tmp_path / "a", '{"prompt_tokens": 1' + "0" * 400 + ', "ttft_s": 1}', OTEL))
    assert len(found) == 1
    assert sum(read.bad.values()) == 1


def test_a_packed_log_that_is_damaged_inside_breaks_off(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"".join(json.dumps(OTEL | {"n": n}).encode() + b"\n" for n in range(200))))
    packed[30] ^= 0xFF
    packed[31] ^= 0x55
    (tmp_path / "a.gz").write_bytes(packed)
    _, read = read_all(tmp_path / "a.gz")
    assert read.broke is not None


def test_json_lines_behind_a_byte_order_mark_are_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + json.dumps(OTEL).encode() + b"\n")
    assert len(read_all(tmp_path / "a")[0]) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_like_a_file(tmp_path: Path, packed: bool) -> None:
    raw = (json.dumps(OTEL) + "\n").encode() * 3
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(raw) if packed else raw,))
    writer.start()
    assert len(read_all(pipe)[0]) == 3
    writer.join()
