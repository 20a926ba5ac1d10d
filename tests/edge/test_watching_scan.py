"""Text of other tenants is found in answers, wherever it stands and however it comes; what explains it is let pass."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from bench.edge_rates import simulate
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.edge.watching import grams_numpy
from pagefence.edge.watching.generations import Bounds, Generations
from pagefence.edge.watching.grams import COMMON, FOLD, LENGTH, WINDOW, Roll, Secrets, Words, library, winnowed
from pagefence.edge.watching.memory import Manner, Memory
from pagefence.edge.watching.scanner import Scanner, Sighting
from pagefence.edge.watching.sentinels import Reading, Sentinels
from pagefence.probes.sentinel import Sentinel, look
from pagefence.probes.wordlist import WORDS

SMALL = Bounds(slots_log2=12)
SECRETS = Secrets.make()
NOTHING = np.empty(0, np.uint64)
WAYS = [pytest.param(False, id="numpy"), pytest.param(True, id="compiled", marks=pytest.mark.skipif(
    library() is None, reason="there was no C compiler when PageFence was installed"))]  # fmt: skip
SOME = settings(max_examples=40, deadline=None)
FEW = settings(max_examples=12, deadline=None)
texts = st.text(alphabet="abAB ,.\n1é漢", max_size=300).map(str.encode)


def words(count: int, seed: int) -> bytes:
    return " ".join(random.Random(seed).choices(WORDS, k=count)).encode()


def chunked(text: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(places)]


def taken(text: bytes, compiled: bool) -> list[int]:
    return [int(value) for value in winnowed(text, Roll(), SECRETS, compiled)[0]]


def asked(memory: Memory, tenant: str, text: bytes, said: bytes = b"") -> Words:
    return memory.sent([text], [said] if said else [], tenant, 0.0)


def answer(memory: Memory, tenant: str, own: Words, text: bytes, cuts: list[int] | None = None) -> list[Sighting]:
    scanner = Scanner(memory, own, tenant)
    seen = [s for chunk in chunked(text, cuts or []) for s in scanner.feed(chunk)]
    return seen + scanner.end(0.0)


@pytest.fixture(params=WAYS)
def memory(request: pytest.FixtureRequest) -> Memory:
    return Memory(SMALL, compiled=request.param)


# --- k-grams


@pytest.mark.parametrize("compiled", WAYS)
@SOME
@given(text=texts, cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_chunks_change_nothing(compiled: bool, text: bytes, cuts: list[int]) -> None:
    roll, pieces = Roll(), list[int]()
    for chunk in chunked(text, cuts):
        pieces += winnowed(chunk, roll, SECRETS, compiled)[0].tolist()
    assert pieces == taken(text, compiled)


@pytest.mark.skipif(library() is None, reason="there was no C compiler when PageFence was installed")
@SOME
@given(text=texts | st.binary(max_size=500), window=st.sampled_from([1, WINDOW]))
def test_the_compiled_half_takes_what_numpy_takes(text: bytes, window: int) -> None:
    fast, slow = (winnowed(text, Roll(), SECRETS, way, window) for way in (True, False))
    assert fast[0].tolist() == slow[0].tolist()
    assert fast[1].tolist() == slow[1].tolist()


@SOME
@given(shared=st.text("abcdefgh", min_size=LENGTH + WINDOW - 1, max_size=80), a=texts, b=texts, c=texts, d=texts)
def test_texts_that_share_a_run_share_a_hash(shared: str, a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    assert set(taken(a + shared.encode() + b, True)) & set(taken(c + shared.upper().encode() + d, True))


def test_hashes_are_those_of_the_definition() -> None:
    text = bytes(FOLD[list(words(8, 1))]).replace(b"\0", b"")
    table = SECRETS.table[0].tolist()
    expected = []
    for start in range(len(text) - LENGTH + 1):
        value = 0
        for byte in text[start : start + LENGTH]:
            value = ((value << 1 | value >> 63) & (1 << 64) - 1) ^ table[byte]
        expected.append(value)
    assert winnowed(text, Roll(), SECRETS, window=1)[0].tolist() == expected


def test_siphash_is_the_published_one() -> None:
    """SipHash-1-3 of the bytes 0 to 7 under the key 0 to 15, as the reference implementation's vectors have it."""
    key = np.frombuffer(bytes(range(16)), np.uint64)
    word = np.frombuffer(bytes(range(8)), np.uint64)
    assert grams_numpy.sip(key, word).tolist() == [
        reference_sip13(0x0706050403020100, 0x0F0E0D0C0B0A0908, bytes(range(8)))
    ]


def reference_sip13(k0: int, k1: int, data: bytes) -> int:
    """Aumasson and Bernstein's definition, for eight bytes."""
    low = (1 << 64) - 1
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> 64 - by) & low

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = v[0] + v[1] & low
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = v[2] + v[3] & low
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = v[0] + v[3] & low
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = v[2] + v[1] & low
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    for block in (int.from_bytes(data, "little"), len(data) << 56):
        v[3] ^= block
        rounds(1)
        v[0] ^= block
    v[2] ^= 0xFF
    rounds(3)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


# --- what is remembered


@FEW
@given(notes=st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(1, 60), max_size=30)), max_size=12))
@pytest.mark.parametrize("compiled", WAYS)
def test_owners_are_those_of_a_plain_dictionary(compiled: bool, notes: list[tuple[int, list[int]]]) -> None:
    generations, plain = Generations(SMALL, compiled=compiled), dict[int, set[int]]()
    for tenant, values in notes:
        generations.note(np.array(values, np.uint64), f"tenant-{tenant}", 0.0)
        for value in values:
            plain.setdefault(value, set()).add(tenant)
    found = generations.owners(np.arange(1, 61, dtype=np.uint64)).tolist()
    for value, owner in zip(range(1, 61), found, strict=True):
        whose = plain.get(value, set())
        assert (owner == 0, owner == COMMON) == (not whose, len(whose) > 1)
        assert owner <= COMMON or generations.tag(owner) == f"tenant-{next(iter(whose))}"


@pytest.mark.parametrize("compiled", WAYS)
def test_memory_does_not_grow_and_the_newest_is_kept(compiled: bool) -> None:
    generations, chance = Generations(Bounds(10, share=1.0), compiled=compiled), np.random.default_rng(1)
    drawn = [chance.integers(1, 2**63, 100).astype(np.uint64) for _ in range(60)]
    for values in drawn:
        generations.note(values, "one", 0.0)
    kept = generations.bounds.least_kept // 100
    assert generations.turned_over > 5
    assert generations.bounds.memory == 2 * 8 * 1024
    assert all(generations.owners(values).all() for values in drawn[-kept:])
    assert not any(generations.owners(values).any() for values in drawn[:40])


def test_what_is_old_is_forgotten_with_its_key() -> None:
    generations = Generations(Bounds(10, age_s=60.0))
    values = np.arange(1, 50, dtype=np.uint64)
    generations.note(values, "one", 0.0)
    for now in (61.0, 122.0):
        assert generations.owners(values).all()
        generations.note(np.array([99], np.uint64), "two", now)
    assert not generations.owners(values).any()


def test_one_tenant_cannot_drive_the_others_out() -> None:
    generations = Generations(Bounds(10, share=0.25))
    generations.note(np.arange(1, 50, dtype=np.uint64), "quiet", 0.0)
    for start in range(1_000, 200_000, 100):
        generations.note(np.arange(start, start + 100, dtype=np.uint64), "loud", 0.0)
    assert generations.owners(np.arange(1, 50, dtype=np.uint64)).all()
    assert generations.left_out > 100_000


def test_the_same_text_has_other_fingerprints_in_every_process() -> None:
    one, two = Memory(SMALL), Memory(SMALL)
    assert not set(one.hashes([words(50, 1)]).tolist()) & set(two.hashes([words(50, 1)]).tolist())


# --- the scan


@FEW
@given(cuts=st.lists(st.integers(0, 5000), max_size=40), start=st.integers(0, 180), seed=st.integers(0, 99))
@pytest.mark.parametrize("compiled", WAYS)
def test_twenty_words_of_another_are_found_however_the_answer_is_cut(
    compiled: bool, cuts: list[int], start: int, seed: int
) -> None:
    memory = Memory(SMALL, compiled=compiled)
    secret = words(200, 1_000 + seed)
    asked(memory, "victim", secret)
    own = asked(memory, "reader", words(50, 2_000 + seed))
    leak = b" ".join(secret.split()[start : start + 20])
    seen = answer(memory, "reader", own, words(30, 3_000) + b"\n> " + leak.upper() + b"**\n" + words(30, 4_000), cuts)
    assert [sighting.owner_tag for sighting in seen] == ["victim"]


def test_a_leak_is_seen_before_the_answer_ends(memory: Memory) -> None:
    asked(memory, "victim", words(100, 1))
    scanner = Scanner(memory, asked(memory, "reader", words(9, 2)), "reader")
    passed = 0
    for byte in words(100, 1):
        passed += 1
        if scanner.feed(bytes([byte])):
            break
    assert passed <= 3 * memory.manner.every


def test_an_answer_may_hold_its_own_prompt_and_what_the_assistant_had_said(memory: Memory) -> None:
    asked(memory, "other", words(100, 2))  # which has come to another tenant's prompt as well
    own = asked(memory, "reader", words(100, 1), said=words(100, 2))
    assert not answer(memory, "reader", own, words(100, 1) + words(100, 2))


def test_its_own_prompt_is_known_when_its_fingerprints_are_forgotten(memory: Memory) -> None:
    own = asked(memory, "reader", words(100, 1))
    for _ in range(memory.bounds.generations):
        memory.prompts.turn_over(0.0)
    asked(memory, "other", words(100, 1))
    assert not answer(memory, "reader", own, words(100, 1))
    assert answer(memory, "reader", NOTHING, words(100, 1))


def test_an_earlier_prompt_of_the_same_tenant_is_no_leak(memory: Memory) -> None:
    asked(memory, "reader", words(100, 1))
    assert not answer(memory, "reader", asked(memory, "reader", words(9, 2)), words(100, 1))


def test_what_several_tenants_sent_is_nobodys(memory: Memory) -> None:
    asked(memory, "one", words(100, 1))
    assert answer(memory, "reader", NOTHING, words(100, 1))
    asked(memory, "two", words(100, 1))
    assert not answer(memory, "reader", NOTHING, words(100, 1))


def test_what_is_published_is_no_leak_whatever_stands_around_it(memory: Memory) -> None:
    memory.publish([words(100, 1)])
    asked(memory, "other", words(7, 5) + b" " + words(100, 1))
    part = b" ".join(words(100, 1).split()[13:60])
    assert not answer(memory, "reader", NOTHING, words(7, 6) + b" " + part + b" " + words(7, 7))


def test_what_the_model_says_to_several_tenants_is_its_habit(memory: Memory) -> None:
    for tenant in ("one", "two"):
        assert not answer(memory, tenant, NOTHING, words(60, 1))
    asked(memory, "other", words(60, 1))
    assert not answer(memory, "reader", NOTHING, words(60, 1))


def test_a_leak_does_not_become_a_habit(memory: Memory) -> None:
    asked(memory, "victim", words(60, 1))
    for number in range(5):
        assert answer(memory, f"reader-{number}", NOTHING, words(60, 1))


def test_a_few_common_words_are_no_finding(memory: Memory) -> None:
    asked(memory, "other", words(100, 1))
    for start in range(0, 96, 3):  # three words are hardly longer than one k-gram, and it takes three of those
        few = b" ".join(words(100, 1).split()[start : start + 3])
        assert not answer(memory, "reader", NOTHING, words(20, 500) + b" " + few + b" " + words(20, 501))


def test_an_alarm_takes_as_many_k_grams_as_the_manner_says() -> None:
    memory = Memory(SMALL, Manner(distinct=12))
    asked(memory, "victim", words(200, 1))
    assert not answer(memory, "reader", NOTHING, b" ".join(words(200, 1).split()[:16]))
    assert answer(memory, "reader", NOTHING, words(200, 1))


def test_over_a_mixed_load_leaks_are_found_and_honest_answers_pass() -> None:
    rates = simulate(seed=3, requests=90, published=True)
    assert sum(rates.found[n] for n in (20, 24, 32, 64)) >= 0.95 * sum(rates.leaks[n] for n in (20, 24, 32, 64))
    assert rates.alarms["all"] <= 0.03 * rates.honest["all"]


# --- sentinels


@pytest.mark.parametrize("compiled", WAYS)
@SOME
@given(
    said=st.lists(st.sampled_from([*WORDS[:9], "x", "Stop."]), max_size=20),
    between=st.sampled_from([" ", ", ", "\n-", " 7 "]),
    cuts=st.lists(st.integers(0, 300), max_size=8),
)
def test_shards_are_those_of_the_canary(compiled: bool, said: list[str], between: str, cuts: list[int]) -> None:
    planted = [Sentinel("a", "t", WORDS[:6]), Sentinel("b", "t", WORDS[3:9])]
    reading = Reading(Sentinels(planted, compiled))
    text = between.join(said)
    for chunk in chunked(text.encode(), cuts):
        reading.feed(chunk)
    reading.end()
    for number, sentinel in enumerate(planted):
        seen = look(text, sentinel).shards
        places = reading.shards.get(number, set())
        assert {(sentinel.words[a], sentinel.words[b]) for a, b in places} == set(seen)
        assert (number in dict(reading.found())) == look(text, sentinel).proof
