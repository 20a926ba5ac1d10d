"""What a refusal for length says of the limit and of the prompt, in the words of the engines that are known."""

from __future__ import annotations

import re

from pagefence.fleet import ErrorBody

_NUMBER = r"(\d[\d,]*)"
# vLLM, Dynamo and PageFence; SGLang; llama-server and Ollama; TGI (twice); TensorRT-LLM.
_LIMIT = (
    rf"maximum context length (?:is|of) {_NUMBER}",
    rf"maximum allowed length \({_NUMBER}",
    rf"context (?:length|size|window)[^\d]{{0,20}}{_NUMBER}",
    rf"must have less than {_NUMBER}",
    rf"`max_new_tokens` must be <= {_NUMBER}",
    rf"max_num_tokens \({_NUMBER}",
)
# The prompt alone: "you requested 900 tokens" may hold the answer too, "at least" is no count.
_LENGTH = (
    rf"{_NUMBER} in the (?:messages|prompt)",
    rf"[Ii]nput length \({_NUMBER}",
    rf"[Rr]equest \({_NUMBER} tokens\)",
    rf"prompt contains {_NUMBER} input tokens",
    rf"(?:messages|prompt) resulted in {_NUMBER} tokens",
    rf"must have less than \d+ tokens\. Given: {_NUMBER}",
)


def told_limit(error: ErrorBody | None) -> int | None:
    """The limit in tokens that an error names. Engines mean different things by it (the prompt, or prompt and answer),
    so it is where to begin to search, and never the border itself."""
    return _first(_LIMIT, error)


def told_length(error: ErrorBody | None) -> int | None:
    """How many tokens the fleet counted in the prompt, where its error says so."""
    return _first(_LENGTH, error)


def _first(patterns: tuple[str, ...], error: ErrorBody | None) -> int | None:
    if error is None:
        return None
    found = (re.search(pattern, error.message) for pattern in patterns)
    value = next((int(match.group(1).replace(",", "")[:15]) for match in found if match), 0)
    return value or None
