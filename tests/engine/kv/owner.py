"""A decode process in miniature: offers a segment over Mooncake and does as standard input says.

look      print how many bytes of the pool are not zero, and the digests of pages 6, 2 and 4
"""

from __future__ import annotations

import sys

import numpy as np

from pagefence.engine.kv.digest import page_digests
from pagefence.engine.kv.mooncake import MooncakeOffer
from pagefence.engine.kv.segment import Segment
from tests.engine.kv.conftest import OWNER, SMALL


def main(host: str, token: str) -> None:
    """Print the address first, then one line for each line read."""
    with Segment.create(SMALL) as segment, MooncakeOffer(host, segment, bytes.fromhex(token), OWNER) as offer:
        print(offer.address, flush=True)
        for _ in sys.stdin:
            written = sum(int(np.count_nonzero(segment.payload(page))) for page in range(SMALL.pages))
            written += int(np.count_nonzero(segment.heads)) + int(np.count_nonzero(segment.tails))
            print(written, *(digest.hex() for digest in page_digests(segment, (6, 2, 4))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin.readline().strip())
