"""Exact hand-off (I4): anything but what was reserved is refused, and quarantined until prefill has drained."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from pagefence.pool.pages import PageRef
from pagefence.protocol import handoff
from pagefence.protocol.effects import Begin, Run
from pagefence.protocol.messages import Ack, Drained, Envelope, Logprob, PeerUp, Receipt, WorkerRef
from pagefence.sim.memory import Cell

from .processes import KEY
from .stage import ROUTER, Stage, only_dropped

change = msgspec.structs.replace
Forgery = Callable[[Receipt], Receipt]


def sealed(**changes: object) -> Forgery:
    """A receipt that says something else under a valid MAC."""
    return lambda receipt: handoff.seal(KEY, change(receipt, **changes))


def other_pages(receipt: Receipt) -> Receipt:
    return handoff.seal(KEY, change(receipt, pages=(receipt.pages[1], receipt.pages[0])))


def old_generation(receipt: Receipt) -> Receipt:
    first = PageRef(receipt.pages[0].index, receipt.pages[0].generation + 2)
    return handoff.seal(KEY, change(receipt, pages=(first, *receipt.pages[1:])))


def one_page(receipt: Receipt) -> Receipt:
    """The incident: a placeholder's receipt."""
    return handoff.seal(KEY, change(receipt, tokens=1, pages=receipt.pages[:1], digests=receipt.digests[:1]))


def one_digest_less(receipt: Receipt) -> Receipt:
    return handoff.seal(KEY, change(receipt, digests=receipt.digests[:1]))


def no_mac(receipt: Receipt) -> Receipt:
    return change(receipt, mac=b"")


def another_first_token(receipt: Receipt) -> Receipt:
    return change(receipt, first_token=receipt.first_token + 1)


def another_first_logprob(receipt: Receipt) -> Receipt:
    return change(receipt, first_logprobs=(Logprob(-0.5),))


def other_key(receipt: Receipt) -> Receipt:
    return handoff.seal(b"another key", receipt)


FORGERIES = [
    pytest.param(sealed(tokens=7), "prompt tokens: reserved 8, received 7", id="fewer tokens"),
    pytest.param(sealed(tokens=9), "prompt tokens: reserved 8, received 9", id="more tokens"),
    pytest.param(one_page, "prompt tokens: reserved 8, received 1", id="a placeholder"),
    pytest.param(sealed(layers=3), "layers: reserved 1, received 3", id="layers"),
    pytest.param(sealed(pages=()), "number of pages: reserved 2, received 0", id="no pages"),
    pytest.param(other_pages, "pages: reserved", id="pages in another order"),
    pytest.param(old_generation, "pages: reserved", id="generation"),
    pytest.param(one_digest_less, "number of page digests", id="digests"),
    pytest.param(sealed(prefill=WorkerRef("p", 0)), "prefill incarnation", id="prefill incarnation"),
    pytest.param(sealed(decode=WorkerRef("d", 0)), "decode incarnation", id="decode incarnation"),
    pytest.param(no_mac, "receipt MAC", id="no MAC"),
    pytest.param(another_first_token, "receipt MAC", id="first token"),
    pytest.param(another_first_logprob, "receipt MAC", id="first log-probability"),
    pytest.param(other_key, "receipt MAC", id="another key"),
]


@pytest.mark.parametrize(("forge", "says"), FORGERIES)
def test_a_receipt_that_differs_is_refused_and_its_pages_wait_for_the_drain(forge: Forgery, says: str) -> None:
    stage = Stage()
    room = stage.sent(prompt=8)
    envelope = stage.take(Receipt)
    assert isinstance(envelope.body, Receipt)
    stage.arrives(change(envelope, body=forge(envelope.body)))
    assert stage.d.is_quarantined(room)
    assert not stage.waiting(Ack)
    while not stage.waiting(Drained):
        stage.arrives(stage.post.pop(0))
    assert stage.d.state.pool.counts().quarantined == 3
    stage.at_rest()
    error = stage.refusal().error
    assert (error.status, error.code, error.rule, error.guard) == (500, "handoff_refused", "I4", "handoff-check")
    assert says in error.message
    assert stage.effects(Run) == []
    assert stage.effects(Begin) == []


@pytest.mark.parametrize("found", ["nothing", "permuted", "another's"])
def test_bytes_that_are_not_the_receipts_are_refused(found: str) -> None:
    stage = Stage()
    room = stage.verifying(prompt=8)
    page = stage.d.verifying[room][1]
    lies = stage.d.read(page)
    tokens = {"nothing": (), "permuted": lies.tokens[::-1], "another's": (900, 901, 902, 903)}[found]
    stage.d.put(page, Cell(room, page.generation, tokens))
    stage.verify(room)
    assert stage.d.is_quarantined(room)
    stage.at_rest()
    error = stage.refusal().error
    assert (error.rule, error.guard) == ("I4", "handoff-check")
    assert f"digest of page {page.index} (position 1)" in error.message
    assert stage.effects(Run) == []


def test_fewer_digests_than_pages_are_refused() -> None:
    stage = Stage()
    room = stage.verifying(prompt=8)
    answer = stage.d.verify(room)
    stage.tell(stage.d, change(answer, digests=answer.digests[:1]))  # type: ignore[union-attr]
    stage.at_rest()
    assert "number of digested pages" in stage.refusal().error.message


def test_a_good_receipt_after_a_refused_one_does_not_bring_the_room_back() -> None:
    stage = Stage()
    room = stage.sent()
    good = stage.take(Receipt)
    assert isinstance(good.body, Receipt)
    stage.arrives(change(good, body=no_mac(good.body)))
    stage.arrives(good)
    assert stage.d.is_quarantined(room)
    stage.at_rest()
    assert stage.effects(Run) == []


def test_only_this_rooms_prefill_is_heard_about_it() -> None:
    stage = Stage()
    room = stage.sent()
    receipt = stage.take(Receipt)
    stranger = WorkerRef("p2", 1)
    assert only_dropped(stage.arrives(change(receipt, sender=stranger)))
    stage.arrives(Envelope(ROUTER, stage.d.ref, PeerUp(stranger, "prefill", "there")))
    assert only_dropped(stage.arrives(change(receipt, sender=stranger)))
    assert only_dropped(stage.arrives(Envelope(stranger, stage.d.ref, Drained(room))))
