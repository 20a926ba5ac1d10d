"""A prefill process in miniature: reaches for the segment, writes pages of its own, reports, waits for its end."""

from __future__ import annotations

import sys

import numpy as np

from pagefence.engine.kv.backends import reach
from pagefence.engine.kv.offer import PeerRefused
from pagefence.engine.kv.segment import Segment
from pagefence.pool.pages import PageRef
from pagefence.protocol.messages import Room, WorkerRef


def main(address: str, token: str, seed: int, pages: list[PageRef]) -> None:
    """Print one line: the digests of what was written, or `refused`."""
    try:
        remote = reach(address, bytes.fromhex(token), WorkerRef("prefill-0", 1), WorkerRef("decode-0", 11))
    except PeerRefused:
        print("refused", flush=True)
        return
    source = Segment.create(remote.layout.with_pages(len(pages)))
    random = np.random.default_rng(seed)
    for page in range(len(pages)):
        source.payload(page)[:] = random.integers(0, 256, remote.layout.payload_bytes, np.uint8)
    digests = remote.write(source, range(len(pages)), pages, Room(1, seed, "peer"))
    print(remote.epoch, *(digest.hex() for digest in digests), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(
        sys.argv[1],
        sys.stdin.readline().strip(),
        int(sys.argv[2]),
        [PageRef(*map(int, text.split("@"))) for text in sys.argv[3:]],
    )
