"""Where every byte of the KV pool lies.

A page in memory, one after another with the same stride:

    head frame (64 bytes) | payload | padding to 64 bytes | tail frame (64 bytes)

The payload is [layers, 2 (K, V), page_size, kv_heads, head_dim] of `dtype`, contiguous. Frames start at multiples of
64 bytes, so that each is one cache line and the check before a decode step costs two memory reads a page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

DType = Literal["float32", "float16", "bfloat16"]

FRAME_BYTES: Final = 64
_ITEM_BYTES: Final[dict[DType, int]] = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of a pool and its byte arithmetic. Two processes map one segment by agreeing on this.

    `page_size` is in tokens, everything named `..._bytes` in bytes. Raises ValueError on a shape without content.
    """

    pages: int
    page_size: int
    layers: int
    kv_heads: int
    head_dim: int
    dtype: DType

    def __post_init__(self) -> None:
        for name in ("pages", "page_size", "layers", "kv_heads", "head_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.dtype not in _ITEM_BYTES:
            raise ValueError(f"dtype must be one of {', '.join(_ITEM_BYTES)}, got {self.dtype}")

    @property
    def item_bytes(self) -> int:
        """Bytes of one number."""
        return _ITEM_BYTES[self.dtype]

    @property
    def page_shape(self) -> tuple[int, int, int, int, int]:
        """Shape of one page's payload: [layers, 2 (K, V), page_size, kv_heads, head_dim]."""
        return (self.layers, 2, self.page_size, self.kv_heads, self.head_dim)

    @property
    def token_bytes(self) -> int:
        """Keys and values of one token over all layers."""
        return self.layers * 2 * self.kv_heads * self.head_dim * self.item_bytes

    @property
    def payload_bytes(self) -> int:
        """Keys and values of one page, without frames and padding."""
        return self.token_bytes * self.page_size

    @property
    def payload_offset(self) -> int:
        """From the start of a page to its payload."""
        return FRAME_BYTES

    @property
    def tail_offset(self) -> int:
        """From the start of a page to its tail frame."""
        return FRAME_BYTES + -(-self.payload_bytes // FRAME_BYTES) * FRAME_BYTES

    @property
    def stride(self) -> int:
        """From one page to the next; a multiple of 64."""
        return self.tail_offset + FRAME_BYTES

    @property
    def total_bytes(self) -> int:
        """The whole segment."""
        return self.pages * self.stride

    @property
    def tokens(self) -> int:
        """Tokens that fit into the pool (I8)."""
        return self.pages * self.page_size

    def require_pages(self, pages: Iterable[int]) -> None:
        """Raise IndexError unless every page exists: a negative index would silently mean another tenant's page."""
        for page in pages:
            if not 0 <= page < self.pages:
                raise IndexError(f"page {page} of {self.pages}")

    def with_pages(self, pages: int) -> Layout:
        """The same pages, another number of them."""
        return replace(self, pages=pages)

    def same_pages(self, other: Layout) -> bool:
        """True when a page of one can be copied byte by byte into a page of the other."""
        return self.with_pages(1) == other.with_pages(1)

    def to_wire(self) -> bytes:
        """MessagePack, for a peer that is to map the segment."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_wire(cls, body: bytes) -> Layout:
        """The inverse of `to_wire`. Raises msgspec.ValidationError on anything that is not a layout."""
        return msgspec.msgpack.decode(body, type=cls)
