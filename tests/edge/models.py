"""The vocabularies that admission is tested with: the embedded model's, and small ones of every pre-tokenizer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import strategies as st

from pagefence import models
from pagefence.edge.call import Call, Operation, Tenant
from pagefence.engine.model.chat import ChatTemplate
from pagefence.engine.model.tokenizer import Tokenizer
from tests.engine.model.test_tokenizer import write_vocabulary

SMALL = ("gpt-2", "smollm", "qwen2", "llama-bpe", "glm4")
NAMES = ("embedded", *SMALL)
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TENANT = Tenant("acme", "key-of-acme", "tag-of-acme")


@cache
def tokenizer_of(name: str) -> Tokenizer:
    """By name; the small ones get ChatML, whose marks are plain text to them."""
    if name == "embedded":
        try:
            return Tokenizer.load(models.fetch())
        except models.ModelError as error:
            pytest.skip(f"the embedded model is not here: {error}")
    path = write_vocabulary(Path(mkdtemp(prefix="pagefence-")) / "v.gguf", name)
    return Tokenizer(Tokenizer.load(path)._backend, ChatTemplate(CHATML, "", ""))


def call_of(body: dict[str, object], operation: Operation = Operation.CHAT, tenant: Tenant = TENANT) -> Call:
    return Call(operation, tenant, "pf-1", body, None, False)


def chat_of(*texts: str, **body: object) -> Call:
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    return call_of({"messages": messages, **body})


def completion_of(prompt: object, **body: object) -> Call:
    return call_of({"prompt": prompt, **body}, Operation.COMPLETION)


_NASTY = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "end|>", "<", "  ", "\n\n", "\r\n", " \n ", "\t\t ", "    ",
    "\u00a0", "\u2028", "\u3000", "\u180e", "\x1c", "\x85", "\u200b", "\ufeff", "e\u0301", "\u0958", "\U0001d160",
    "\u212b", "\u1100\u1161\u11a8", "🧑\u200d🚀", "日本語。テキスト", "한국어 띄어 쓰기", "אבג", "\x04\x06\x13",
    "\U000f0000", "\U0010ffff", "'s", "'LL", "12345", " 7", "²Ⅻ٣", "a", "b ", " word", "https://x.y/z?a=b", "=======",
    "x" * 40, " " * 70, "\n" * 30,
]  # fmt: skip

texts = st.lists(
    st.one_of(st.sampled_from(_NASTY), st.text(max_size=8), st.text("ab .\n\t'1<|é\u0301", max_size=12)), max_size=24
).map("".join)
"""Texts at which tokenizers differ: blanks of every kind, control tokens, combining marks, what a vocabulary lacks."""
