"""What one process tells the others at once, as bytes: sealed, so who reads or writes Redis need not be trusted.

    "PF" | version 1 | sender 16 bytes | number 8 bytes | AES-256-GCM of a MessagePack array

The key is made of the shared one and the sender, which is drawn anew by every process; the nonce is the number, which
goes up by one. So no nonce is used twice, a repeated batch is seen, and so is one that never came. Whatever else is in
a stream is normal input: it is told apart, and never raises.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec
import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pagefence.edge.watching.grams import Words

MOST_HASHES = 4096  # in one batch: 32 KiB
MOST_PARTS = 256
MOST_CLAIMS = 512
MOST_BYTES = 65_536
MOST_AGE_S = 3600.0
"""What is older is none: two tables of fingerprints of half an hour. Also bounds how far clocks may be apart."""

_MAGIC = b"PF\x01"
_SENDER, _NUMBER = 16, 8
_HEAD = len(_MAGIC) + _SENDER + _NUMBER
_SENDERS = 1024  # followed at once
_CLAIM = 20


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Fingerprints of one tenant: of a prompt, or of an answer (`habit`), 8 bytes each, the lowest first."""

    tag: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    habit: bool
    hashes: Annotated[bytes, msgspec.Meta(max_length=8 * MOST_HASHES)]

    @property
    def words(self) -> Words:
        return np.frombuffer(self.hashes, "<u8").astype(np.uint64)


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """`sent_at`: Unix seconds. `claims`: keyed names of response ids, with those of the requests that got them."""

    sent_at: float
    parts: Annotated[tuple[Part, ...], msgspec.Meta(max_length=MOST_PARTS)] = ()
    claims: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(min_length=_CLAIM, max_length=_CLAIM)], ...],
        msgspec.Meta(max_length=MOST_CLAIMS),
    ] = ()


class Fate(StrEnum):
    """Why nothing is made of bytes: one's own; none of ours, changed, or under another secret; too old, or repeated."""

    OWN = "own"
    UNREADABLE = "unreadable"
    OLD = "old"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Batch).decode


def part(tag: str, habit: bool, hashes: Words) -> Part:
    return Part(tag, habit, hashes.astype("<u8").tobytes())


class Sealer:
    """One process, as a sender."""

    def __init__(self, key: bytes) -> None:
        self.sender = secrets.token_bytes(_SENDER)
        self._cipher = _cipher(key, self.sender)
        self._number = 0

    def seal(self, batch: Batch) -> bytes:
        self._number += 1
        head = _MAGIC + self.sender + self._number.to_bytes(_NUMBER, "big")
        return head + self._cipher.encrypt(_nonce(self._number), _encode(batch), head)


@dataclass(slots=True)
class _Sender:
    cipher: AESGCM
    last: int = 0


class Opener:
    """Reads what the others sealed. `missed`: batches that were sent and never came, as far as their numbers tell."""

    def __init__(self, key: bytes, own: bytes) -> None:
        self._key, self._own = key, own
        self._senders: OrderedDict[bytes, _Sender] = OrderedDict()
        self.missed = 0

    def open(self, sealed: bytes, now: float) -> Batch | Fate:
        """`now`: Unix seconds."""
        if not _HEAD < len(sealed) <= MOST_BYTES or not sealed.startswith(_MAGIC):
            return Fate.UNREADABLE
        head, name = sealed[:_HEAD], sealed[len(_MAGIC) : len(_MAGIC) + _SENDER]
        if name == self._own:
            return Fate.OWN
        number = int.from_bytes(head[-_NUMBER:], "big")
        sender = self._senders.get(name) or _Sender(_cipher(self._key, name))
        try:
            batch = _decode(sender.cipher.decrypt(_nonce(number), sealed[_HEAD:], head))
        except (InvalidTag, msgspec.DecodeError):
            return Fate.UNREADABLE
        if any(len(each.hashes) % 8 for each in batch.parts):
            return Fate.UNREADABLE
        if number <= sender.last or not abs(now - batch.sent_at) <= MOST_AGE_S:
            return Fate.OLD
        self.missed += number - sender.last - 1 if sender.last else 0
        sender.last = number
        self._senders[name] = sender
        self._senders.move_to_end(name)
        if len(self._senders) > _SENDERS:
            self._senders.popitem(last=False)
        return batch


def claim_names(key: bytes) -> Callable[[str, str], bytes]:
    """A response id and the request that got it, as others compare them: 12 bytes and 8."""

    def named(response_id: str, request_id: str) -> bytes:
        return _name(key, response_id)[:12] + _name(key, request_id)[:8]

    return named


def _name(key: bytes, said: str) -> bytes:
    return hmac.digest(key, said.encode("utf-8", "surrogatepass"), "sha256")


def _cipher(key: bytes, sender: bytes) -> AESGCM:
    return AESGCM(hmac.digest(key, sender, "sha256"))


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")
