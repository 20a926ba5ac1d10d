"""What edges tell each other, as bytes and before it is sent: read only whole, once, under the same secret, in time."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.edge.sharing.batch import (
    MOST_AGE_S,
    MOST_BYTES,
    MOST_CLAIMS,
    MOST_HASHES,
    MOST_PARTS,
    Batch,
    Fate,
    Opener,
    Sealer,
    claim_names,
    part,
)
from pagefence.edge.sharing.box import Outbox
from pagefence.edge.sharing.keys import SharedKeys, expanded
from pagefence.edge.sharing.settings import read_shared
from pagefence.edge.tenants import Identity
from pagefence.edge.watching.elsewhere import Elsewhere
from pagefence.edge.watching.grams import Words
from pagefence.edge.watching.memory import Memory, Shared
from pagefence.edge.watching.order import ResponseIds
from pagefence.mistakes import Usage

KEY = b"k" * 32
NOW = 1_790_000_000.0
WORDS = st.lists(st.integers(0, 2**64 - 1), max_size=40).map(lambda values: np.array(values, np.uint64))
TAGS = st.text("0123456789abcdef", min_size=16, max_size=16)
BATCHES = st.builds(
    Batch,
    st.just(NOW),
    st.lists(st.builds(part, TAGS, st.booleans(), WORDS), max_size=5).map(tuple),
    st.lists(st.binary(min_size=20, max_size=20), max_size=5).map(tuple),
)
few = settings(max_examples=40)
TAG = "0123456789abcdef"


def hashes(count: int, start: int = 0) -> Words:
    return np.arange(start, start + count, dtype=np.uint64)


def sealed_by(sealer: Sealer, *batches: Batch) -> list[bytes]:
    return [sealer.seal(batch) for batch in batches]


def sealed(batch: Batch = Batch(NOW)) -> bytes:  # noqa: B008  # it is immutable
    return Sealer(KEY).seal(batch)


def opener(key: bytes = KEY) -> Opener:
    return Opener(key, b"own" * 5 + b"!")


@few
@given(BATCHES)
def test_what_is_told_is_what_was_seen(batch: Batch) -> None:
    read = opener().open(sealed(batch), NOW)
    assert read == batch
    assert all(np.array_equal(a.words, b.words) for a, b in zip(read.parts, batch.parts, strict=True))


@few
@given(WORDS)
def test_hashes_come_back_as_they_were(words: Words) -> None:
    assert part(TAG, False, words).words.tolist() == words.tolist()


@few
@given(BATCHES, st.data())
def test_no_changed_bit_and_no_cut_is_read(batch: Batch, data: st.DataObject) -> None:
    raw = sealed(batch)
    place = data.draw(st.integers(0, len(raw) * 8 - 1))
    changed = bytearray(raw)
    changed[place // 8] ^= 1 << place % 8
    assert opener().open(bytes(changed), NOW) is Fate.UNREADABLE
    assert opener().open(raw[: data.draw(st.integers(0, len(raw) - 1))], NOW) is Fate.UNREADABLE
    assert opener().open(raw + b"\0", NOW) is Fate.UNREADABLE


@few
@given(st.binary(max_size=200))
def test_anything_else_is_told_apart_and_never_raises(raw: bytes) -> None:
    assert opener().open(raw, NOW) is Fate.UNREADABLE
    assert opener().open(b"PF\x01" + raw, NOW) is Fate.UNREADABLE
    assert opener().open(b"PF\x01" + bytes(MOST_BYTES), NOW) is Fate.UNREADABLE


@pytest.mark.parametrize(
    "inside",
    [
        b"", b"\xc1", b"\x93\xcb", b"\x90",
        b"\x93\xcb\x41\xda\xac\x45\x60\0\0\0\x91\x93\xa3../\xc2\xc4\x08" + bytes(8) + b"\x90",  # no tag
        b"\x93\xcb\x41\xda\xac\x45\x60\0\0\0\x91\x93\xb0" + TAG.encode() + b"\xc2\xc4\x07" + bytes(7) + b"\x90",
        b"\x93\xcb\x41\xda\xac\x45\x60\0\0\0\x90\x91\xc4\x02ab",  # no name of a claim
    ],
)  # fmt: skip
def test_what_the_right_key_sealed_wrongly_is_not_read(inside: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagefence.edge.sharing.batch._encode", lambda batch: inside)
    assert opener().open(sealed(), NOW) is Fate.UNREADABLE


def test_nothing_of_it_can_be_read_without_the_secret() -> None:
    words = hashes(100, start=0x1122334455667788)
    raw = sealed(Batch(NOW, (part(TAG, False, words),), (b"c" * 20,)))
    assert opener(b"another" * 5).open(raw, NOW) is Fate.UNREADABLE
    assert not any(secret in raw for secret in (TAG.encode(), words[:1].tobytes(), words[5:6].tobytes(), b"c" * 20))
    assert sealed() != sealed()  # equal batches of two senders look different


def test_a_batch_counts_once_and_not_after_a_later_one() -> None:
    first, second = sealed_by(Sealer(KEY), Batch(NOW), Batch(NOW))
    reads = opener()
    assert [reads.open(each, NOW) for each in (first, first, second, first)] == [
        Batch(NOW), Fate.OLD, Batch(NOW), Fate.OLD,
    ]  # fmt: skip


def test_a_batch_that_never_came_is_missed() -> None:
    batches = sealed_by(Sealer(KEY), *[Batch(NOW)] * 6)
    reads = opener()
    reads.open(batches[1], NOW)  # who begins late misses nothing
    assert reads.missed == 0
    reads.open(batches[5], NOW)
    assert reads.missed == 3


@pytest.mark.parametrize("ago", [MOST_AGE_S + 1, -MOST_AGE_S - 1, float("nan"), float("inf")])
def test_what_was_recorded_long_ago_is_not_played_back(ago: float) -> None:
    assert opener().open(sealed(Batch(NOW - ago)), NOW) is Fate.OLD


def test_ones_own_is_known_as_such() -> None:
    sealer = Sealer(KEY)
    assert Opener(KEY, sealer.sender).open(sealer.seal(Batch(NOW)), NOW) is Fate.OWN


def test_a_nonce_is_never_used_twice() -> None:
    sealer = Sealer(KEY)
    heads = {sealer.seal(Batch(NOW))[:27] for _ in range(100)}
    assert len(heads) == 100
    assert Sealer(KEY).sender != sealer.sender


# Keys


def test_equal_secrets_make_equal_keys_and_others_others() -> None:
    one, same, other = (SharedKeys.of(secret) for secret in (b"s" * 32, b"s" * 32, b"t" * 32))
    assert one.grams.packed == same.grams.packed != other.grams.packed
    assert (one.names, one.ids, one.batches) == (same.names, same.ids, same.batches)
    made = [one.grams.packed[:2048], one.names, one.ids, one.batches, other.names, other.ids, other.batches]
    assert len(set(made)) == len(made)


@few
@given(st.binary(min_size=32, max_size=64), st.integers(1, 3000))
def test_keys_are_as_long_as_asked_for(secret: bytes, size: int) -> None:
    key = expanded(secret, b"purpose", size)
    assert len(key) == size
    assert expanded(secret, b"purpose", size + 1).startswith(key)
    assert size < 16 or expanded(secret, b"other", size) != key


def test_no_key_is_one_that_leaves_the_edge() -> None:
    """A name of a tenant cannot be chosen so that its isolation key is one of these."""
    identity = Identity(b"s" * 32)
    keys = SharedKeys.of(identity.secret)
    tenants = [identity.tenant(name) for name in ("shared ids", "\0\0\0\0", "ids\0\0\0\0\0")]
    shown = {key for tenant in tenants for key in (tenant.isolation_key, tenant.tag)}
    assert not shown & {keys.ids.hex(), keys.names.hex(), keys.batches.hex()}


# The outbox


def test_what_waits_is_taken_in_order_a_batch_at_a_time() -> None:
    box = Outbox()
    box.note(hashes(MOST_HASHES + 5), TAG)
    box.note(hashes(3, start=9_999), TAG, True)
    box.claim(b"c" * 20)
    first, claims = box.take()
    assert [len(each.words) for each in first] == [MOST_HASHES]
    assert claims == (b"c" * 20,)
    second, _ = box.take()
    assert [(each.words[0], len(each.words), each.habit) for each in second] == [
        (MOST_HASHES, 5, False),
        (9_999, 3, True),
    ]
    assert box.take() == ((), ())


@few
@given(st.lists(st.integers(0, 400), max_size=60), st.integers(100, 2000))
def test_the_outbox_has_a_bound_and_drops_the_oldest(sizes: list[int], most: int) -> None:
    box = Outbox(most)
    for number, size in enumerate(sizes):
        box.note(hashes(size, start=number * 1000), TAG)
    taken: list[int] = []
    while (batch := box.take())[0]:
        taken += [int(each.words[0]) // 1000 for each in batch[0]]
    noted = [number for number, size in enumerate(sizes) if size]
    assert taken == noted[len(noted) - len(taken) :]
    assert box.dropped == len(noted) - len(taken)
    assert sum(sizes[number] for number in taken) <= most
    assert not box.full


def test_claims_have_a_bound_too() -> None:
    box = Outbox()
    for number in range(10 * MOST_CLAIMS):
        box.claim(number.to_bytes(20, "big"))
    assert box.dropped == 2 * MOST_CLAIMS
    assert box.take()[1][0] == (2 * MOST_CLAIMS).to_bytes(20, "big")


@few
@given(st.lists(st.integers(1, 300), min_size=1, max_size=400), st.integers(0, 700))
def test_what_is_taken_at_once_is_read(sizes: list[int], claims: int) -> None:
    box = Outbox()
    for size in sizes:
        box.note(hashes(size), TAG)
    for number in range(claims):
        box.claim(number.to_bytes(20, "big"))
    parts, names = box.take()
    assert len(parts) <= MOST_PARTS
    assert isinstance(opener().open(sealed(Batch(NOW, parts, names)), NOW), Batch)


def test_the_largest_batch_is_read() -> None:
    parts = (part(TAG, True, hashes(MOST_HASHES)), *[part(TAG, True, hashes(0))] * (MOST_PARTS - 1))
    batch = Batch(NOW, parts, (b"c" * 20,) * MOST_CLAIMS)
    assert opener().open(sealed(batch), NOW) == batch


def test_threads_lose_nothing() -> None:
    box, woken = Outbox(), list[int]()
    box.wakes(lambda: woken.append(1))

    def fill(number: int) -> None:
        for i in range(100):
            box.note(hashes(7, start=number * 1000 + i * 7), TAG)

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    taken: list[int] = []
    while any(thread.is_alive() for thread in threads) or box.full or len(taken) < 2800:
        taken += [int(value) for each in box.take()[0] for value in each.words]
    assert sorted(taken) == sorted(n * 1000 + i for n in range(4) for i in range(700))
    assert len(woken) == 400


# What is done with it


def test_a_memory_finds_what_another_was_sent_and_only_under_the_same_keys() -> None:
    def memory(secret: bytes, box: Outbox) -> Memory:
        keys = SharedKeys.of(secret)
        return Memory(shared=Shared(keys.grams, keys.names, box.note))

    box = Outbox()
    text = b"the quarterly figures of the northern branch are to be kept from everybody until the end of May, please"
    here, there, stranger = memory(b"s" * 32, box), memory(b"s" * 32, Outbox()), memory(b"t" * 32, Outbox())
    here.sent([text], [b"what the assistant had said before, at some length and in words of its own"], TAG, 0.0)
    ((told,), _) = box.take()
    for each in (there, stranger):
        each.heard(told.words, told.tag, told.habit, 0.0)
    found = there.hashes([text])
    assert len(found) >= 3
    assert there.prompts.owners(found).tolist() == [there.prompts.number(TAG)] * len(found)
    assert not stranger.prompts.owners(stranger.hashes([text])).any()
    assert [here.name(int(value)) for value in found] == [there.name(int(value)) for value in found]


def test_habits_are_told_as_habits() -> None:
    box = Outbox()
    keys = SharedKeys.of(b"s" * 32)
    here, there = (Memory(shared=Shared(keys.grams, keys.names, box.note)) for _ in range(2))
    here.learn(hashes(20), TAG, 0.0)
    ((told,), _) = box.take()
    there.heard(told.words, told.tag, told.habit, 0.0)
    assert there.habits.owners(hashes(20)).all()
    assert not there.prompts.owners(hashes(20)).any()


def two() -> tuple[ResponseIds, ResponseIds, Elsewhere, Elsewhere]:
    """Each hears the other at once."""
    named = claim_names(b"i" * 32)
    told: list[Elsewhere] = []

    def tell(name: bytes) -> None:
        told[0].heard(name)

    first = Elsewhere(named, tell)
    second = Elsewhere(named, first.heard)
    told.append(second)
    return ResponseIds(elsewhere=first), ResponseIds(elsewhere=second), first, second


def test_an_id_that_another_processs_request_got_is_shared() -> None:
    here, there, *_ = two()
    assert here.claim("chatcmpl-1", "r1")
    assert not there.claim("chatcmpl-1", "r2")
    assert there.claim("chatcmpl-2", "r2")
    assert not here.release("chatcmpl-1", "r1")  # it came first, and is told at its end
    assert here.claim("chatcmpl-3", "r3")
    assert here.release("chatcmpl-3", "r3")


def test_an_id_that_ended_elsewhere_is_still_shared() -> None:
    here, there, *_ = two()
    here.claim("chatcmpl-1", "r1")
    here.release("chatcmpl-1", "r1")
    assert not there.claim("chatcmpl-1", "r2")


def test_what_comes_back_of_ones_own_clashes_with_nothing() -> None:
    """After a reload a process hears what it told before."""
    here, _, first, _ = two()
    here.claim("chatcmpl-1", "r1")
    first.heard(claim_names(b"i" * 32)("chatcmpl-1", "r1"))
    assert here.claim("chatcmpl-1", "r1")
    assert here.release("chatcmpl-1", "r1")


def test_ids_of_others_have_a_bound() -> None:
    elsewhere = Elsewhere(claim_names(b"i" * 32), lambda name: None, remembered=10)
    for number in range(100):
        elsewhere.heard(number.to_bytes(12, "big") + b"request.")
    assert len(elsewhere._others) == 10


# Settings

ENVIRONMENT = {"REDIS": "rediss://user:hunter2@redis:6380/0"}
IDENTITY = Identity(b"s" * 32)


def test_settings_are_read() -> None:
    assert read_shared(None, {}, IDENTITY) is None
    said = read_shared({"redis_env": "REDIS", "prefix": "edge-a", "required": True}, ENVIRONMENT, IDENTITY)
    assert said is not None
    assert (said.url, said.key, said.required) == (ENVIRONMENT["REDIS"], "edge-a:shared", True)
    assert "hunter2" not in repr(said)


@pytest.mark.parametrize(
    ("table", "url", "said"),
    [
        ({}, "redis://h", "missing required field `redis_env`"),
        ({"redis_env": "REDIS", "tls": True}, "redis://h", "unknown field `tls`"),
        ({"redis_env": "REDIS", "required": 1}, "redis://h", "shared.required: expected `bool`"),
        ({"redis_env": "REDIS", "prefix": "a b"}, "redis://h", "shared.prefix: expected `str` matching regex"),
        ({"redis_env": "OTHER"}, "redis://h", "no such variable"),
        ({"redis_env": "REDIS"}, "http://:hunter2@h", "REDIS has to hold redis://"),
        ({"redis_env": "REDIS"}, "redis://:hunter2@", "REDIS has to hold redis://"),
        ({"redis_env": "REDIS"}, "redis://:hunter2@h:port", "REDIS has to hold redis://"),
        ({"redis_env": "REDIS"}, "unix://", "REDIS has to hold redis://"),
    ],
)
def test_a_mistake_is_said_without_the_password(table: dict[str, object], url: str, said: str) -> None:
    with pytest.raises(Usage) as error:
        read_shared(table, {"REDIS": url}, IDENTITY)
    assert said in str(error.value)
    assert "hunter2" not in str(error.value)


def test_without_a_common_secret_nothing_is_shared() -> None:
    with pytest.raises(Usage, match="PAGEFENCE_EDGE_SECRET"):
        read_shared({"redis_env": "REDIS"}, ENVIRONMENT, Identity(b"s" * 32, made_here=True))
