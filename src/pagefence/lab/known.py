"""What the exercise asks, and what a healthy fleet answers to it: the reference that every fault is held against.

A prompt is a list of lines of four words, and then some of its lines again; a model goes on with what followed them.
So the answer is read out of pages far back, and other pages give another answer: of prompts laid out like this, with
one page exchanged for another prompt's, two thirds were answered differently within twelve tokens. A word belongs to
one list only, so it names whose text an answer is made of.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import httpx
import msgspec

from pagefence import __version__
from pagefence.files import CannotWrite, write_atomically
from pagefence.fleet.embedded import Recipe, Running, embedded
from pagefence.fleet.target import Keys
from pagefence.mistakes import CouldNotAsk
from pagefence.probes.sentinel import spoken
from pagefence.probes.wordlist import WORDS

LINES, PATIENT_LINES, LONG_LINES = (6, 7, 8, 9, 10, 11, 12, 14, 16, 18), 7, 150
WORDS_IN_LINE, LONG_PROMPTS = 4, 2
NEW_TOKENS, PATIENT_TOKENS = 16, 64
# The embedded model's ends of text: banned, so that every answer has its full length.
BANNED = {"0": -100, "2": -100}
# Without rounding to bfloat16 greedy answers are the same alone and in a batch (tests/e2e/test_parity.py).
DTYPE = ("--dtype", "float32")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One text to ask for. `kind`: short (two share a list and differ in the cue), patient, or long."""

    kind: str
    text: str
    new_tokens: int = NEW_TOKENS


class Known(msgspec.Struct, frozen=True):
    """A prompt with its right answer, as a healthy fleet gave it alone and without a cache."""

    kind: str
    prompt: str
    prompt_ids: tuple[int, ...]
    text: str
    token_ids: tuple[int, ...]

    @property
    def words(self) -> frozenset[str]:
        """Its own words: those that it was asked with, and those of its right answer."""
        return frozenset(spoken(f"{self.prompt} {self.text}"))


class NoReference(CouldNotAsk):
    """The healthy fleet did not answer a prompt of the exercise."""


def prompts() -> tuple[Prompt, ...]:
    """The same every time: pairs that share a list, one for the patient client, and long ones of 1,200 tokens."""
    rng = random.Random("what the exercise asks")
    words = iter(rng.sample(WORDS, len(WORDS)))
    made = []
    for length in LINES:
        lines = _lines(words, length)
        cue = length // 3
        made.append(Prompt("short", "".join([*lines, *lines[cue : cue + 2]])))
        made.append(Prompt("short", "".join([*lines, *lines[: length // 2]])))
    lines = _lines(words, PATIENT_LINES)
    made.append(Prompt("patient", "".join([*lines, *lines]), PATIENT_TOKENS))
    for _ in range(LONG_PROMPTS):
        lines = _lines(words, LONG_LINES)
        made.append(Prompt("long", "".join([*lines, *lines[: LONG_LINES // 3]])))
    return tuple(made)


def _lines(words: Iterator[str], length: int) -> list[str]:
    return [f"- {' '.join(islice(words, WORDS_IN_LINE))}\n" for _ in range(length)]


def reference(model: str | None, tell: Callable[[str], None], path: Path | None = None) -> tuple[Known, ...]:
    """Right answers: kept in `path` (default: a file in the temporary folder), or asked of a healthy fleet now.

    Raises NoReference, CouldNotStart.
    """
    asked = prompts()
    path = path or _kept_at(model, asked)
    known = _read(path)
    if known is None:
        recipe = Recipe(model=model, flags=(*DTYPE, "--no-prefix-cache"))
        with embedded(recipe, tell) as running:
            known = tuple(_ask_all(running, asked, tell))
        _write(path, known)
    return known


def body(model: str, prompt: tuple[int, ...] | str, new_tokens: int) -> dict[str, object]:
    """A greedy completion that ends with its length and not before."""
    return {"model": model, "prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "logit_bias": BANNED}


def headers(keys: Keys, tenant: str) -> dict[str, str]:
    """Whose request it is."""
    return {"authorization": f"Bearer {keys.of(tenant)}"}


def _ask_all(running: Running, asked: tuple[Prompt, ...], tell: Callable[[str], None]) -> Iterator[Known]:
    base = (running.target.router or "").rstrip("/")
    with httpx.Client(base_url=base, headers=headers(running.keys, "a"), timeout=300.0, trust_env=False) as client:
        model = client.get("/v1/models").json()["data"][0]["id"]
        for number, prompt in enumerate(asked):
            tell(f"reference: the healthy fleet answers {number + 1} of {len(asked)}")
            ids = tuple(client.post("/tokenize", json={"prompt": prompt.text}).json()["tokens"])
            reply = client.post(
                "/v1/completions", json=body(model, ids, prompt.new_tokens) | {"return_token_ids": True}
            )
            if reply.status_code != 200:
                raise NoReference(f"a healthy fleet answered HTTP {reply.status_code}: {reply.text[:200]}")
            choice = reply.json()["choices"][0]
            yield Known(prompt.kind, prompt.text, ids, choice["text"], tuple(choice["token_ids"]))


def _kept_at(model: str | None, asked: tuple[Prompt, ...]) -> Path:
    """One file per model, version and set of prompts."""
    named = repr((model, __version__, asked, BANNED)).encode()
    key = hashlib.sha256(named).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"pagefence-lab-{os.getuid()}" / f"reference-{key}.json"


def _read(path: Path) -> tuple[Known, ...] | None:
    """What is kept there, unless somebody else put it there."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        return msgspec.json.decode(path.read_bytes(), type=tuple[Known, ...])
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, known: tuple[Known, ...]) -> None:
    """Keeping it saves time and nothing else: where it cannot be kept, it is asked for again."""
    with suppress(OSError, CannotWrite):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(known), indent=1))
