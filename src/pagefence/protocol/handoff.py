"""The hand-off check (I4): decode starts only when what arrived equals what was reserved.

Two halves, because the second needs the bytes: `check_receipt` compares the words, `check_digests` compares what
prefill says it wrote with what decode read back from its own memory.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

import msgspec

from pagefence.protocol.messages import Receipt, Reservation


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first thing in which receipt and reservation differ."""

    what: str
    reserved: str
    received: str

    def __str__(self) -> str:
        return f"{self.what}: reserved {self.reserved}, received {self.received}"


def mac(key: bytes, receipt: Receipt) -> bytes:
    """Keyed hash over everything the receipt says; binds the page digests to room, tokens and first token."""
    body = msgspec.msgpack.encode(msgspec.structs.replace(receipt, mac=b""))
    return hashlib.blake2b(body, key=key, digest_size=32).digest()


def seal(key: bytes, receipt: Receipt) -> Receipt:
    """The receipt with its MAC."""
    return msgspec.structs.replace(receipt, mac=mac(key, receipt))


def check_receipt(reservation: Reservation, receipt: Receipt, key: bytes) -> Mismatch | None:
    """Compare the receipt with the reservation; None when equal."""
    pairs = (
        ("room", str(reservation.room), str(receipt.room)),
        ("prefill incarnation", str(reservation.prefill), str(receipt.prefill)),
        ("decode incarnation", str(reservation.decode), str(receipt.decode)),
        ("prompt tokens", str(reservation.prompt_tokens), str(receipt.tokens)),
        ("layers", str(reservation.layers), str(receipt.layers)),
        ("number of pages", str(len(reservation.pages)), str(len(receipt.pages))),
        ("pages", _pages(reservation), _pages(receipt)),
        ("number of page digests", str(len(reservation.pages)), str(len(receipt.digests))),
    )
    for what, reserved, received in pairs:
        if reserved != received:
            return Mismatch(what, reserved, received)
    whole_pages = receipt.cached % reservation.page_size == 0
    if not (whole_pages and 0 <= receipt.cached < receipt.tokens):
        return Mismatch("cached tokens", f"whole pages of fewer than {receipt.tokens} tokens", str(receipt.cached))
    if not hmac.compare_digest(mac(key, receipt), receipt.mac):
        return Mismatch("receipt MAC", "a valid one", "one that does not verify")
    return None


def check_digests(receipt: Receipt, digests: tuple[bytes, ...]) -> Mismatch | None:
    """Compare the receipt's page digests with those of the bytes that lie in decode's pages; None when equal."""
    if len(digests) != len(receipt.digests):
        return Mismatch("number of digested pages", str(len(receipt.digests)), str(len(digests)))
    for position, (said, found) in enumerate(zip(receipt.digests, digests, strict=True)):
        if not hmac.compare_digest(said, found):
            page = receipt.pages[position].index
            return Mismatch(f"digest of page {page} (position {position})", said.hex()[:16], found.hex()[:16])
    return None


def _pages(message: Reservation | Receipt) -> str:
    return ", ".join(f"{page.index}@{page.generation}" for page in message.pages)
