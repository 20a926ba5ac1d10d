"""Counts, ends, order, times and cached tokens of an answer are held against what was asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.edge.call import Call, Operation, Tenant
from pagefence.edge.demand import Admitted
from pagefence.edge.refusal import body_of
from pagefence.edge.watching import (
    Action,
    Actions,
    Book,
    Bounds,
    Expected,
    Finding,
    Kind,
    Memory,
    Prefixes,
    Sentinels,
    Watch,
    of_admitted,
    orders,
    read_sentinels,
)
from pagefence.edge.watching.expected import prompt_texts
from pagefence.edge.watching.finding import Doubt
from pagefence.edge.watching.order import ResponseIds
from pagefence.mistakes import Usage
from pagefence.probes.latency.floor import Physics
from pagefence.probes.latency.tally import Floors
from pagefence.probes.sentinel import Sentinel
from pagefence.probes.wordlist import WORDS

CAPTURED = Path(__file__).parent.parent / "fleet" / "captured"
EXPECTED = Expected("req-1", "tag-1", Operation.CHAT, stream=True, prompt_tokens=37, asked_new_tokens=8)
USAGE = {"prompt_tokens": 37, "completion_tokens": 8, "total_tokens": 45}
SLOW = Floors(Physics(work_flop=1.0, peak=1.0))  # a second a token


def event(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    delta = {} if text is None else {"content": text}
    choice = {"index": more.pop("index", 0), "delta": delta, "finish_reason": finish}
    return msgspec.json.encode({"id": "a", "model": "m", "choices": [choice], **more})


def last(**usage: object) -> bytes:
    return msgspec.json.encode({"id": "a", "model": "m", "choices": [], "usage": {**USAGE, **usage}})


GOOD = [event("Hello"), event(" world"), event(finish="length"), last(), b"[DONE]"]


def streamed(
    events: list[bytes], expected: Expected = EXPECTED, book: Book | None = None, at: float = 1.0, complete: bool = True
) -> list[Finding]:
    watch = Watch(book or Book(), expected, 0.0)
    watch.headers(200, 0.1)
    found = [finding for data in events for finding in watch.event(data, at)]
    return found + watch.end(at + 1, complete)


def whole(body: object, expected: Expected = EXPECTED, status: int = 200, book: Book | None = None) -> list[Finding]:
    watch = Watch(book or Book(), replace(expected, stream=False), 0.0)
    watch.headers(status, 0.1)
    return watch.body(msgspec.json.encode(body), 1.0) + watch.end(1.0)


def kinds(findings: list[Finding]) -> list[Kind]:
    return [finding.kind for finding in findings]


def call(body: dict[str, Any], tenant: str = "one", operation: Operation = Operation.CHAT) -> Call:
    return Call(operation, Tenant(tenant, f"key of {tenant}", f"tag-{tenant}"), "req-1", body, "m", True)


def chat(*contents: str, **more: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)], **more}


# --- what is right


def test_a_good_stream_has_no_finding() -> None:
    assert not streamed(GOOD)


@pytest.mark.parametrize("path", sorted(CAPTURED.glob("*/**/normal_chat_stream.sse")), ids=lambda p: p.parts[-2])
def test_what_real_engines_stream_has_no_finding(path: Path) -> None:
    events = [line[6:] for line in path.read_bytes().splitlines() if line.startswith(b"data: ")]
    assert events
    assert not streamed(events, replace(EXPECTED, prompt_tokens=None, at_most=500, asked_new_tokens=None))


def test_what_is_not_judged_is_told() -> None:
    watch = Watch(Book(), EXPECTED, 0.0)
    watch.headers(200, 0.1)
    for data in (event("Hello"), event(finish="stop"), b"[DONE]"):
        assert not watch.event(data, 1.0)
    assert not watch.end(2.0)
    assert [reason.split(":")[0] for reason in watch.not_judged] == ["counts", "time"]


def test_a_refusal_is_no_answer() -> None:
    assert not whole({"error": {"message": "too long", "code": 400}}, status=400)


# --- each thing that can be wrong

WRONG: dict[str, tuple[list[bytes], list[Kind]]] = {
    "another prompt was answered": ([*GOOD[:3], last(prompt_tokens=1, total_tokens=9), GOOD[4]], [Kind.PROMPT_TOKENS]),
    "usage that does not add up": ([*GOOD[:3], last(total_tokens=44), GOOD[4]], [Kind.USAGE]),
    "more cached than there is": (
        [*GOOD[:3], last(prompt_tokens_details={"cached_tokens": 38}), GOOD[4]], [Kind.USAGE]),
    "negative counts": ([*GOOD[:3], last(completion_tokens=-1), GOOD[4]], [Kind.USAGE]),
    "more tokens than asked for": ([*GOOD[:3], last(completion_tokens=9, total_tokens=46), GOOD[4]], [Kind.USAGE]),
    "text of no tokens": ([event("Hi"), event(finish="stop"), last(completion_tokens=0, total_tokens=37), GOOD[4]],
        [Kind.USAGE]),
    "an abort that became a normal finish": (
        [event(finish="length"), last(completion_tokens=0, total_tokens=37), b"[DONE]"],
        [Kind.NO_CONTENT, Kind.CUT_SHORT]),
    "length before the tokens asked for": ([*GOOD[:3], last(completion_tokens=7, total_tokens=44), GOOD[4]],
        [Kind.CUT_SHORT]),
    "no finish reason": ([GOOD[0], GOOD[3], GOOD[4]], [Kind.NO_END]),
    "no last event": (GOOD[:4], [Kind.NO_END]),
    "a finish reason of its own": ([GOOD[0], event(finish="abort"), GOOD[3], GOOD[4]], [Kind.NO_END]),
    "an error inside of a stream": ([GOOD[0], b'{"error":{"message":"gone","code":500}}', GOOD[4]],
        [Kind.ERROR_IN_STREAM]),
    "another id": ([GOOD[0], event(" x", id="b"), *GOOD[2:]], [Kind.MIXED_STREAM]),
    "another model": ([GOOD[0], event(" x", model="n"), *GOOD[2:]], [Kind.MIXED_STREAM]),
    "a choice that was not asked for": ([GOOD[0], event(" x", index=1), *GOOD[2:]], [Kind.MIXED_STREAM]),
    "text after the finish reason": ([*GOOD[:3], event(" x"), *GOOD[3:]], [Kind.AFTER_END]),
    "an event after the end": ([*GOOD, event()], [Kind.AFTER_END]),
    "two ends": ([*GOOD, b"[DONE]"], [Kind.AFTER_END]),
    "no JSON": ([b"<html>", *GOOD], [Kind.MALFORMED]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_and_nothing_else(name: str) -> None:
    events, wanted = WRONG[name]
    assert kinds(streamed(events)) == wanted


def test_bounds_are_enough_where_nothing_was_counted() -> None:
    bounded = replace(EXPECTED, prompt_tokens=None, at_least=10, at_most=40)
    assert not streamed(GOOD, bounded)
    assert kinds(streamed(GOOD, replace(bounded, at_most=36))) == [Kind.PROMPT_TOKENS]
    assert kinds(streamed(GOOD, replace(bounded, at_least=38))) == [Kind.PROMPT_TOKENS]


def test_a_client_that_went_leaves_no_finding_behind() -> None:
    assert not streamed(GOOD[:2], complete=False)


@pytest.mark.parametrize("path", sorted(CAPTURED.glob("sglang*/pd-router/over_1100_chat_stream.sse")))
def test_an_error_that_a_real_engine_streams_is_found(path: Path) -> None:
    events = [line[6:] for line in path.read_bytes().splitlines() if line.startswith(b"data: ")]
    assert kinds(streamed(events)) == [Kind.ERROR_IN_STREAM]


def test_a_whole_answer_is_judged_the_same() -> None:
    choice = {"index": 0, "message": {"content": "Hi"}, "finish_reason": "length"}
    body: dict[str, object] = {"id": "a", "model": "m", "choices": [choice]}
    assert not whole({**body, "usage": USAGE})
    assert kinds(whole({**body, "usage": {**USAGE, "prompt_tokens": 1, "total_tokens": 9}})) == [Kind.PROMPT_TOKENS]


def test_the_responses_api_is_read() -> None:
    created = {"type": "response.created", "response": {"id": "r", "model": "m"}}
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"}
    usage = {"input_tokens": 36, "output_tokens": 1, "total_tokens": 37}
    done = {"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": usage, "output": []}}
    expected = replace(EXPECTED, operation=Operation.RESPONSE, choices=None)
    events = [msgspec.json.encode(e) for e in (created, delta, done)]
    assert kinds(streamed(events, expected)) == [Kind.PROMPT_TOKENS]
    assert not streamed(events, replace(expected, prompt_tokens=36))
    assert kinds(streamed(events[:2], replace(expected, prompt_tokens=36))) == [Kind.NO_END, Kind.NO_END]


def test_no_two_requests_get_one_response_id() -> None:
    book = Book()
    first = Watch(book, EXPECTED, 0.0)
    first.headers(200, 0.1)
    assert not first.event(GOOD[0], 0.2)
    assert kinds(streamed(GOOD, replace(EXPECTED, request_id="req-2"), book)) == [Kind.SHARED_ID]
    first.end(1.0, complete=False)
    assert kinds(streamed(GOOD, replace(EXPECTED, request_id="req-3"), book)) == [Kind.SHARED_ID]


def test_an_upstream_that_changes_its_ids_fills_no_memory() -> None:
    book = Book()
    watch = Watch(book, EXPECTED, 0.0)
    watch.headers(200, 0.1)
    for number in range(100):
        watch.event(event("Hello").replace(b'"id":"a"', b'"id":"chatcmpl-%032d"' % number), 0.2)
    watch.end(1.0)
    assert len(book.ids._live) == 0
    assert len(book.ids._ended) == 1


@pytest.mark.parametrize(("name", "sure"), [("chatcmpl-7", False), ("chatcmpl-1796069337", False), ("f" * 32, True)])
def test_only_a_long_id_is_surely_of_one_answer(name: str, sure: bool) -> None:
    """Some servers take theirs from a clock, and a few mint one for each chunk."""
    book = Book()
    answer = [event("Hello", id=name), event(finish="stop", id=name), b"[DONE]"]
    assert not streamed(answer, replace(EXPECTED, request_id="req-1"), book)
    (again,) = streamed(answer, replace(EXPECTED, request_id="req-2"), book)
    assert (again.kind, again.doubt.sure) == (Kind.SHARED_ID, sure)
    (mixed,) = streamed([event("Hello", id="first"), *answer], replace(EXPECTED, request_id="req-3"), Book())
    assert (mixed.kind, mixed.doubt.sure) == (Kind.MIXED_STREAM, sure)


def test_a_server_that_gives_no_ids_is_no_finding() -> None:
    book = Book()
    for number in range(2):
        answer = [event("Hello", id=""), event(finish="stop", id=""), b"[DONE]"]
        assert not streamed(answer, replace(EXPECTED, request_id=f"req-{number}"), book)


# --- time


def test_a_first_token_before_its_time_is_found() -> None:
    cached = [*GOOD[:3], last(prompt_tokens_details={"cached_tokens": 0}), GOOD[4]]
    assert kinds(streamed(cached, book=Book(floors=SLOW), at=36.0)) == [Kind.TOO_FAST]
    assert not streamed(cached, book=Book(floors=SLOW), at=37.0)


@pytest.mark.parametrize(("cached", "sure"), [(None, False), (0, True)])
def test_a_cache_that_nobody_tells_of_leaves_a_doubt(cached: int | None, sure: bool) -> None:
    details: dict[str, object] = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    found = streamed([*GOOD[:3], last(**details), GOOD[4]], book=Book(floors=SLOW))
    assert [(finding.kind, finding.doubt.sure) for finding in found] == [(Kind.TOO_FAST, sure)]


# --- cached tokens


def history(prefixes: Prefixes, body: dict[str, Any], tenant: str = "one") -> int | None:
    return prefixes.sent(call(body, tenant)).cached_at_most


def test_a_first_prompt_can_have_nothing_in_a_cache() -> None:
    prefixes = Prefixes(slack=0, complete=True)
    expected = replace(EXPECTED, cached_at_most=history(prefixes, chat("Hello" * 50)), history_complete=True)
    assert kinds(streamed([*GOOD[:3], last(prompt_tokens_details={"cached_tokens": 16}), GOOD[4]], expected)) == [
        Kind.FOREIGN_CACHE
    ]
    assert history(prefixes, chat("Hello" * 50), "two") == 0


def test_a_prompt_that_was_sent_before_may_be_cached_as_a_whole() -> None:
    prefixes = Prefixes(slack=0)
    history(prefixes, chat("Hello" * 50))
    assert history(prefixes, chat("Hello" * 50)) is None


def test_another_beginning_bounds_what_is_cached() -> None:
    prefixes = Prefixes(slack=0)
    history(prefixes, chat("Hello" * 50))
    bound = history(prefixes, chat("World" * 500))
    assert bound is not None
    assert bound <= 64


def test_a_conversation_that_goes_on_may_find_its_answer_in_the_cache() -> None:
    prefixes = Prefixes(slack=0)
    history(prefixes, chat("Hello"))
    bound = history(prefixes, chat("Hello", "a long answer " * 200, "and " * 2000))
    assert bound is not None
    assert 14 * 200 < bound < 14 * 200 + 200


def test_of_a_long_prompt_the_beginning_decides() -> None:
    prefixes = Prefixes(slack=0)
    history(prefixes, chat("a" * 200_000))
    assert history(prefixes, chat("a" * 100_000 + "b" * 100_000)) is None  # so far nobody looks
    bound = history(prefixes, chat("a" * 40_000 + "b" * 160_000))
    assert bound is not None
    assert 40_000 < bound <= 65_536
    history(prefixes, {"prompt": [7] * 200_000})
    assert history(prefixes, {"prompt": [8] * 200_000}) == 64


def test_of_a_long_answer_in_a_conversation_all_may_be_in_the_cache() -> None:
    prefixes = Prefixes(slack=0)
    history(prefixes, chat("Hello"))
    bound = history(prefixes, chat("Hello", "a long answer " * 10_000, "and"))
    assert bound is not None
    assert bound > 140_000


def test_pictures_bound_nothing() -> None:
    prefixes = Prefixes(slack=0)
    history(prefixes, chat("Hello"))
    picture = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
    assert history(prefixes, picture) is None


@settings(max_examples=60, deadline=None)
@given(
    one=st.lists(st.text("ab", max_size=90), min_size=1, max_size=5),
    two=st.lists(st.text("ab", max_size=90), min_size=1, max_size=5),
)
def test_the_bound_never_lies_below_what_two_prompts_share(one: list[str], two: list[str]) -> None:
    prefixes, texts = Prefixes(slack=0), (chat(*one), chat(*two))
    first, second = (b"".join(msgspec.json.encode(m, order="sorted") for m in t["messages"]) for t in texts)
    history(prefixes, texts[0])
    bound = history(prefixes, texts[1])
    shared = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(map(len, (first, second)))
    )
    assert bound is None or bound >= shared


def test_a_forgotten_history_is_no_proof() -> None:
    prefixes = Prefixes(complete=True, kept=3)
    for number in range(9):
        history(prefixes, chat(f"{number}" * 100), f"tenant-{number}")
    assert not prefixes.sent(call(chat("x"), "one")).complete


# --- what is done


def finding(kind: Kind, sure: bool = True) -> Finding:
    return Finding("req-1", "tag-1", Doubt(kind, "what", sure))


def test_text_of_another_tenant_never_goes_out_of_a_buffer() -> None:
    done = orders([finding(Kind.FOREIGN_TEXT)], Actions(), buffered=True, at=1.0)
    assert done.instead is not None
    assert (done.instead.status, done.instead.code) == (502, "answer_withheld")
    assert done.alert is not None


def test_a_stream_is_cut_for_words_that_were_planted_for_somebody_else() -> None:
    assert orders([finding(Kind.SENTINEL)], Actions(), buffered=False, at=1.0).instead is not None
    assert orders([finding(Kind.FOREIGN_TEXT)], Actions(), buffered=False, at=1.0).instead is None


def test_what_may_be_legal_is_told_and_no_more() -> None:
    done = orders([finding(Kind.FOREIGN_TEXT, sure=False)], Actions(), buffered=True, at=1.0)
    assert (done.instead, done.alert) == (None, None)
    assert done.lines and done.counted == (finding(Kind.FOREIGN_TEXT, sure=False),)
    assert orders([finding(Kind.FOREIGN_TEXT, sure=False)], Actions(doubts_too=True), True, 1.0).instead is not None


@given(kind=st.sampled_from(Kind), chosen=st.frozensets(st.sampled_from(Action)), buffered=st.booleans())
def test_what_is_done_is_what_was_chosen(kind: Kind, chosen: frozenset[Action], buffered: bool) -> None:
    done = orders([finding(kind)], Actions({kind: chosen}), buffered, 1.0)
    stops = Action.CUT in chosen or (buffered and Action.QUARANTINE in chosen)
    assert (bool(done.lines), bool(done.counted)) == (Action.LOG in chosen, Action.METRIC in chosen)
    assert (done.alert is not None, done.instead is not None) == (Action.ALERT in chosen, stops)


# --- sentinels


@pytest.mark.parametrize(
    ("said", "sure"),
    [
        ([0, 1, 2, 3], [True]),
        ([0, 1, 2], [False]),
        ([0, 1, None, 3, 4], [True]),
        ([0, 1, 2, None, 4, 5], [True]),
        ([0, 1], []),
        ([3, 2, 1, 0], []),
    ],
)
def test_two_shards_without_a_common_word_are_proof(said: list[int | None], sure: list[bool]) -> None:
    """Three listed words in a row stand in honest text now and then: two shards, of three words."""
    text = " ".join("and" if place is None else WORDS[place] for place in said)
    book = Book(sentinels=Sentinels([Sentinel("0", "planter", WORDS[:6])]))
    found = whole(
        {"id": "a", "choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}]}, book=book
    )
    assert [each.doubt.sure for each in found if each.kind is Kind.SENTINEL] == sure


def test_what_was_a_doubt_is_told_again_when_it_is_proof() -> None:
    book = Book(sentinels=Sentinels([Sentinel("0", "planter", WORDS[:6])]))
    between = " is what I would say to that, whatever anybody else may think of it; but " * 2
    parts = [" ".join(WORDS[:3]), between, " ".join(WORDS[3:6]), " and so on" * 20]
    found = streamed([*(event(part) for part in parts), event(finish="length"), last(), b"[DONE]"], book=book)
    assert [each.doubt.sure for each in found if each.kind is Kind.SENTINEL] == [False, True]


# --- the whole of it


def test_a_leak_is_found_from_the_request_to_the_order() -> None:
    memory = Memory(Bounds(slots_log2=12))
    book = Book(memory, Sentinels([Sentinel("0", "planter", WORDS[:6])]), Prefixes(complete=True))
    secret = " ".join(WORDS[100:160])
    book.opened(Admitted(call(chat(secret), "victim"), 100, 200, 8), 0.0)
    expected = book.opened(Admitted(call(chat("Hello")), 37, 40, 8), 0.0)
    events = [event(f" {word}") for word in (*WORDS[100:130], *WORDS[:6])]
    found = streamed([*events, *GOOD[2:]], expected, book)
    assert kinds(found) == [Kind.FOREIGN_TEXT, Kind.SENTINEL]
    assert found[0].doubt.owner == "tag-victim"


def test_token_ids_are_no_text() -> None:
    ids: list[dict[str, Any]] = [{"prompt": [1, 2]}, {"prompt": [[1, 2], [3]]}]
    assert [prompt_texts(call(body, operation=Operation.COMPLETION)) for body in ids] == [([], [])] * 2
    assert prompt_texts(call({"input": ["a", "b"]}, operation=Operation.EMBEDDING)) == ([b"a", b"b"], [])


def test_expectations_come_from_the_request() -> None:
    asked = of_admitted(Admitted(call(chat("Hi", n=3, max_tokens=5)), None, 40, 5), at_least=2)
    assert (asked.choices, asked.asked_new_tokens, asked.least_tokens, asked.most_tokens) == (3, 5, 2, 40)
    body = {"prompt": ["a", "b"], "n": 2}
    assert of_admitted(Admitted(call(body, operation=Operation.COMPLETION), 9, 9, 5)).choices == 4
    assert of_admitted(Admitted(call({"input": "a"}, operation=Operation.EMBEDDING), 9, 9, 5)).choices is None


def test_of_a_long_response_id_little_is_kept() -> None:
    """Upstream may say one of megabytes, and thousands are remembered."""
    ids, name = ResponseIds(), "a" * 100_000
    assert ids.claim(name, "one")
    assert not ids.claim(name, "two")
    assert ids.others(name, "two")
    assert ids.claim(name[1:], "three")
    for request in ("one", "two", "three"):
        assert ids.release(name[1:] if request == "three" else name, request)
    assert not ids.claim(name, "four")
    assert max(map(len, (*ids._live, *ids._ended))) == 64


def test_sentinels_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sentinels.json"
    path.write_bytes(msgspec.json.encode({"sentinels": [{"tenant": "a", "words": list(WORDS[:6])}]}))
    assert read_sentinels(path)[0].words == WORDS[:6]
    path.write_bytes(b'{"sentinels": [{"tenant": "a", "words": ["one", "Two!", "x"]}]}')
    with pytest.raises(Usage, match="letters a to z"):
        read_sentinels(path)


@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(st.lists(st.sampled_from(WORDS), min_size=12, max_size=40), min_size=2, max_size=3),
    id_=st.sampled_from(WORDS), finish=st.sampled_from(["stop", *WORDS[:3]]), junk=st.booleans(),
)  # fmt: skip
def test_no_word_of_prompt_or_answer_stands_in_a_finding(
    prompts: list[list[str]], id_: str, finish: str, junk: bool
) -> None:
    memory = Memory(Bounds(slots_log2=12))
    book = Book(memory, Sentinels([Sentinel("0", "planter", tuple(prompts[0][:6]))]), floors=SLOW)
    for number, prompt in enumerate(prompts[:-1]):
        body = chat(" ".join(prompt) * 2)
        book.opened(Admitted(call(body, f"{number}"), 100, 200, 8), 0.0)
    expected = book.opened(Admitted(call(chat(" ".join(prompts[-1])), "reader"), 100, 200, 8), 0.0)
    said = [event(" ".join(prompt) * 2, id=id_ if i else "x") for i, prompt in enumerate(prompts)]
    junked = [msgspec.json.encode([" ".join(prompts[0])])] if junk else []
    found = streamed(
        [*said, *junked, event(finish=finish, id=id_), last(), b'{"error":"' + id_.encode() + b'"}'], expected, book
    )
    assert found
    done = orders(found, Actions(), False, 1.0)
    refused = body_of(done.instead) if done.instead else b""
    told = [msgspec.json.encode(done.lines), done.alert or b"", refused, repr(found).encode()]
    fixed = " ".join([*map(str, Kind), *(f.doubt.what for f in found), refused.decode(), FIELDS]).lower()
    written = {word for prompt in prompts for word in prompt} | {id_, finish}
    # Left out: what sentences and fields of ours hold, and what could be part of a hash.
    for word in (word for word in written if word not in fixed and not set(word) <= set("abcdef")):
        assert not any(word.encode() in text for text in told), word


FIELDS = (
    "Finding Doubt Kind request_id tenant_tag doubt kind what sure facts owner hashes event at actions log metric "
    "alert quarantine cut rule owner_tag schema_version source pagefence edge findings folded_bytes k_grams "
    "sentinel shards told at_least at_most choices index ttft_s floor_s tokens cached choices_begun asked true false "
    "None null req-1 tag-"
)
