"""What one answer's token counts say against each other, against its request, and against its text."""

from __future__ import annotations

from collections.abc import Iterator

from pagefence.fleet import Answer, Limits
from pagefence.probes.prompt import Prompt

Slip = tuple[str, str, str]  # which count, what is wrong, rule

# A token is rarely more than a word, but a tokenizer may have some that are two.
_WORDS_PER_TOKEN = 2


def slips(answer: Answer, prompt: Prompt, max_tokens: int, limits: Limits) -> Iterator[Slip]:
    """Each count of a complete answer that cannot be right. One that is missing is no slip."""
    sent, told, new = prompt.tokens, answer.prompt_tokens, answer.completion_tokens
    if prompt.counted and told is not None and told != sent:
        yield "prompt", f"sent {sent:,} prompt tokens, the answer was made from {told:,}", "I4"
    if told is not None and answer.cached_tokens is not None and answer.cached_tokens > told:
        yield "cached", f"{answer.cached_tokens:,} tokens from a cache, of a prompt of {told:,}", "I6"
    if told is not None and new is not None and answer.total_tokens not in (None, told + new):
        yield "total", f"a total of {answer.total_tokens:,} tokens, but {told:,} + {new:,} are reported", "I6"
    if new is not None:
        yield from _new(answer, new, sent if told is None else told, max_tokens, limits)


def _new(answer: Answer, new: int, sent: int, max_tokens: int, limits: Limits) -> Iterator[Slip]:
    words = len(answer.text.split())
    # At the end of the context an answer is cut, which is its length too.
    room = min(max_tokens, limits.context - sent)
    if new > max_tokens:
        yield "completion", f"{new:,} new tokens, though {max_tokens:,} were allowed", "I6"
    elif answer.finish_reason == "length" and new < room - 1:
        yield "completion", f"ended for its length with {new:,} new tokens of {max_tokens:,}", "I6"
    if words > _WORDS_PER_TOKEN * new:
        yield "text", f"{words:,} words of text in {new:,} reported tokens", "I6"
