"""Any sequence of operations keeps the page pool whole: a state machine tries them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pagefence.pool.admitted import Admitted
from pagefence.pool.generation import LAST_GENERATION, is_occupied
from pagefence.pool.pages import NoLease, OutOfPages, PagePool, PageRef, StalePage, StillReachable

PAGES = 6
SIZE = 4
WRITERS = ("w1", "w2")


class PoolUnderUse(RuleBasedStateMachine):
    """A model beside the pool: who owns which page now, and every page reference that was ever handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool.of(PAGES, SIZE)
        self.owned: dict[int, tuple[PageRef, ...]] = {}
        self.reachable: dict[int, set[str]] = {}
        self.over: set[PageRef] = set()
        self.stack = list(reversed(range(PAGES)))
        self.next_owner = 0

    @initialize(
        worn=st.lists(st.sampled_from([0, 2, LAST_GENERATION - 3, LAST_GENERATION - 1]), min_size=6, max_size=6)
    )
    def some_pages_are_near_the_end_of_their_counter(self, worn: list[int]) -> None:
        self.pool = replace(self.pool, generations=tuple(worn))

    @rule(tokens=st.integers(0, PAGES * SIZE + 1), writers=st.sets(st.sampled_from(WRITERS)))
    def lease(self, tokens: int, writers: set[str]) -> None:
        owner, need = self.next_owner, -(-tokens // SIZE)
        self.next_owner += 1
        ask = Admitted(owner, "tenant", tokens)
        if not 1 <= need <= len(self.stack):
            assert not self.pool.fits(tokens)
            with pytest.raises(OutOfPages):
                self.pool.lease(ask)
            return
        self.pool, lease = self.pool.lease(ask, frozenset(writers))
        assert [page.index for page in lease.pages] == [self.stack.pop() for _ in range(need)]
        assert not self.over & set(lease.pages), "a reference came back"
        self.owned[owner], self.reachable[owner] = lease.pages, set(writers)

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), writer=st.sampled_from(WRITERS))
    def drain(self, data: st.DataObject, writer: str) -> None:
        owner = data.draw(st.sampled_from(sorted(self.owned)))
        self.pool = self.pool.drained(owner, writer)
        self.reachable[owner].discard(writer)

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        self.pool = self.pool.quarantine(data.draw(st.sampled_from(sorted(self.owned))))

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.owned)))
        if self.reachable[owner]:
            with pytest.raises(StillReachable):
                self.pool.release(owner)
            return
        self.pool = self.pool.release(owner)
        pages = self.owned.pop(owner)
        self.over |= set(pages)
        self.stack += [page.index for page in reversed(pages) if page.generation < LAST_GENERATION]
        with pytest.raises(NoLease):
            self.pool.release(owner)

    @invariant()
    def pages_are_conserved(self) -> None:
        self.pool.check()
        counts = self.pool.counts()
        assert (
            counts.free + counts.leased + counts.cached + counts.quarantined + counts.retired == counts.total == PAGES
        )
        assert counts.free == len(self.stack)
        assert counts.leased + counts.quarantined == sum(map(len, self.owned.values()))

    @invariant()
    def a_page_is_live_for_its_present_owner_and_for_nobody_before(self) -> None:
        for page in (page for pages in self.owned.values() for page in pages):
            self.pool.require_live(page)
            assert is_occupied(page.generation)
        for page in self.over:
            with pytest.raises(StalePage):
                self.pool.require_live(page)

    @invariant()
    def no_page_has_two_owners(self) -> None:
        indices = [page.index for pages in self.owned.values() for page in pages]
        assert len(indices) == len(set(indices))

    @invariant()
    def odd_means_occupied_or_retired(self) -> None:
        held = {page.index for pages in self.owned.values() for page in pages} | self.pool.retired
        assert {i for i, generation in enumerate(self.pool.generations) if is_occupied(generation)} == held


TestPoolUnderUse = PoolUnderUse.TestCase
TestPoolUnderUse.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
