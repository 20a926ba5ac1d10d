"""A prompt that begins as an earlier one of its tenant computes the rest, and decode gets the same bytes (I1, I7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pagefence.pool.prefix import chain_key
from pagefence.protocol import handoff
from pagefence.protocol.decisions import Decisions
from pagefence.protocol.effects import Begin, Compute, WriteChunk, Zero
from pagefence.protocol.invariants import Violation, check_prefill
from pagefence.protocol.messages import Abort, ComputeFailed, Receipt, Room
from pagefence.protocol.prefill import PrefillState

from .processes import CHUNK, KEY
from .stage import PAGE, Stage

ANY_TENANT = replace(
    Decisions(),
    cache_key=lambda parent, isolation_key, tokens: chain_key(parent, "", tokens),
    same_content=lambda cached, isolation_key, tokens, parent: True,
)


def answered(stage: Stage, **ask: int) -> Room:
    """A whole request; what it left behind is at rest."""
    room = stage.decoding(**ask)
    stage.generate(room, 2)
    stage.at_rest()
    return room


def cached(stage: Stage) -> int:
    return stage.p.state.pool.counts().cached


def breaks(rule: str, state: PrefillState) -> None:
    with pytest.raises(Violation) as caught:
        check_prefill(state)
    assert caught.value.rule_id == rule, caught.value


def test_the_second_request_computes_only_the_rest_and_decode_gets_every_byte() -> None:
    stage = Stage()
    answered(stage, prompt=10)
    room = stage.decoding(prompt=14, ticket=1, tenant=0, text=0)
    first, second = stage.effects(Compute)
    assert (first.cached, second.cached) == (0, 8)
    assert second.pages[:2] == first.pages[:2]
    writes = [write for write in stage.effects(WriteChunk) if write.room == room]
    assert (writes[0].start, writes[-1].stop) == (0, 14)
    zeroed = stage.effects(Zero)
    assert second.pages[2:] in [zero.pages for zero in zeroed]
    assert not any(set(zero.pages) & set(second.pages[:2]) for zero in zeroed if zero.pages != first.pages)
    # Decode's memory, read as attention reads it: the Stage did so before `Run`, and here once more.
    stage.d.check_read(room, tuple(range(14)))
    stage.generate(room, 2)
    stage.at_rest()
    assert Begin(1, room, 8) in stage.client


def test_computed_and_cached_tokens_are_the_prompts_in_the_receipt_too() -> None:
    stage = Stage()
    answered(stage, prompt=10)
    room = stage.sent(prompt=10, ticket=1, tenant=0, text=0)
    receipt = stage.waiting(Receipt)[0]
    request = stage.p.state.requests[room]
    assert (receipt.tokens, receipt.cached) == (10, 8)
    assert len(receipt.digests) == 3
    for wrong in (replace(request, cached=4), replace(request, receipt=msgspec.structs.replace(receipt, cached=4))):
        breaks("I6", replace(stage.p.state, requests=stage.p.state.requests.set(room, wrong)))


@pytest.mark.parametrize("said", [-4, 3, 8, 12])
def test_a_receipt_with_a_count_that_cannot_be_is_refused(said: int) -> None:
    stage = Stage()
    room = stage.sent(prompt=8)
    reservation = stage.d.state.requests[room].reservation
    assert reservation is not None
    receipt = stage.waiting(Receipt)[0]
    assert handoff.check_receipt(reservation, receipt, KEY) is None
    told = handoff.seal(KEY, msgspec.structs.replace(receipt, cached=said))
    mismatch = handoff.check_receipt(reservation, told, KEY)
    assert mismatch is not None
    assert mismatch.what == "cached tokens"


@pytest.mark.parametrize("prompt", [4, 5, 8, 9])
def test_the_last_token_is_always_computed(prompt: int) -> None:
    stage = Stage()
    answered(stage, prompt=prompt)
    room = stage.computing(prompt=prompt, ticket=1, tenant=0, text=0)
    compute = stage.effects(Compute)[-1]
    assert compute.cached == (prompt - 1) // PAGE * PAGE < prompt
    assert stage.p.state.requests[room].first_token is not None


def test_another_tenant_finds_nothing_of_the_same_text() -> None:
    stage = Stage()
    answered(stage, prompt=10)
    answered(stage, prompt=10, ticket=1, tenant=1, text=0)
    assert [compute.cached for compute in stage.effects(Compute)] == [0, 0]
    assert cached(stage) == 4


def test_two_live_requests_share_and_one_that_ends_takes_nothing_from_the_other() -> None:
    stage = Stage()
    answered(stage, prompt=8)
    one = stage.submit(prompt=9, ticket=1, tenant=0, text=0)
    two = stage.submit(prompt=10, ticket=2, tenant=0, text=0)
    stage.flush()
    leases = [stage.p.state.pool.lease_of(room) for room in (one, two)]
    assert leases[0].pages[:2] == leases[1].pages[:2]
    stage.hang_up(1)
    stage.flush()
    assert stage.p.state.phase(one) == "over"
    for step in (stage.compute, stage.land):
        step(two)
    stage.flush()
    stage.verify(two)
    stage.flush()
    stage.generate(two, 2)
    stage.at_rest()


def test_when_pages_run_short_what_nobody_shares_makes_room() -> None:
    stage = Stage(prefill_pages=8)
    answered(stage, prompt=20)
    assert cached(stage) == 5
    answered(stage, prompt=20, ticket=1)
    assert cached(stage) == 8
    answered(stage, prompt=20, ticket=2, tenant=0, text=0)
    assert stage.effects(Compute)[-1].cached == 12, "the end of the chain was evicted, its beginning was not"


def test_a_prompt_that_waits_for_pages_holds_none_and_finds_its_prefix_when_it_is_leased() -> None:
    stage = Stage(prefill_pages=8)
    answered(stage, prompt=8)
    big = stage.submit(prompt=20, ticket=1)
    stage.flush()
    waiting = stage.submit(prompt=16, ticket=2, tenant=0, text=0)
    stage.flush()
    assert [stage.p.state.phase(room) for room in (big, waiting)] == ["computing", "waiting"]
    assert waiting not in stage.p.state.pool.leases
    stage.hang_up(1)
    stage.flush()
    assert stage.p.state.phase(waiting) == "computing"
    assert stage.effects(Compute)[-1].cached == 8


# --- what is kept, and what is not --------------------------------------------------------------------------------


def test_of_an_aborted_request_only_what_was_computed_is_kept() -> None:
    stage = Stage()
    room = stage.submit(prompt=20)
    stage.flush()
    stage.tell(stage.p, stage.p.compute(room))
    assert CHUNK == 6
    stage.hang_up()
    stage.deliver(Abort, stage.p.ref)
    assert cached(stage) == 0, "a write in flight still reads them"
    stage.land(room)
    assert cached(stage) == 1
    stage.at_rest()


def test_a_request_aborted_before_its_first_forward_pass_leaves_nothing() -> None:
    stage = Stage()
    stage.submit(prompt=20)
    stage.flush()
    stage.hang_up()
    stage.at_rest()
    assert cached(stage) == 0


def test_of_a_request_that_could_not_be_computed_nothing_is_kept() -> None:
    stage = Stage()
    room = stage.submit(prompt=20)
    stage.flush()
    stage.tell(stage.p, stage.p.compute(room))
    stage.tell(stage.p, ComputeFailed(room, "no luck"))
    stage.land(room)
    stage.at_rest()
    assert cached(stage) == 0


def test_what_was_sent_is_kept_also_when_decode_dies() -> None:
    stage = Stage()
    stage.sent(prompt=10)
    stage.reap(stage.d)
    stage.flush()
    assert cached(stage) == 2


def test_without_the_cache_nothing_is_kept_and_nothing_is_looked_for() -> None:
    def never(*_: object) -> bytes:
        raise AssertionError("asked")

    stage = Stage(replace(Decisions(), cache_key=never))
    config = replace(stage.p.state.config, prefix_cache=False)
    stage.p.state = replace(stage.p.state, config=config)
    answered(stage, prompt=10)
    answered(stage, prompt=10, ticket=1, tenant=0, text=0)
    assert [compute.cached for compute in stage.effects(Compute)] == [0, 0]
    assert cached(stage) == 0


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("I1", {"tokens": (0, 1, 2, 9)}),
        ("I1", {"position": 1}),
        ("I7", {"isolation_key": "tenant1"}),
    ],
)
def test_a_shared_page_must_be_this_tenants_with_this_text_at_this_place(rule: str, wrong: dict[str, Any]) -> None:
    stage = Stage()
    answered(stage, prompt=10)
    room = stage.computing(prompt=10, ticket=1, tenant=0, text=0)
    s = stage.p.state
    check_prefill(s)
    ref = s.pool.lease_of(room).pages[0]
    page = next(page for page in s.pool.cache.pages.values() if page.page == ref)
    pages = s.pool.cache.pages.set(page.key, replace(page, **wrong))
    breaks(rule, replace(s, pool=replace(s.pool, cache=replace(s.pool.cache, pages=pages))))


def test_the_fill_mark_and_the_tenant_of_a_source_lease_are_the_requests() -> None:
    stage = Stage()
    room = stage.submit(prompt=10)
    stage.flush()
    s = stage.p.state
    breaks("I1", replace(s, pool=s.pool.fill(room, 4)))
    other = replace(s.pool.lease_of(room), isolation_key="other")
    breaks("I7", replace(s, pool=replace(s.pool, leases=s.pool.leases.set(room, other))))


# --- with a decision replaced -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [lambda *_: b"same", ANY_TENANT.cache_key])
def test_a_key_that_collides_across_tenants_is_not_enough(key: Callable[..., bytes]) -> None:
    stage = Stage(replace(Decisions(), cache_key=key))
    answered(stage, prompt=10)
    answered(stage, prompt=10, ticket=1, tenant=1, text=0)
    answered(stage, prompt=10, ticket=2, tenant=1, text=2)
    assert [compute.cached for compute in stage.effects(Compute)] == [0, 0, 0]


def test_sharing_across_tenants_breaks_the_isolation_key() -> None:
    stage = Stage(ANY_TENANT)
    answered(stage, prompt=10)
    with pytest.raises(Violation) as broken:
        stage.computing(prompt=10, ticket=1, tenant=1, text=0)
    assert broken.value.rule_id == "I7"


def test_sharing_other_text_of_the_same_tenant_breaks_ownership() -> None:
    stage = Stage(replace(ANY_TENANT, cache_key=lambda *_: b"same"))
    answered(stage, prompt=10)
    with pytest.raises(Violation) as broken:
        stage.computing(prompt=10, ticket=1, tenant=0, text=1)
    assert broken.value.rule_id == "I1"


def test_other_text_is_seen_in_the_memory_of_decode_where_the_bookkeeping_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(replace(ANY_TENANT, cache_key=lambda *_: b"same"))
    answered(stage, prompt=10)
    monkeypatch.setattr(type(stage.p), "check", lambda self: None)
    room = stage.verifying(prompt=10, ticket=1, tenant=1, text=1)
    with pytest.raises(Violation) as broken:
        stage.verify(room)
    assert broken.value.rule_id == "I1"
    assert "tokens=(0, 1, 2, 3)" in str(broken.value)
