"""Keys that are equal in all processes of an edge, because they come from the one secret that all of them have."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256

from pagefence.edge.watching.grams import SEED_BYTES, Secrets


@dataclass(frozen=True, slots=True, repr=False)
class SharedKeys:
    """
    grams    what k-grams are hashed with; equal text has equal hashes wherever it passes
    names    under which findings show them
    ids      under which response ids and request ids are compared
    batches  what is sent is encrypted with keys that are made of this one
    """

    grams: Secrets
    names: bytes
    ids: bytes
    batches: bytes

    @classmethod
    def of(cls, secret: bytes) -> SharedKeys:
        """From the edge's secret, the one behind isolation keys."""
        return cls(
            Secrets.make(expanded(secret, b"shared grams", SEED_BYTES)),
            expanded(secret, b"shared names", 32),
            expanded(secret, b"shared ids", 32),
            expanded(secret, b"shared batches", 32),
        )


def expanded(secret: bytes, purpose: bytes, size: int) -> bytes:
    """HMAC-SHA256 in counter mode (NIST SP 800-108). No purpose here is one of `Identity`'s."""
    blocks = range(-(-size // sha256().digest_size))
    return b"".join(hmac.digest(secret, purpose + b"\0" + n.to_bytes(4, "big"), "sha256") for n in blocks)[:size]
