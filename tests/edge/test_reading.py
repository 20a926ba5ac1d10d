"""A body is one JSON object in UTF-8 that nobody can read in two ways, or it is refused."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagefence.edge import reading
from pagefence.edge.reading import Limits, check_headers, read, read_object
from pagefence.edge.refusal import Refusal

LIMITS = Limits()
JSON = [(b"Content-Type", b"application/json")]
TREE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refused(raw: bytes, limits: Limits = LIMITS) -> Refusal:
    outcome = read_object(raw, limits)
    assert isinstance(outcome, Refusal), outcome
    return outcome


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(), TREE), st.booleans())
def test_every_json_object_is_read_as_what_it_is(body: dict[str, Any], ascii_only: bool) -> None:
    raw = json.dumps(body, ensure_ascii=ascii_only, indent=1).encode()
    assert read(raw, JSON, LIMITS) == body


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"a":1,"a":1}', "'a' comes twice"),
        (b'{"a":1,"\\u0061":2}', "'a' comes twice"),
        (b'{"x":[{"y":{"rid":1,"b":2,"rid":null}}]}', "'rid' comes twice"),
        (b'{"a":NaN}', "NaN is no JSON"),
        (b'{"a":-Infinity}', "-Infinity is no JSON"),
        (b'{"a":1e999}', "out of range"),
        (b'{"a":-1e999}', "out of range"),
        (b'{"a":' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"a":"\\ud800"}', "half a surrogate pair"),
        (b'{"a":"\\uDC00x"}', "half a surrogate pair"),
        (b'{"\\ud83d\\ud83d":1}', "half a surrogate pair"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8 (byte 6)"),
        (b'{"a":"\xc0\xaf"}', "not UTF-8"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "cannot be read as JSON"),
        (b"[{}]", "one JSON object"),
        (b'"a"', "one JSON object"),
        (b"null", "one JSON object"),
        (b"", "cannot be read as JSON"),
        (b"{}{}", "Extra data"),
        (b"{}\x00", "Extra data"),
        (b'{"a":"\n"}', "cannot be read as JSON"),
        (b"{'a':1}", "cannot be read as JSON"),
        (b'{"a":01}', "cannot be read as JSON"),
        (b'{"a":1,}', "cannot be read as JSON"),
        (b'{"a":1 /* b */}', "cannot be read as JSON"),
        (b'{"a":' + b"[" * 70 + b"]" * 70 + b"}", "more than 64 deep"),
        (b'{"a":' + b"[" * 40_000 + b"]" * 40_000 + b"}", "more than 64 deep"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "more than 50,000 objects and arrays"),
        (b'{"a":[' + b",".join([b"[]"] * 60_000) + b"]}", "more than 50,000 objects and arrays"),
        (b'{"a":[' + b",".join([b"{}"] * 60_000) + b"]}", "more than 50,000 objects"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_what_could_be_read_in_two_ways_is_refused(raw: bytes, said: str) -> None:
    refusal = refused(raw)
    assert (refusal.status, refusal.code) == (400, "invalid_json")
    assert said in refusal.message


@pytest.mark.parametrize("raw", [b'{"a":"\\ud83d\\ude42"}', b'{"a":"\\\\ud800"}', '{"a":"🙂"}'.encode()])
def test_whole_characters_pass_however_they_are_written(raw: bytes) -> None:
    assert read_object(raw, LIMITS) == json.loads(raw)


@pytest.mark.parametrize("filler", ["", "x" * 100_000])
def test_a_long_body_is_held_to_the_same_rules_as_a_short_one(filler: str) -> None:
    """Two ways lead to one judgement: what is the same when written again, and what has to be read name by name."""
    assert refused(b'{"f":"%s","a":1,"a":1}' % filler.encode()).code == "invalid_json"
    assert read_object(b'{"f":"%s","a":1.50, "b":"\\u0061"}' % filler.encode(), LIMITS) == {
        "f": filler,
        "a": 1.5,
        "b": "a",
    }


def test_depth_counts_structure_and_not_brackets_in_a_text() -> None:
    inside: Any = "[{" * 5000
    for _ in range(62):
        inside = [inside]
    raw = json.dumps({"a": inside, "b": [[]] * 500}).encode()
    assert isinstance(read_object(raw, LIMITS), dict)
    assert isinstance(read_object(json.dumps({"a": [[inside]]}).encode(), LIMITS), Refusal)


@pytest.mark.parametrize("code", ["a[0] = {x} ", 'a["b"] = "{" + "\\" + "[" ', "[" * 40, '\\"[{'])
def test_brackets_of_a_long_text_are_no_objects(code: str) -> None:
    body = {"messages": [{"role": "user", "content": code * 60_000}]}
    assert read_object(json.dumps(body).encode(), LIMITS) == body


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.text('a"\\[{]}', max_size=6), lambda of: st.lists(of) | st.dictionaries(st.text('"[{'), of)))
def test_objects_and_arrays_are_counted_as_a_reader_finds_them(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "_SLICE", 3)
        patched.setattr(reading, "_RARE", 1)
        assert reading._holders(json.dumps({"a": value}).encode()) == 1 + holders(value)


def holders(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + sum(map(holders, inside))


@pytest.mark.parametrize("nothing_else", [b"", b" ", b"\\u0061"])
def test_a_million_token_ids_are_read_as_they_stand(nothing_else: bytes) -> None:
    ids = list(range(1_000_000))
    raw = b'{"user":"%b","prompt":%b}' % (nothing_else, json.dumps(ids, separators=(",", ":")).encode())
    body = read_object(raw, LIMITS)
    assert isinstance(body, dict)
    assert body["prompt"] == ids


def test_a_body_may_be_as_large_as_the_limit_and_no_larger() -> None:
    raw = json.dumps({"a": "x" * 92}).encode()
    assert len(raw) == 101
    assert read_object(raw, Limits(body_bytes=101)) == {"a": "x" * 92}
    assert refused(raw, Limits(body_bytes=100)).status == 413


@pytest.mark.parametrize(
    "value",
    [
        b"application/json",
        b"Application/JSON",
        b"application/json; charset=utf-8",
        b'application/json;charset="UTF-8"',
        b" application/json ; ",
    ],
)
def test_json_in_utf_8_may_say_so_in_its_ways(value: bytes) -> None:
    assert check_headers([(b"content-type", value), (b"Content-Encoding", b"identity")], LIMITS) is None


@pytest.mark.parametrize(
    ("headers", "status", "param"),
    [
        ([], 415, "content-type"),
        ([(b"content-type", b"text/plain")], 415, "content-type"),
        ([(b"content-type", b"application/x-www-form-urlencoded")], 415, "content-type"),
        ([(b"content-type", b"application/json; charset=utf-16")], 415, "content-type"),
        ([(b"content-type", b"application/json; charset=utf-8; charset=utf-7")], 415, "content-type"),
        ([(b"content-type", b"application/json, text/plain")], 415, "content-type"),
        ([(b"content-type", b"multipart/form-data; boundary=x")], 415, "content-type"),
        ([*JSON, *JSON], 400, "content-type"),
        ([*JSON, (b"content-encoding", b"gzip")], 415, "content-encoding"),
        ([*JSON, (b"content-encoding", b"identity, gzip")], 415, "content-encoding"),
        ([*JSON, (b"content-length", b"5"), (b"content-length", b"5")], 400, "content-length"),
        ([*JSON, (b"content-length", b"-5")], 400, "content-length"),
        ([*JSON, (b"content-length", "٥".encode())], 400, "content-length"),
        ([*JSON, (b"content-length", b"5"), (b"Transfer-Encoding", b"chunked")], 400, None),
        ([*JSON, (b"content-length", b"99999999999")], 413, None),
        ([*JSON, (b"host", b"a"), (b"Host", b"b")], 400, "host"),
    ],
)
def test_headers_that_say_something_else_are_refused(
    headers: list[tuple[bytes, bytes]], status: int, param: str | None
) -> None:
    refusal = check_headers(headers, LIMITS)
    assert refusal is not None
    assert (refusal.status, refusal.param) == (status, param)
    assert read(b"{}", headers, LIMITS) == refusal


def test_a_long_prompt_is_read_in_milliseconds() -> None:
    """Far above what it takes (5 ms), and far under what a reader in Python would take."""
    raw = json.dumps({"prompt": "the quick brown fox: " * 250_000}).encode()
    begun = time.process_time()
    assert isinstance(read_object(raw, LIMITS), dict)
    assert time.process_time() - begun < 0.2


def test_a_hostile_body_of_the_largest_size_is_refused_soon() -> None:
    raw = b'{"a":[' + b"{}," * (LIMITS.body_bytes // 3 - 10) + b"1]}"
    begun = time.process_time()
    refused(raw)
    assert time.process_time() - begun < 0.5
