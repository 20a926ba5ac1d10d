"""The canary that everybody writes first, as a measure for ours: what it finds of the same faults, in the same way.

A UUID at the start of a long filler prompt, then another prompt with the same key, `max_tokens` 16, and a search for
the UUID in what comes back. Its flaws are kept, for they are the point:

- it plants longer prompts than it reads, so wherever the reader is over a limit the planter was refused before;
- the UUID stands on the first page alone, which is what the incident overwrites;
- a UUID takes 24 to 40 tokens, an answer has 16: it does not fit, and models copy rare hexadecimal badly;
- filler dictates how the answer goes on;
- one key: a cache may hand over the same tenant's text, rightly;
- no control: an answer without the UUID is taken for good, and so is no answer at all.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from pagefence.fleet import Fleet, Request

ROUNDS, NEW_TOKENS = 4, 16  # about as many prompt tokens as a default `verify`
PLANTED, READ = 0.85, 0.6  # of the advertised context, as a script guesses it: one token for each word
_FILLER = (
    "The quick brown fox jumps over the lazy dog while the sun sets behind the hills and the river runs to the sea. "
    "People walk along the road and talk about the weather, the harvest and the news of the day. "
)


@dataclass(frozen=True, slots=True)
class Script:
    """What one run of it saw."""

    found: int
    answered: int
    requests: int
    prompt_tokens: int
    new_tokens: int


async def run_script(fleet: Fleet, context: int, seed: int, tell: Callable[[str], None]) -> Script:
    """Plant and read, some rounds of it. `context` in tokens; the same prompts for the same seed."""
    rng = random.Random(f"usual script {seed}")
    found = answered = requests = prompt_tokens = new_tokens = 0
    for number in range(ROUNDS):
        tell(f"the usual script: round {number + 1} of {ROUNDS}")
        secret = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        planting = f"{secret} {filler(round(PLANTED * context))}"
        reading = filler(round(READ * context))
        for prompt in (planting, reading):
            answer = await fleet.complete(Request(prompt, NEW_TOKENS), "a")
            requests += 1
            answered += answer.answered
            prompt_tokens += answer.prompt_tokens or 0
            new_tokens += answer.completion_tokens or 0
            found += prompt is reading and secret in answer.text
    return Script(found, answered, requests, prompt_tokens, new_tokens)


def filler(words: int) -> str:
    """So many words of nothing in particular."""
    text = _FILLER.split()
    return " ".join((text * (words // len(text) + 1))[:words])
