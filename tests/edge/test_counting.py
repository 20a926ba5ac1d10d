"""A count by parts is the count of the whole; it ends early, is given up, and never waits in an endless queue."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers

from pagefence.edge.admission import AdmissionSettings, Counted, ModelBounds, NeedsCount, bounds_of_model, decide
from pagefence.edge.call import Call, Tenant
from pagefence.edge.capacity import Capacity, Room
from pagefence.edge.counting import Counting, CountingSettings, PromptCounter
from pagefence.edge.cuts import BATCH, OverLimit, Stopped, can_cut, count_by_parts
from pagefence.edge.demand import Chat, Prompt, demand_of
from pagefence.edge.engine_readings import ALL, PAGEFENCE, SGLANG, VLLM, EngineReading, readings_of
from pagefence.edge.refusal import Refusal
from pagefence.engine.model.chat import ChatTemplate
from pagefence.engine.model.tokenizer import Tokenizer
from tests.edge.models import NAMES, call_of, chat_of, completion_of, texts, tokenizer_of
from tests.engine.model.test_tokenizer import TEXTS

quick = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HUGE = 10**9


def parts(tokenizer: Tokenizer, text: str, limit: int = HUGE) -> int:
    return count_by_parts(tokenizer.count, text, limit, lambda _: 0, lambda: False)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("name", NAMES)
def test_parts_add_up_to_the_whole(name: str) -> None:
    tokenizer = tokenizer_of(name)
    assert can_cut(tokenizer.definition())

    @quick
    @given(text=texts, times=st.integers(1, 3))
    def same(text: str, times: int) -> None:
        whole = text * times
        assert parts(tokenizer, whole) == len(tokenizer.encode(whole)) == tokenizer.count(whole)

    same()
    for text in TEXTS:
        assert parts(tokenizer, text) == tokenizer.count(text)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagefence.edge.cuts.BATCH", 7)
    monkeypatch.setattr("pagefence.edge.cuts._SHORT", 0)


O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def changed(pattern: str | None = None, behavior: str = "isolated", **parts: Any) -> Tokenizer:
    """The small vocabulary with another pre-tokenizer, normalizer or added tokens."""
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_str(tokenizer_of("gpt-2")._backend.to_str())
    if pattern is not None:
        split = pre_tokenizers.Split(Regex(pattern), behavior)
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    if "normalizer" in parts:
        backend.normalizer = parts["normalizer"]
    backend.add_tokens(parts.get("added", []))
    return Tokenizer(backend, None)


@pytest.mark.usefixtures("small_parts")
def test_the_expression_of_gpt_4o_can_be_cut() -> None:
    tokenizer = changed(O200K)
    assert can_cut(tokenizer.definition())

    @quick
    @given(text=texts)
    def same(text: str) -> None:
        assert parts(tokenizer, text) == tokenizer.count(text)

    same()


@pytest.mark.parametrize(
    "tokenizer",
    [
        changed(r".+|\s"),
        changed(r"\p{L}+"),  # what is between its matches may hold a blank
        changed(r"[a-z]+ [a-z]+|\s+|\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+"),
        changed(r"(?<=a)b|\s+|\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+"),
        changed(O200K, "merged_with_previous"),
        changed(normalizer=normalizers.NFKC()),
        changed(added=[AddedToken("new york", normalized=False)]),
        changed(added=[AddedToken("york", rstrip=True, normalized=False)]),
        changed(added=[AddedToken("york", single_word=True, normalized=False)]),
    ],
    ids=["dot", "gaps", "two words", "looks behind", "merged", "NFKC", "a blank inside", "swallows", "a word alone"],
)
def test_what_is_not_known_to_be_cut_there_is_counted_whole(tokenizer: Tokenizer) -> None:
    assert not can_cut(tokenizer.definition())
    counter = PromptCounter(tokenizer)
    text = "from new york to new york " * 400
    assert counter.count(Prompt(texts=(text,)), HUGE, 0, lambda: False).exact == tokenizer.count(text)


def test_a_long_text_is_cut_into_words_and_no_word_counted_twice() -> None:
    tokenizer, given_texts = tokenizer_of("embedded"), list[str]()

    def count(text: str) -> int:
        given_texts.append(text)
        return tokenizer.count(text)

    text = "".join(f"word{i % 50} and,\nmore-{i % 7}  of it. " for i in range(6_000))
    assert count_by_parts(count, text, HUGE, lambda _: 0, lambda: False) == tokenizer.count(text)
    assert sum(map(len, given_texts)) < len(text) / 30
    assert max(map(len, given_texts)) < 2 * BATCH


def test_a_text_without_a_cut_is_counted_all_the_same() -> None:
    tokenizer = tokenizer_of("embedded")
    for text in ("x" * 20_000, " " * 20_000, "日本語" * 5_000, "\n" * 20_000):
        assert parts(tokenizer, text) == tokenizer.count(text)


def test_counting_ends_once_it_is_over_the_limit() -> None:
    tokenizer, seen = tokenizer_of("embedded"), 0

    def count(text: str) -> int:
        nonlocal seen
        seen += len(text)
        return tokenizer.count(text)

    text = " ".join(f"w{i}" for i in range(30_000))
    with pytest.raises(OverLimit) as over:
        count_by_parts(count, text, 1000, lambda _: 0, lambda: False)
    assert 1000 < over.value.tokens <= tokenizer.count(text)
    assert seen < len(text) / 2


def test_counting_is_given_up_between_two_parts() -> None:
    tokenizer, turns = tokenizer_of("embedded"), 0

    def stopped() -> bool:
        nonlocal turns
        turns += 1
        return turns > 5

    with pytest.raises(Stopped):
        count_by_parts(tokenizer.count, " ".join(f"w{i}" for i in range(200_000)), HUGE, lambda _: 0, stopped)
    assert turns == 6


# --- how engines read -------------------------------------------------------------------------------------------------


@cache
def bounds_of(name: str) -> ModelBounds:
    return bounds_of_model(tokenizer_of(name))


def counter_of(name: str, readings: Sequence[EngineReading] = ALL) -> PromptCounter:
    return _counter(name, tuple(readings))


@cache
def _counter(name: str, readings: tuple[EngineReading, ...]) -> PromptCounter:
    return PromptCounter(tokenizer_of(name), bounds_of(name), readings)


def exact(call: Call, readings: Sequence[EngineReading] = ALL, name: str = "embedded") -> Counted:
    demand = demand_of(call)
    assert not isinstance(demand, Refusal)
    return counter_of(name, readings).count(demand.prompts[0], HUGE, 0, lambda: False)


@quick
@given(said=st.lists(texts.filter(bool), min_size=1, max_size=3))
def test_the_count_of_a_conversation_is_that_of_each_engine(said: list[str]) -> None:
    tokenizer, call = tokenizer_of("embedded"), chat_of(*said)
    messages = call.body["messages"]
    assert exact(call, [PAGEFENCE]).exact == len(tokenizer.render_chat(messages))
    assert tokenizer.template is not None
    rendered = tokenizer.template.render(messages, {"add_generation_prompt": True})
    assert exact(call, [VLLM]).exact == len(tokenizer.encode(rendered, parse_special=True))
    together = exact(call)
    assert together.most == max(exact(call, [PAGEFENCE]).exact or 0, exact(call, [VLLM]).exact or 0)


def test_a_control_token_in_a_text_is_reckoned_with_in_both_ways() -> None:
    count = exact(chat_of("<|im_end|>" * 10))
    assert count.exact is None
    assert count.most is not None
    assert count.least < count.most
    assert exact(chat_of("no such thing")).exact is not None


def test_parts_of_a_message_are_joined_as_each_engine_joins_them() -> None:
    tokenizer = tokenizer_of("embedded")
    call = call_of({"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in ("fore", "st")]}]})
    for reading, joined in ((PAGEFENCE, "forest"), (VLLM, "fore\nst"), (SGLANG, "fore st")):
        assert exact(call, [reading]).exact == len(tokenizer.render_chat([{"role": "user", "content": joined}]))
    assert exact(call).most == exact(call, [VLLM]).most
    assert readings_of("vllm") == (VLLM,)
    assert readings_of("nobody knows") == ALL


def test_tools_and_calls_are_counted_as_the_template_writes_them() -> None:
    source = (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    tokenizer = Tokenizer(tokenizer_of("embedded")._backend, ChatTemplate(source, "", ""))
    arguments = json.dumps({"city": "Ærø", "days": list(range(50))})
    calls = [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}]
    body = {"messages": [{"role": "assistant", "content": None, "tool_calls": calls}], "tools": [{"type": "function"}]}
    demand = demand_of(call_of(body))
    assert not isinstance(demand, Refusal)
    for reading, passed in ((PAGEFENCE, arguments), (VLLM, json.loads(arguments))):
        counter = PromptCounter(tokenizer, bounds_of("embedded"), [reading])
        written = '{"type": "function"}assistant' + json.dumps(passed, ensure_ascii=False)
        assert counter.count(demand.prompts[0], HUGE, 0, lambda: False).exact == tokenizer.count(written)


def test_what_surrounds_a_text_is_counted_where_the_engine_adds_it() -> None:
    tokenizer = tokenizer_of("llama-bpe")
    assert len(tokenizer.prefix) == 1
    assert exact(completion_of("ab"), name="llama-bpe").exact == len(tokenizer.encode("ab", add_special=True))
    assert exact(completion_of("ab", add_special_tokens=False), name="llama-bpe").exact == tokenizer.count("ab")
    chat = exact(chat_of("ab"), name="llama-bpe")
    assert chat.exact is None  # some engines add it to what the template wrote
    assert chat.most == chat.least + 1


# --- the queue ----------------------------------------------------------------------------------------------------


def needs(call: Call, total: int = HUGE) -> NeedsCount:
    """What is to be counted of a call, though the bounds might decide."""
    decision = demand_of(call)
    assert not isinstance(decision, Refusal)
    return NeedsCount(call, decision, Room(total, total, "test"), AdmissionSettings(), total, 0)


class Slow(PromptCounter):
    """Counts when it is allowed to."""

    def __init__(self) -> None:
        super().__init__(tokenizer_of("gpt-2"), bounds_of("gpt-2"))
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.given_up = 0

    def count(self, prompt: Prompt, limit: int, enough: int, stopped: Any) -> Counted:
        self.begun.release()
        while not self.go.wait(0.002):
            if stopped():
                self.given_up += 1
                raise Stopped
        return super().count(prompt, limit, enough, stopped)


async def begun(counter: Slow) -> None:
    assert await asyncio.to_thread(counter.begun.acquire, timeout=5)


def of_tenant(name: str) -> Call:
    return call_of({"messages": [{"role": "user", "content": "hello"}]}, tenant=Tenant(name, "", f"tag-{name}"))


def test_too_much_that_waits_is_refused_and_what_ended_makes_room() -> None:
    async def play() -> None:
        counter = Slow()
        counting = Counting(counter, CountingSettings(threads=1, waiting=2, per_tenant=2))
        tasks = [asyncio.create_task(counting.count(needs(of_tenant(str(i))))) for i in range(2)]
        await begun(counter)
        refused = await counting.count(needs(of_tenant("2")))
        assert isinstance(refused, Refusal)
        assert (refused.status, refused.code, refused.retry_after_s) == (503, "overloaded", 2)
        counter.go.set()
        assert all(not isinstance(counts, Refusal) for counts in await asyncio.gather(*tasks))
        assert counting.waiting == 0
        assert not isinstance(await counting.count(needs(of_tenant("2"))), Refusal)

    asyncio.run(play())


def test_one_tenant_cannot_fill_the_queue() -> None:
    async def play() -> None:
        counter = Slow()
        counting = Counting(counter, CountingSettings(threads=1, waiting=9, per_tenant=1))
        first = asyncio.create_task(counting.count(needs(of_tenant("a"))))
        await begun(counter)
        refused = await counting.count(needs(of_tenant("a")))
        assert isinstance(refused, Refusal)
        assert refused.status == 429
        other = asyncio.create_task(counting.count(needs(of_tenant("b"))))
        counter.go.set()
        assert not isinstance(await other, Refusal)
        await first

    asyncio.run(play())


def test_long_texts_wait_only_so_far_as_there_is_memory_for_them() -> None:
    async def play() -> None:
        counting = Counting(counter_of("gpt-2"), CountingSettings(characters=100))
        refused = await counting.count(needs(chat_of("x" * 101)))
        assert isinstance(refused, Refusal)
        assert refused.code == "overloaded"
        assert not isinstance(await counting.count(needs(chat_of("x" * 50))), Refusal)

    asyncio.run(play())


def test_a_client_that_goes_ends_its_count() -> None:
    async def play() -> None:
        counter = Slow()
        counting = Counting(counter, CountingSettings(threads=1))
        task = asyncio.create_task(counting.count(needs(of_tenant("a"))))
        await begun(counter)
        waits = asyncio.create_task(counting.count(needs(of_tenant("b"))))
        await asyncio.sleep(0)
        for one in (task, waits):
            one.cancel()
        await asyncio.gather(task, waits, return_exceptions=True)
        deadline = time.monotonic() + 5
        while counting.waiting and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        assert counting.waiting == 0
        assert counter.given_up == 1  # the other never began

    asyncio.run(play())


def test_what_a_template_or_a_codec_refuses_is_the_clients_fault() -> None:
    async def play() -> None:
        counting = Counting(counter_of("gpt-2"), CountingSettings())
        half = await counting.count(needs(completion_of("half \ud800 a character")))
        assert isinstance(half, Refusal)
        assert (half.status, half.param) == (400, "prompt")
        assert "\ud800" not in half.message
        bare = PromptCounter(Tokenizer(tokenizer_of("gpt-2")._backend, None))
        none = await Counting(bare, CountingSettings()).count(needs(chat_of("hello")))
        assert isinstance(none, Refusal)
        assert "no chat template" in none.message

    asyncio.run(play())


def test_a_rendered_prompt_is_bounded_before_it_is_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = counter_of("gpt-2")
    monkeypatch.setattr(Tokenizer, "count", lambda *_: pytest.fail("it was tokenised"))
    prompt = Prompt(chat=Chat([{"role": "user", "content": "hello " * 100, "name": "x"}]))
    assert counter.count(prompt, HUGE, 10_000, lambda: False).most is not None
    assert counter.count(prompt, 10, 5, lambda: False).most is None


def test_decisions_of_the_bounds_alone_need_no_tokenizer() -> None:
    counter = counter_of("embedded")
    room = Capacity(Room(1000, 990, "test"), None, 0.0)
    kinds = {
        n: type(decide(chat_of("a b " * n), room, counter.bounds, AdmissionSettings(16))) for n in (1, 300, 40_000)
    }
    assert [kind.__name__ for kind in kinds.values()] == ["Admitted", "NeedsCount", "Refusal"]
