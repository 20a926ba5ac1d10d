"""The prefix cache: which full prompt pages still hold the KV of which tokens, and for whom (I7).

Keys form a chain over the isolation key and all tokens up to the end of a page, so equal text of two tenants has
different keys. A key is how a page is *found*, never why it is *believed*: isolation key, tokens and the page before
are compared as well, so that no collision, and no fault in a key, lets one tenant read what another wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import msgspec
from immutables import Map

from pagefence.pool.generation import must_retire
from pagefence.pool.lease import PageRef

ROOT = b""
"""The parent key of a prompt's first page."""


@dataclass(frozen=True, slots=True)
class CachedPage:
    """A full page of a prompt that was computed: `tokens` stand at `position` (in pages), after those of `parent`."""

    page: PageRef
    key: bytes
    isolation_key: str
    tokens: tuple[int, ...]
    position: int
    parent: PageRef | None


CacheKey = Callable[[bytes, str, tuple[int, ...]], bytes]
SameContent = Callable[[CachedPage, str, tuple[int, ...], PageRef | None], bool]


def chain_key(parent: bytes, isolation_key: str, tokens: tuple[int, ...]) -> bytes:
    """32 bytes that name a page's content and everything before it. MessagePack keeps the parts apart."""
    return hashlib.blake2b(msgspec.msgpack.encode((parent, isolation_key, tokens)), digest_size=32).digest()


def same_content(cached: CachedPage, isolation_key: str, tokens: tuple[int, ...], parent: PageRef | None) -> bool:
    """True when a page found by its key really is this tenant's page of these tokens after that page (I1, I7).

    `parent` is the page found one step before, in its present tenancy. So the whole prefix is compared, step by step.
    """
    return cached.isolation_key == isolation_key and cached.tokens == tokens and cached.parent == parent


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """Cached pages by key. `order` has the keys, least recently used first, a page always before its parent.

    So whatever is evicted first is a leaf, and no page is left behind that no prompt can reach any more.
    """

    pages: Map[bytes, CachedPage] = Map()
    order: tuple[bytes, ...] = ()

    def find(
        self,
        isolation_key: str,
        tokens: tuple[int, ...],
        page_size: int,
        cache_key: CacheKey,
        same_content: SameContent,
    ) -> tuple[CachedPage, ...]:
        """The longest cached chain of full pages that `tokens` begin with."""
        chain: list[CachedPage] = []
        key, parent = ROOT, None
        for content in _full_pages(tokens, page_size):
            key = cache_key(key, isolation_key, content)
            found = self.pages.get(key)
            if found is None or not same_content(found, isolation_key, content, parent):
                break
            chain.append(found)
            parent = found.page
        return tuple(chain)

    def used(self, chain: Iterable[CachedPage]) -> PrefixCache:
        """A prompt's chain has just been used: it is evicted last, its end before its beginning."""
        # The end once more in front of the beginning, also when a faulty chain names a page twice.
        keys = list(dict.fromkeys(cached.key for cached in chain))
        moved = set(keys)
        return replace(self, order=(*(key for key in self.order if key not in moved), *reversed(keys)))

    def keep(
        self,
        pages: tuple[PageRef, ...],
        isolation_key: str,
        tokens: tuple[int, ...],
        page_size: int,
        cache_key: CacheKey,
        same_content: SameContent,
    ) -> tuple[PrefixCache, frozenset[PageRef]]:
        """Cache the full pages of `tokens`, computed in `pages`; the next cache and those of `pages` that are in it.

        A page whose content is cached already is not kept twice. A key that is taken by other content ends the chain,
        as does a page that has no next generation: evicting it would give nothing back.
        """
        chain: list[CachedPage] = []
        key, parent, by_key = ROOT, None, self.pages
        for position, content in enumerate(_full_pages(tokens, page_size)):
            key = cache_key(key, isolation_key, content)
            found = by_key.get(key)
            if found is None:
                if must_retire(pages[position].generation):
                    break
                found = CachedPage(pages[position], key, isolation_key, content, position, parent)
                by_key = by_key.set(key, found)
            elif not same_content(found, isolation_key, content, parent):
                break
            chain.append(found)
            parent = found.page
        return replace(self, pages=by_key).used(chain), frozenset(cached.page for cached in chain) & frozenset(pages)

    def idle(self, shared: frozenset[PageRef]) -> tuple[CachedPage, ...]:
        """What could be evicted while `shared` must stay: least recently used first, leaves before their parents."""
        cached = (self.pages[key] for key in self.order)
        return tuple(page for page in cached if page.page not in shared)

    def without(self, evicted: Iterable[CachedPage]) -> PrefixCache:
        """Forget these pages."""
        gone = {cached.key for cached in evicted}
        by_key = self.pages.mutate()
        for key in gone:
            del by_key[key]
        return PrefixCache(by_key.finish(), tuple(key for key in self.order if key not in gone))

    def fault(self) -> str | None:
        """What is wrong with the index itself, or None: it must be in order and without a page nobody can reach."""
        if sorted(self.order) != sorted(self.pages):
            return "the order of the cached pages does not name each of them once"
        seen: set[PageRef] = set()
        for key in reversed(self.order):
            cached = self.pages[key]
            if cached.key != key or cached.page in seen:
                return f"page {cached.page.index} is cached twice or under another key"
            if cached.parent is not None and cached.parent not in seen:
                return f"page {cached.page.index} is cached without, or would be evicted after, the page before it"
            seen.add(cached.page)
        return None


EMPTY = PrefixCache()


def _full_pages(tokens: tuple[int, ...], page_size: int) -> Iterable[tuple[int, ...]]:
    return (tokens[i : i + page_size] for i in range(0, len(tokens) - page_size + 1, page_size))
