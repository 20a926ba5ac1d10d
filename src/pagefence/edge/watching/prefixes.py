"""How much of a prompt its tenant can have put into a prefix cache: by keyed hashes of how its earlier prompts began.

A prompt is taken as bytes that hold at least what a template makes of it: tools first, then message by message. Of
every prompt the hashes of its first 64, 128, ... 65,536 bytes are kept, and of the whole of it. A cache can hold of a
new prompt

- no more than the first border that no earlier prompt reached in the same way,
- or, where an earlier prompt is a prefix of this one, that and the answer to it, which the next message repeats.

A token is at least one byte, so bytes bound tokens; `slack` stands for what a template adds before the first message.
What does not fit the bound was never sent by this tenant. No text is kept; a key that only this process has.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from pagefence.edge.call import Call

SMALLEST, LARGEST = 64, 65_536
_KEPT = 200_000  # hashes in each of two halves; an older half is forgotten as a whole
_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class History:
    """`cached_at_most`: tokens, None when nothing can be said. `complete`: nothing of this tenant's was forgotten."""

    cached_at_most: int | None
    complete: bool


class Prefixes:
    """Raises ValueError for a bound that cannot be.

    slack     tokens that a chat template puts before the first message
    complete  whether this process saw every prompt of its tenants: their isolation keys (or the engines' caches) began
              with it, and no other edge sends for them
    """

    def __init__(self, slack: int = 512, complete: bool = False, kept: int = _KEPT) -> None:
        if slack < 0 or kept < 1:
            raise ValueError("slack is 0 or more, kept is 1 or more")
        self._slack, self._complete, self._most = slack, complete, kept
        self._key = secrets.token_bytes(32)
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()
        self._forgot = False

    def sent(self, call: Call) -> History:
        """What can be cached of this prompt; from now on it can be in the cache itself."""
        tenant = self._tenant(call)
        known = self._knows(tenant)
        hasher, size, border = blake2b(key=self._key, digest_size=12), 0, SMALLEST
        hasher.update(tenant)
        marks, bound = [tenant], 0 if not known else None
        reach, countable = 0, True  # the end of what an earlier prompt and its answer cover
        for part, answer, text in _parts(call.body):
            countable = countable and text
            if answer and self._knows(hasher.copy().digest()):
                reach = size + len(part)
            at = 0
            while size + len(part) - at >= border and border <= LARGEST:
                hasher.update(part[at : at + border - size])
                at, size, border = at + border - size, border, 2 * border
                marks.append(hasher.digest())
                if bound is None and not self._knows(marks[-1]):
                    bound = size
            if size >= LARGEST:
                break
            hasher.update(part[at:])
            size += len(part) - at
        else:
            marks.append(hasher.digest())
            if bound is None and not self._knows(marks[-1]):
                bound = size
        self._remember(marks)
        if not known:
            return History(0, self._complete and not self._forgot)
        if bound is None or not countable:
            return History(None, False)
        return History(max(bound, reach) + self._slack, self._complete and not self._forgot)

    def _tenant(self, call: Call) -> bytes:
        return blake2b(call.tenant.isolation_key.encode(), key=self._key, digest_size=12).digest()

    def _knows(self, digest: bytes) -> bool:
        return digest in self._new or digest in self._old

    def _remember(self, marks: list[bytes]) -> None:
        self._new.update(marks)
        if len(self._new) > self._most:
            self._forgot = self._forgot or bool(self._old)
            self._old, self._new = self._new, set()


def _parts(body: Mapping[str, Any]) -> Iterator[tuple[bytes, bool, bool]]:
    """The prompt in the order in which a template writes it: bytes, whether an assistant said it, and whether bytes
    bound its tokens, which they do not in pictures and sounds, nor where a server keeps the conversation."""
    for name in ("tools", "functions", "documents", "instructions", "chat_template_kwargs", "prompt"):
        if body.get(name) is not None:
            yield _encode([name, _begin(body[name])]), False, name != "prompt" or not isinstance(body[name], dict)
    if body.get("previous_response_id") is not None or body.get("conversation") is not None:
        yield b"", False, False
    for name in ("messages", "input"):
        value = body.get(name)
        for item in value if isinstance(value, list) else [value] if value is not None else []:
            said = isinstance(item, dict) and item.get("role") == "assistant"
            # Of an assistant's message the whole length counts: the cache holds all that it said.
            yield _encode(item if said else _begin(item)), said, _only_text(item)


def _begin(value: Any) -> Any:
    """So much of it as is looked at: a character and a token id are a byte at least."""
    if isinstance(value, str | list):
        return value[:LARGEST]
    if isinstance(value, dict) and isinstance(value.get("content"), str) and len(value["content"]) > LARGEST:
        return {**value, "content": value["content"][:LARGEST]}
    return value


def _only_text(item: object) -> bool:
    content = item.get("content") if isinstance(item, dict) else None
    return not isinstance(content, list) or all(isinstance(part, dict) and "text" in part for part in content)
