"""The hand-off check by itself: what it calls different, and how it says so."""

from __future__ import annotations

import msgspec
import pytest

from pagefence.pool.pages import PageRef
from pagefence.protocol.handoff import Mismatch, check_digests, check_receipt, mac, seal
from pagefence.protocol.messages import Receipt, Reservation, Room, WorkerRef

KEY = b"secret"
PREFILL, DECODE = WorkerRef("p", 1), WorkerRef("d", 1)
PAGES = (PageRef(4, 1), PageRef(2, 3))
DIGESTS = (b"\x11" * 32, b"\x22" * 32)
RESERVATION = Reservation(Room(7, 0, "n"), PREFILL, DECODE, 8, 4, 2, PAGES)
RECEIPT = seal(KEY, Receipt(Room(7, 0, "n"), PREFILL, DECODE, 8, 2, PAGES, DIGESTS, 99))


def test_what_was_reserved_and_sealed_passes() -> None:
    assert check_receipt(RESERVATION, RECEIPT, KEY) is None
    assert check_digests(RECEIPT, DIGESTS) is None


@pytest.mark.parametrize(
    ("changes", "mismatch"),
    [
        ({"room": Room(7, 1, "n")}, Mismatch("room", "7-0-n", "7-1-n")),
        ({"room": Room(7, 0, "m")}, Mismatch("room", "7-0-n", "7-0-m")),
        ({"prefill": WorkerRef("p", 2)}, Mismatch("prefill incarnation", "p#1", "p#2")),
        ({"decode": WorkerRef("e", 1)}, Mismatch("decode incarnation", "d#1", "e#1")),
        ({"tokens": 7}, Mismatch("prompt tokens", "8", "7")),
        ({"layers": 1}, Mismatch("layers", "2", "1")),
        ({"pages": PAGES[:1]}, Mismatch("number of pages", "2", "1")),
        ({"pages": (PAGES[0], PageRef(2, 5))}, Mismatch("pages", "4@1, 2@3", "4@1, 2@5")),
        ({"pages": PAGES[::-1]}, Mismatch("pages", "4@1, 2@3", "2@3, 4@1")),
        ({"digests": DIGESTS[:1]}, Mismatch("number of page digests", "2", "1")),
    ],
)  # fmt: skip
def test_the_first_difference_is_named_with_both_sides(changes: dict[str, object], mismatch: Mismatch) -> None:
    other = seal(KEY, msgspec.structs.replace(RECEIPT, **changes))
    assert check_receipt(RESERVATION, other, KEY) == mismatch


@pytest.mark.parametrize("changes", [{"first_token": 98}, {"digests": DIGESTS[::-1]}, {"mac": b""}])
def test_what_the_reservation_does_not_know_is_bound_by_the_mac(changes: dict[str, object]) -> None:
    forged = msgspec.structs.replace(RECEIPT, **changes)
    found = check_receipt(RESERVATION, forged, KEY)
    assert found is not None
    assert found.what == "receipt MAC"
    assert RECEIPT.mac.hex() not in str(found), "the message must not teach the right MAC"


def test_a_mac_depends_on_the_key_and_not_on_a_mac_that_is_there_already() -> None:
    assert mac(KEY, RECEIPT) == mac(KEY, msgspec.structs.replace(RECEIPT, mac=b"old")) == RECEIPT.mac
    assert mac(b"other", RECEIPT) != RECEIPT.mac
    assert len(RECEIPT.mac) == 32


def test_bytes_that_differ_are_named_by_page_and_position_and_the_beginning_of_both_digests() -> None:
    found = check_digests(RECEIPT, (DIGESTS[0], b"\x33" * 32))
    assert found == Mismatch("digest of page 2 (position 1)", "22" * 8, "33" * 8)


@pytest.mark.parametrize("digests", [DIGESTS[:1], (*DIGESTS, DIGESTS[0])])
def test_another_number_of_digested_pages_is_a_difference(digests: tuple[bytes, ...]) -> None:
    assert check_digests(RECEIPT, digests) == Mismatch("number of digested pages", "2", str(len(digests)))
