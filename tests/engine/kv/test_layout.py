"""The byte arithmetic is a partition: no byte belongs to two things."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefence.engine.kv.layout import FRAME_BYTES, DType, Layout

DTYPES: tuple[DType, ...] = ("float32", "float16", "bfloat16")
layouts = st.builds(
    Layout,
    pages=st.integers(1, 6),
    page_size=st.integers(1, 9),
    layers=st.integers(1, 4),
    kv_heads=st.integers(1, 5),
    head_dim=st.integers(1, 17),
    dtype=st.sampled_from(DTYPES),
)


@given(layouts)
def test_head_payload_and_tail_follow_one_another_without_overlap(layout: Layout) -> None:
    assert layout.payload_offset == FRAME_BYTES
    assert layout.payload_offset + layout.payload_bytes <= layout.tail_offset
    assert layout.tail_offset - layout.payload_offset - layout.payload_bytes < FRAME_BYTES
    assert layout.tail_offset + FRAME_BYTES == layout.stride
    assert layout.stride % FRAME_BYTES == layout.tail_offset % FRAME_BYTES == 0
    assert layout.total_bytes == layout.pages * layout.stride


@given(layouts)
def test_the_wire_carries_a_layout_unchanged(layout: Layout) -> None:
    assert Layout.from_wire(layout.to_wire()) == layout


def test_the_embedded_model_has_the_documented_bytes_per_token() -> None:
    layout = Layout(pages=1, page_size=64, layers=30, kv_heads=3, head_dim=64, dtype="float16")
    assert layout.token_bytes == 23_040
    assert layout.payload_bytes == 64 * 23_040


@pytest.mark.parametrize("field", ["pages", "page_size", "layers", "kv_heads", "head_dim"])
def test_a_layout_without_content_is_refused_here_and_from_a_peer(field: str) -> None:
    good = {"pages": 1, "page_size": 1, "layers": 1, "kv_heads": 1, "head_dim": 1, "dtype": "float32"}
    assert Layout.from_wire(msgspec.msgpack.encode(good)).pages == 1
    with pytest.raises(msgspec.ValidationError, match=field):
        Layout.from_wire(msgspec.msgpack.encode(good | {field: 0}))


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="float64"):
        Layout(1, 1, 1, 1, 1, "float64")  # type: ignore[arg-type]


@given(layouts, st.integers(1, 9))
def test_pages_can_be_copied_between_pools_of_any_length_but_only_of_one_shape(layout: Layout, pages: int) -> None:
    assert layout.same_pages(layout.with_pages(pages))
    other = Layout(
        layout.pages, layout.page_size, layout.layers, layout.head_dim, layout.kv_heads + 17, dtype=layout.dtype
    )
    assert not layout.same_pages(other)  # not even when the bytes would add up
