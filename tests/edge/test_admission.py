"""What fits is admitted, what does not is refused before any byte, and only what lies between is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagefence.edge.admission import (
    AdmissionSettings,
    ModelBounds,
    NeedsCount,
    after_count,
    bounds_of_model,
    decide,
    reserved,
)
from pagefence.edge.call import Call, Operation
from pagefence.edge.capacity import Capacity, Room
from pagefence.edge.counting import Counting, CountingSettings, PromptCounter
from pagefence.edge.demand import Admitted
from pagefence.edge.refusal import Refusal
from tests.edge.models import call_of, chat_of, completion_of, texts, tokenizer_of

DEFAULTS = AdmissionSettings(default_new_tokens=64)


@cache
def bounds() -> ModelBounds:
    return bounds_of_model(tokenizer_of("embedded"))


@cache
def counter() -> PromptCounter:
    return PromptCounter(tokenizer_of("embedded"), bounds())


def room(total: int, longest: int | None = None) -> Capacity:
    return Capacity(Room(total, total - 1 if longest is None else longest, "test"), None, 0.0)


def first(call: Call, capacity: Capacity, settings: AdmissionSettings = DEFAULTS) -> Admitted | Refusal | NeedsCount:
    return decide(call, capacity, bounds(), settings)


def decided(call: Call, capacity: Capacity, settings: AdmissionSettings = DEFAULTS) -> Admitted | Refusal:
    """With the count, where one is needed."""
    decision = first(call, capacity, settings)
    if not isinstance(decision, NeedsCount):
        return decision
    counts = []
    for prompt in decision.demand.prompts:
        counts.append(counter().count(prompt, decision.limit, decision.enough, lambda: False))
        if counts[-1].most is None or counts[-1].most > decision.limit:
            break
    return after_count(decision, counts)


def admitted(*args: Any, **named: Any) -> Admitted:
    decision = decided(*args, **named)
    assert isinstance(decision, Admitted), decision
    return decision


def refused(*args: Any, **named: Any) -> Refusal:
    decision = decided(*args, **named)
    assert isinstance(decision, Refusal), decision
    return decision


def size(*said: str) -> int:
    messages = chat_of(*said).body["messages"]
    return len(tokenizer_of("embedded").render_chat(messages))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    said=st.lists(texts.filter(bool), min_size=1, max_size=3),
    slack=st.integers(-60, 60),
    new=st.none() | st.integers(1, 40),
)
def test_nothing_is_admitted_that_does_not_fit_and_nothing_refused_that_does(
    said: list[str], slack: int, new: int | None
) -> None:
    tokenizer = tokenizer_of("embedded")
    messages = chat_of(*said).body["messages"]
    assert tokenizer.template is not None
    rendered = tokenizer.template.render(messages, {"add_generation_prompt": True})
    needed = max(size(*said), len(tokenizer.encode(rendered, parse_special=True)))
    total = max(2, needed + (new or 1) + slack)
    decision = decided(chat_of(*said, **({} if new is None else {"max_tokens": new})), room(total))
    assert isinstance(decision, Admitted) == (needed + (new or 1) <= total)
    if isinstance(decision, Admitted):
        assert needed <= decision.at_most
        assert decision.at_most + decision.new_tokens <= total
        assert decision.new_tokens == (min(64, total - decision.at_most) if new is None else new)


@pytest.mark.parametrize("extra", [0, 1])
def test_the_border_is_exact(extra: int) -> None:
    """At the limit it is admitted, one token above it is not."""
    tokens = size("word " * 400)
    call = chat_of("word " * 400, max_tokens=10)
    decision = decided(call, room(tokens + 10 - extra))
    assert isinstance(decision, Refusal if extra else Admitted)
    if isinstance(decision, Admitted):
        assert decision.prompt_tokens == tokens


def test_a_short_prompt_is_admitted_and_a_hopeless_one_refused_without_a_count() -> None:
    assert isinstance(first(chat_of("hello"), room(1000)), Admitted)
    hopeless = first(chat_of("word " * 100_000), room(1000))
    assert isinstance(hopeless, Refusal)
    assert "resulted in at least " in hopeless.message
    assert isinstance(first(chat_of("word " * 300), room(1000)), NeedsCount)


def test_a_refusal_has_openais_words_and_numbers() -> None:
    tokens = size("word " * 400)
    refusal = refused(chat_of("word " * 400), room(tokens - 5))
    assert (refusal.status, refusal.code, refusal.param) == (400, "context_length_exceeded", "messages")
    assert refusal.message == (
        f"This model's maximum context length is {tokens - 5} tokens. However, your messages resulted in {tokens} "
        "tokens. Please reduce the length of the messages."
    )
    both = refused(chat_of("word " * 400, max_tokens=100), room(tokens + 50))
    assert both.message == (
        f"This model's maximum context length is {tokens + 50} tokens. However, you requested {tokens + 100} tokens "
        f"({tokens} in your messages, 100 in the completion). Please reduce the length of the messages or completion."
    )
    assert refused(completion_of("word " * 4000), room(50)).param == "prompt"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_new_tokens_are_reserved_whatever_they_are_called(name: str) -> None:
    assert admitted(chat_of("hi", **{name: 300}), room(1000)).new_tokens == 300
    assert refused(chat_of("hi", **{name: 1000}), room(1000)).code == "context_length_exceeded"


def test_the_larger_of_two_wishes_counts() -> None:
    assert admitted(chat_of("hi", max_tokens=5, max_completion_tokens=70), room(1000)).new_tokens == 70
    assert admitted(chat_of("hi", max_tokens=5, min_tokens=70), room(1000)).new_tokens == 70


def test_who_names_no_number_gets_the_default_or_what_is_left_and_upstream_is_told() -> None:
    decision = admitted(chat_of("hi"), room(1000))
    assert decision.new_tokens == 64
    assert reserved(decision)["max_tokens"] == 64
    tokens = size("hi")
    tight = admitted(chat_of("hi"), room(tokens + 3))
    assert (tight.prompt_tokens, tight.new_tokens) == (tokens, 3)
    asked = admitted(chat_of("hi", max_completion_tokens=7), room(1000))
    assert reserved(asked) is asked.call.body
    response = admitted(call_of({"input": "hi"}, Operation.RESPONSE), room(1000))
    assert reserved(response)["max_output_tokens"] == 64


def test_a_prompt_may_be_shorter_than_the_room_for_it_and_its_answer() -> None:
    """SGLang takes no prompt of more than seven tokens below its pool."""
    ids = completion_of(list(range(100)), max_tokens=1)
    assert admitted(ids, room(107, 100)).at_most == 100
    assert refused(ids, room(107, 99)).code == "context_length_exceeded"


def test_token_ids_are_exact_by_their_number() -> None:
    decision = first(completion_of([1] * 50, max_tokens=50), room(100))
    assert isinstance(decision, Admitted)
    assert (decision.prompt_tokens, decision.at_most) == (50, 50)
    assert isinstance(first(completion_of([1] * 51, max_tokens=50), room(100)), Refusal)
    assert isinstance(first(completion_of([1] * 90), room(100)), Admitted)  # ten are left, which is enough


def test_each_of_many_prompts_has_to_fit_and_they_are_counted_together() -> None:
    many = completion_of(["one two", "three four five", "six"], max_tokens=5)
    tokenizer = tokenizer_of("embedded")
    exact = sum(tokenizer.count(text) for text in many.body["prompt"])
    decision = admitted(many, room(20))
    assert decision.at_most >= exact
    assert refused(completion_of([[1] * 5, [1] * 96], max_tokens=5), room(100)).code == "context_length_exceeded"
    lists = admitted(completion_of([[1] * 5, [1] * 95], max_tokens=5), room(100))
    assert lists.prompt_tokens == 100


@pytest.mark.parametrize("body", [{"n": 100}, {"best_of": 100}])
def test_choices_share_the_prompt_and_have_their_new_tokens_each(body: dict[str, object]) -> None:
    assert admitted(completion_of([1] * 50, max_tokens=50, **body), room(100)).new_tokens == 50


def test_a_suffix_is_part_of_the_prompt() -> None:
    assert refused(completion_of("ab", suffix="word " * 500, max_tokens=5), room(300))
    decision = admitted(completion_of("ab", suffix="cd", max_tokens=5), room(300))
    assert decision.at_most >= 4 + 16
    assert decision.prompt_tokens is None  # nobody told how the engine puts them together


def test_an_embedding_makes_no_tokens() -> None:
    def embedding(given: object) -> Call:
        return call_of({"input": given}, Operation.EMBEDDING)

    assert admitted(embedding([[1] * 99, [2] * 99]), room(100)).new_tokens == 0
    assert refused(embedding([[1] * 99, [2] * 100]), room(100)).param == "input"
    assert reserved(admitted(embedding("hi"), room(100))) == {"input": "hi"}


def test_tools_are_part_of_the_prompt_where_the_template_writes_them() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "x " * 500}}]
    assert isinstance(first(chat_of("hi", tools=tools), room(1000)), NeedsCount)
    assert admitted(chat_of("hi", tools=tools), room(1000)).at_most < 200  # SmolLM2's template writes none


def test_a_schema_may_be_written_into_the_prompt_by_the_engine() -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"description": "y" * 500}}}
    assert admitted(chat_of("hi", response_format=schema), room(2000)).at_most > 500
    assert refused(chat_of("hi", response_format=schema), room(400))


def image(count: int) -> Call:
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}] * count
    return call_of({"messages": [{"role": "user", "content": [{"type": "text", "text": "what?"}, *parts]}]})


def test_an_image_is_refused_unless_its_most_is_declared() -> None:
    assert refused(image(1), room(9000)).code == "prompt_not_countable"
    declared = AdmissionSettings(image_tokens=1000)
    assert admitted(image(2), room(9000), declared).at_most > 2000
    assert refused(image(9), room(9000), declared).code == "context_length_exceeded"


@pytest.mark.parametrize("kind", ["input_audio", "video_url", "file", "surprise"])
def test_what_cannot_be_counted_is_refused(kind: str) -> None:
    call = call_of({"messages": [{"role": "user", "content": [{"type": kind}]}]})
    assert refused(call, room(9000), AdmissionSettings(image_tokens=10)).code == "prompt_not_countable"


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "prompt_embeds"])
def test_tokens_that_are_not_in_the_request_cannot_be_counted(name: str) -> None:
    refusal = refused(call_of({"input": "hi", name: "x"}, Operation.RESPONSE), room(9000))
    assert (refusal.status, refusal.code, refusal.param) == (400, "prompt_not_countable", name)


def test_a_response_is_a_conversation_as_long_as_it_holds_texts() -> None:
    items = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    call = call_of({"input": items, "instructions": "be brief"}, Operation.RESPONSE)
    tight = admitted(call, room(60))
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert tight.at_most >= len(tokenizer_of("embedded").render_chat(messages))
    tools = [{"type": "function", "name": "f", "parameters": {"description": "word " * 200}}]
    assert admitted(call_of({"input": items, "tools": tools}, Operation.RESPONSE), room(9000)).at_most > 1000
    unknown = refused(call_of({"input": items, "tools": tools}, Operation.RESPONSE), room(900))
    assert unknown.code == "prompt_not_countable"


def test_a_model_list_needs_no_room() -> None:
    assert admitted(call_of({}, Operation.MODELS), room(1)).at_most == 0


def test_a_margin_is_kept_free() -> None:
    ids = completion_of([1] * 50, max_tokens=50)
    assert admitted(ids, room(110), AdmissionSettings(margin_tokens=10)).at_most == 50
    assert refused(ids, room(109), AdmissionSettings(margin_tokens=10))


def test_nothing_is_admitted_while_the_capacity_is_not_known() -> None:
    refusal = refused(chat_of("hi"), Capacity(None, "nobody answers", 0.0))
    assert (refusal.status, refusal.code) == (503, "capacity_unknown")
    assert refusal.retry_after_s is not None
    assert "nobody answers" not in refusal.message  # addresses behind the edge are no client's business


@pytest.mark.parametrize("prompt", [None, [], 7, [None], [[]], ["a", [1]], [True], {"a": 1}])
def test_a_prompt_of_no_known_kind_is_refused_or_read_whole(prompt: object) -> None:
    decision = decided(completion_of(prompt), room(1000))
    mixed = prompt == ["a", [1]]
    assert isinstance(decision, Admitted if mixed else Refusal)


@pytest.mark.parametrize("messages", [None, [], "hi", [1], [{"role": "user", "content": [1]}]])
def test_messages_of_no_known_kind_are_refused(messages: object) -> None:
    assert refused(call_of({"messages": messages}), room(1000)).status == 400


def test_without_bounds_everything_is_counted() -> None:
    none = ModelBounds(None, None, 0)
    assert isinstance(decide(chat_of("hi"), room(1000), none, DEFAULTS), NeedsCount)
    assert isinstance(decide(completion_of([1, 2]), room(1000), none, DEFAULTS), Admitted)


def test_a_count_and_its_decision_through_the_queue() -> None:
    async def play(call: Call, capacity: Capacity) -> Admitted | Refusal:
        counting = Counting(counter(), CountingSettings())
        needs = first(call, capacity)
        assert isinstance(needs, NeedsCount)
        counts: Sequence[Any] | Refusal = await counting.count(needs)
        return counts if isinstance(counts, Refusal) else after_count(needs, counts)

    tokens = size("word " * 300)
    assert isinstance(asyncio.run(play(chat_of("word " * 300), room(tokens + 1))), Admitted)
    assert isinstance(asyncio.run(play(chat_of("word " * 300), room(tokens))), Refusal)
