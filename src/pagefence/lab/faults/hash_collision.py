"""Prefix cache: a page is believed because of its key."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import CACHED
from pagefence.sim.bounds import Ask


def weak_key(parent: bytes, isolation_key: str, tokens: tuple[int, ...]) -> bytes:
    """The hash of a page's content is one that collides, by chance or because somebody looked for it.

    The cache compares keys and nothing else. A prompt whose key is another's gets the other's keys and values, and is
    answered as if it had begun with the other's text. (Here all pages at one position have the same key.)
    """
    return parent + bytes([len(tokens) % 256])


FAULT = Fault(
    name="hash-collision",
    summary="equal keys for different content: a prompt is answered over another's cached text",
    mechanism=weak_key.__doc__ or "",
    reference="vllm-project/vllm GHSA-rm76-4mrf-v9r8, #17378",
    rules=("I7", "I1"),
    # A weak key alone does no harm here: the content is compared as well, and the bug is that it is not.
    override=lambda d: replace(d, cache_key=weak_key, same_content=lambda cached, key, tokens, parent: True),
    bounds=replace(CACHED, name="colliding keys", asks=(Ask("a", 3), Ask("b", 3))),
)
