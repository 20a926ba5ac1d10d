"""Prefix cache: a tier that never heard of tenants."""

from __future__ import annotations

from dataclasses import replace

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import CACHED
from pagefence.pool.pages import PageRef
from pagefence.pool.prefix import CachedPage, chain_key, same_content


def unsalted_key(parent: bytes, isolation_key: str, tokens: tuple[int, ...]) -> bytes:
    """Requests carry an isolation key, and the tier that keeps pages leaves it out of what it files them under.

    Equal text of two tenants then has one entry, and the second tenant is served from the first one's pages.
    """
    return chain_key(parent, "", tokens)


def same_text(cached: CachedPage, isolation_key: str, tokens: tuple[int, ...], parent: PageRef | None) -> bool:
    """The content is compared, and whose it is is not."""
    return same_content(cached, cached.isolation_key, tokens, parent)


FAULT = Fault(
    name="salt-dropped",
    summary="the prefix cache files pages without the isolation key: tenants share them",
    mechanism=unsalted_key.__doc__ or "",
    reference="sgl-project/sglang #37160, LMCache/LMCache #4825",
    rules=("I7",),
    # An unsalted key alone does no harm here: the isolation key is compared as well, and the bug is that it is not.
    override=lambda d: replace(d, cache_key=unsalted_key, same_content=same_text),
    bounds=CACHED,
)
