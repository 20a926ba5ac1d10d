"""Events of a stream are the same however the stream was cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.edge.events import Events

PAYLOADS = st.lists(st.binary(max_size=20).map(lambda raw: raw.hex().encode()), max_size=6)


@settings(max_examples=50, deadline=None)
@given(PAYLOADS, st.sampled_from([b"\n", b"\r\n"]), st.data())
def test_events_are_whole_and_in_order_however_they_are_cut(
    payloads: list[bytes], end: bytes, data: st.DataObject
) -> None:
    stream = b"".join(b"data: %b%b: note%b%b" % (each, end, end, end) for each in payloads)
    events, passed, seen, at = Events(), b"", list[bytes](), 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        raw, found = events.feed(stream[at : at + size])
        passed += raw
        seen += found
        at += size
    assert seen == payloads
    assert passed == stream
    assert events.rest == b""


def test_what_has_no_end_is_held_back() -> None:
    events = Events()
    assert events.feed(b"data: 1\n\ndata: 2\n") == (b"data: 1\n\n", [b"1"])
    assert events.rest == b"data: 2\n"
    assert events.feed(b"data:3\n\n: comment\n\n") == (b"data: 2\ndata:3\n\n: comment\n\n", [b"2\n3"])
