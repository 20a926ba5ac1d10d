"""What a request asks for and what its answer must be, known to both ends: an echo of the request's own nonce."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from random import Random
from typing import Any

NONCE = re.compile(r"nonce-[0-9a-f]{24}")
STRAY = re.compile(r"stray-([0-9]+)-[0-9]+")
"""In an answer that belongs to no request: when it was sent, in nanoseconds of CLOCK_MONOTONIC."""
_NUMBER = re.compile(r"(parts|pad|pause)=([0-9]+)")
PATHS = {"chat": "/v1/chat/completions", "completion": "/v1/completions", "response": "/v1/responses"}


@dataclass(frozen=True, slots=True)
class Wish:
    """An answer of so many parts, each with `pad` bytes more, and so many milliseconds between two of them.

    honest  who reads it does not lie
    """

    nonce: str
    parts: int = 3
    pad: int = 0
    pause_ms: int = 0
    honest: bool = False

    @classmethod
    def made(cls, rng: Random, parts: int = 3, pad: int = 0, pause_ms: int = 0, honest: bool = False) -> Wish:
        return cls(f"nonce-{rng.getrandbits(96):024x}", parts, pad, pause_ms, honest)

    @classmethod
    def read(cls, text: str) -> Wish:
        """As an upstream reads it; a text without a wish is answered with three words."""
        said = {name: int(value) for name, value in _NUMBER.findall(text)}
        nonce = NONCE.search(text)
        sizes = said.get("parts", 3), said.get("pad", 0), said.get("pause", 0)
        return cls(nonce[0] if nonce else "word", *sizes, "honest=1" in text)

    @property
    def text(self) -> str:
        """The prompt."""
        return f"{self.nonce} parts={self.parts} pad={self.pad} pause={self.pause_ms} honest={self.honest:d}"

    def part(self, number: int) -> str:
        return f"{self.nonce} {number}/{self.parts} {'x' * self.pad}\n"

    @property
    def answer(self) -> str:
        return "".join(map(self.part, range(self.parts)))


def body_of(kind: str, wish: Wish, stream: bool) -> dict[str, Any]:
    """A request for it, as any client would write one."""
    body: dict[str, Any] = {"model": "toy", "stream": stream}
    if kind == "chat":
        return body | {"messages": [{"role": "user", "content": wish.text}], "max_tokens": 64}
    if kind == "completion":
        return body | {"prompt": wish.text, "max_tokens": 64}
    return body | {"input": wish.text, "max_output_tokens": 64}


def vector_of(text: str) -> list[float]:
    """An embedding that belongs to this text alone."""
    return [byte / 256 for byte in hashlib.sha256(text.encode()).digest()[:8]]
