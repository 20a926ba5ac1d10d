"""A small pool in real shared memory, rooms to fill it, and every way to write into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pagefence.engine.kv.layout import Layout
from pagefence.engine.kv.mooncake import MooncakeOffer, require
from pagefence.engine.kv.offer import SegmentServer, new_token
from pagefence.engine.kv.segment import Segment
from pagefence.engine.kv.transfer import BackendMissing, Offer
from pagefence.protocol.messages import WorkerRef

# An odd payload (2 x 3 x 3 x 5 x 4 bytes is no multiple of 64), so that padding is under test too.
SMALL = Layout(pages=8, page_size=3, layers=2, kv_heads=3, head_dim=5, dtype="float32")
TOKEN = new_token()
OWNER = WorkerRef("decode-0", 11)
MOONCAKE = pytest.param("mooncake", marks=pytest.mark.mooncake)


@pytest.fixture
def segment() -> Iterator[Segment]:
    """A zeroed pool of 8 small pages."""
    with Segment.create(SMALL) as made:
        yield made


@pytest.fixture
def source() -> Iterator[Segment]:
    """A pool of 4 pages of the same shape, full of distinct bytes: what prefill computed."""
    with Segment.create(SMALL.with_pages(4)) as made:
        random = np.random.default_rng(7)
        for page in range(4):
            made.payload(page)[:] = random.integers(1, 256, SMALL.payload_bytes, np.uint8)
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A socket path in a directory of our own."""
    directory = tmp_path / "private"
    directory.mkdir(mode=0o700)
    return directory / "kv"


@pytest.fixture
def server(path: Path, segment: Segment) -> Iterator[SegmentServer]:
    """The segment, on offer."""
    with SegmentServer(path, segment, TOKEN, epoch=OWNER.epoch) as running:
        yield running


@pytest.fixture
def mooncake_loads() -> None:
    """Skips where Mooncake or a library that it links is missing."""
    try:
        require()
    except BackendMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def over_mooncake(mooncake_loads: None, segment: Segment) -> Iterator[MooncakeOffer]:
    """The segment, on offer over TCP."""
    with MooncakeOffer("127.0.0.1", segment, TOKEN, OWNER) as running:
        yield running


@pytest.fixture(params=["shm", MOONCAKE])
def offer(request: pytest.FixtureRequest) -> Offer:
    """The segment, on offer by each back-end in turn."""
    made: Offer = request.getfixturevalue("server" if request.param == "shm" else "over_mooncake")
    return made
