"""No text has fewer tokens than the lower bound, and none more than the upper."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers import models as token_models

from pagefence.edge.admission import bounds_of_model
from pagefence.edge.bounds import TextBounds, constant_tokens, text_bounds
from pagefence.edge.template_bounds import TemplateBounds, template_bounds
from pagefence.engine.model.chat import ChatTemplate
from pagefence.engine.model.tokenizer import Tokenizer
from tests.edge.models import CHATML, NAMES, texts, tokenizer_of
from tests.engine.model.test_tokenizer import TEXTS

quick = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def bounds_of(name: str) -> TextBounds:
    bounds = text_bounds(tokenizer_of(name))
    assert bounds is not None
    return bounds


def holds(bounds: TextBounds, tokenizer: Tokenizer, text: str) -> None:
    for parse in (False, True):
        exact = len(tokenizer.encode(text, parse_special=parse))
        assert bounds.at_least(text) <= exact <= bounds.at_most(text)


@pytest.mark.parametrize("name", NAMES)
def test_every_count_lies_between_its_bounds(name: str) -> None:
    tokenizer, bounds = tokenizer_of(name), bounds_of(name)

    @quick
    @given(text=texts)
    def between(text: str) -> None:
        holds(bounds, tokenizer, text)

    between()
    for text in [
        *TEXTS,
        " " * 1000,
        "a" * 1000,
        "\n" * 999,
        "é" * 500,
        "e\u0301" * 500,
        "\U0001d160" * 200,
        "\x04" * 99,
    ]:
        holds(bounds, tokenizer, text)


def test_the_longest_token_of_a_vocabulary_meets_its_lower_bound() -> None:
    """So the bound is as high as it can be: a run of the longest token."""
    tokenizer, bounds = tokenizer_of("embedded"), bounds_of("embedded")
    longest = max((tokenizer.token_bytes(i) for i in range(tokenizer.vocab)), key=len).decode()
    assert len(tokenizer.encode(longest)) == 1
    assert bounds.at_least(longest) == 1
    assert bounds.at_least(longest * 7) == 7


def test_letters_bound_prose_far_better_than_the_longest_token_does() -> None:
    bounds, prose = bounds_of("embedded"), "the quick brown fox jumps over the lazy dog " * 100
    assert bounds.at_least(prose) > 2 * (len(prose) / bounds.longest)
    assert bounds.at_least("1" * 500) == 500  # this vocabulary has no token of two digits


def test_looking_stops_once_enough_is_known() -> None:
    bounds = bounds_of("embedded")
    assert bounds.at_least("a" * 100, enough=400) == 0
    assert bounds.at_least("a" * 10_000, enough=10) > 10


def _backend(**parts: Any) -> Backend:
    vocab = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Backend(token_models.BPE(parts.get("vocab", vocab), [], **parts.get("model", {})))
    backend.pre_tokenizer = parts.get("pre", pre_tokenizers.ByteLevel(add_prefix_space=False))
    backend.decoder = decoders.ByteLevel()
    if "normalizer" in parts:
        backend.normalizer = parts["normalizer"]
    backend.add_tokens(parts.get("added", []))
    return backend


_STRANGE: list[dict[str, Any]] = [
    {"normalizer": normalizers.NFKC()},
    {"normalizer": normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("x")])},
    {"normalizer": normalizers.Replace("a", "bbbb")},
    {"pre": pre_tokenizers.ByteLevel(add_prefix_space=True)},
    {"pre": pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.ByteLevel(add_prefix_space=False)])},
    {"pre": pre_tokenizers.Whitespace()},
    {"model": {"dropout": 0.1}},
    {"model": {"continuing_subword_prefix": "##"}},
    {"model": {"end_of_word_suffix": "</w>"}},
]


@pytest.mark.parametrize("parts", _STRANGE, ids=str)
def test_what_is_not_known_to_keep_to_bytes_has_no_bound(parts: dict[str, Any]) -> None:
    assert text_bounds(Tokenizer(_backend(**parts), None)) is None
    assert text_bounds(Tokenizer(_backend(), None)) is not None


def test_a_vocabulary_that_falls_back_to_bytes_and_lacks_some_has_no_bound() -> None:
    vocab = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet())[:-1])}
    assert text_bounds(Tokenizer(_backend(vocab=vocab, model={"byte_fallback": True}), None)) is None
    assert text_bounds(Tokenizer(_backend(vocab=vocab), None)) is not None


def test_an_added_token_that_swallows_blanks_leaves_them_out_of_the_lower_bound() -> None:
    tokenizer = Tokenizer(_backend(added=[AddedToken("<mask>", lstrip=True, normalized=False)]), None)
    bounds = text_bounds(tokenizer)
    assert bounds is not None
    holds(bounds, tokenizer, " " * 500 + "<mask>")
    assert len(tokenizer.encode(" " * 500 + "<mask>")) == 1


def test_a_tokenizer_that_would_cut_a_prompt_is_told_not_to() -> None:
    backend = _backend()
    backend.enable_truncation(4)
    backend.enable_padding(length=50)
    assert Tokenizer(backend, None).count("abcdefgh") == 8


def _template(source: str) -> TemplateBounds | None:
    tokenizer = tokenizer_of("embedded")
    template = ChatTemplate(source, "<|im_start|>", "<|im_end|>")
    return template_bounds(template.syntax, template.tokens, lambda words: constant_tokens(tokenizer, words))


_LOOP = "{% for m in messages %}BODY{% endfor %}"
BOUNDED = {
    "chatml": CHATML,
    "trimmed": "{{ bos_token }}" + _LOOP.replace("BODY", "[{{ m.role }}]{{ m.content | trim }}{{ eos_token }}"),
    "branches": _LOOP.replace(
        "BODY",
        "{% if m.role == 'user' %}{{ 'U:' ~ m['content'] }}{% elif '</think>' in m.content %}{{ m.content.strip() }}"
        "{% else %}{{ raise_exception('no') if false else 'long: ' }}{{ m.content }}{{ m.content }}{% endif %}",
    ),
    "first": "{% if messages[0].role == 'system' %}{{ messages[0].content }}"
    "{% set messages = messages[1:] %}{% endif %}"
    + _LOOP.replace("BODY", "{% set text = m.content %}<|im_start|>{{ text }}{% if loop.last %}!{% endif %}"),
    "tools": "{% if tools %}{{ tools | tojson }}{% endif %}" + _LOOP.replace("BODY", "{{ m.content }}"),
    "backwards": "{% for m in messages[::-1] %}{{ m.content }}<|im_end|>{% endfor %}",
}
UNBOUNDED = {
    "repeated": _LOOP.replace("BODY", "{{ messages[0].content }}{{ m.content }}"),
    "remembered": "{% set first = messages[0].content %}" + _LOOP.replace("BODY", "{{ first }}{{ m.content }}"),
    "replaced": _LOOP.replace("BODY", "{{ m.content.replace('a', 'bbbbbb') }}"),
    "dated": "{{ strftime_now('%d %b %Y') }}" + _LOOP.replace("BODY", "{{ m.content }}"),
    "as JSON": _LOOP.replace("BODY", "{{ m.content | tojson }}"),
    "multiplied": _LOOP.replace("BODY", "{{ m.content * 2 }}"),
    "nested": _LOOP.replace("BODY", "{% for n in messages %}{{ n.content }}{% endfor %}"),
    "grown": "{% set ns = namespace(all='') %}"
    + _LOOP.replace("BODY", "{% set ns.all = ns.all + m.content %}{{ ns.all }}"),
    "renamed": _LOOP.replace("BODY", "{% set m = messages[0] %}{{ m.content }}"),
    "made up": "{% set messages = messages * 9 %}" + _LOOP.replace("BODY", "{{ m.content }}"),
    "macro": "{% macro say(x) %}{{ x }}{{ x }}{% endmacro %}" + _LOOP.replace("BODY", "{{ say(m.content) }}"),
    "counted": "{% for i in range(1000) %}hello{% endfor %}",
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_template_that_may_write_anything_has_no_bound(name: str) -> None:
    assert _template(UNBOUNDED[name]) is None


@pytest.mark.parametrize("name", BOUNDED)
def test_what_a_template_writes_lies_below_its_bound(name: str) -> None:
    base = tokenizer_of("embedded")
    tokenizer = Tokenizer(base._backend, ChatTemplate(BOUNDED[name], "<|im_start|>", "<|im_end|>"))
    bounds = bounds_of_model(tokenizer)
    text, template = bounds.text, bounds.template
    assert text is not None
    assert template is not None

    @quick
    @given(said=st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), min_size=1, max_size=4))
    def below(said: list[tuple[str, str]]) -> None:
        messages = [{"role": role, "content": content} for role, content in said]
        size = sum(text.at_most(role) + text.at_most(content) for role, content in said)
        counts = list(_both_ways(tokenizer, messages))
        assert max(counts) <= template.at_most(len(messages), size)
        if "content" in template.writes:
            assert text.at_least("".join(content for _, content in said)) <= min(counts)

    below()


def _both_ways(tokenizer: Tokenizer, messages: list[dict[str, str]]) -> Iterable[int]:
    yield len(tokenizer.render_chat(messages))
    template = tokenizer.template
    assert template is not None
    yield len(tokenizer.encode(template.render(messages, {"add_generation_prompt": True}), parse_special=True))


def test_only_what_is_written_whole_and_always_counts_from_below() -> None:
    writes = {name: bounds.writes for name, source in BOUNDED.items() if (bounds := _template(source)) is not None}
    assert "content" in writes["chatml"]
    assert "content" not in writes["trimmed"]  # blanks may go
    assert "content" not in writes["first"]  # the first message may not come in the loop
    assert "content" in writes["tools"]


def test_the_embedded_models_own_template_costs_little() -> None:
    bounds = bounds_of_model(tokenizer_of("embedded"))
    assert bounds.template is not None
    assert bounds.template.at_most(1, 0) < 100


def test_the_definition_of_a_folder_is_read_too(tmp_path: Path) -> None:
    tokenizer_of("qwen2")._backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 5000}))
    bounds = text_bounds(Tokenizer.load(tmp_path))
    assert bounds == bounds_of("qwen2")
