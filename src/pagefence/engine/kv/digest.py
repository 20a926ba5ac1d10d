"""Page digests: a fingerprint of a page's bytes in memory order.

Memory order is layer, K or V, position, head, so bytes that move inside a page change the digest as well as bytes that
change. blake3 was chosen by measuring (`bench/digest.py`): about 4 x faster than blake2b on one core; it releases the
GIL, so a helper thread can verify a hand-off beside the decode step.
"""

from __future__ import annotations

from collections.abc import Sequence

from blake3 import blake3

from pagefence.engine.kv.segment import Segment


def page_digest(segment: Segment, page: int) -> bytes:
    """32 bytes over one page's payload; frames and padding are not part of it. Raises IndexError."""
    return blake3(segment.payload(page).data).digest()


def page_digests(segment: Segment, pages: Sequence[int]) -> tuple[bytes, ...]:
    """The digests of several pages, in order. Raises IndexError."""
    return tuple(page_digest(segment, page) for page in pages)
