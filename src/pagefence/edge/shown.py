"""What the edge tells of itself and of its model, so that clients and probes know the limit that is kept here.

`/server_info` is read by `pagefence gate` and `verify` (fleet/engines/pagefence.py), `/tokenize` by `verify`, which
counts its borders with it. Both as vLLM, SGLang and PageFence's own router have them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from pagefence import __version__
from pagefence.edge.beside import Beside, Queue
from pagefence.edge.capacity import Room
from pagefence.edge.cuts import Stopped, can_cut, parts_of
from pagefence.edge.refusal import Refusal
from pagefence.engine.model.tokenizer import Tokenizer

_PROMISES = ("max_model_len", "context_length", "context_window", "max_context_length")
_LISTING = 4 * 1024 * 1024  # bytes of a list of models
_AT_ONCE = 4096  # characters that are tokenised on the event loop
_LONGEST = 4 * 1024 * 1024  # characters that are tokenised at all
_QUEUE = Queue(threads=1, waiting=16, amount=4 * _LONGEST, per_tenant=8, tenant_amount=2 * _LONGEST)


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt: str
    model: str | None = None
    add_special_tokens: bool = True


def promised(said: bytes, limit: int) -> bytes | None:
    """A listing of models in which no card promises more tokens than `limit`; as it is where it is none.

    None for a huge one, and for one that only more lenient parsers than ours can read: a client would believe it.

    A client that believes a promise sends what is then refused (I8). A card that promises nothing is told the limit,
    by vLLM's and SGLang's name for it.
    """
    if len(said) > _LISTING:
        return None
    try:
        listing = msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None if _readable(said) else said
    cards = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(cards, list):
        return said
    for card in (card for card in cards if isinstance(card, dict)):
        known = [name for name in _PROMISES if card.get(name) is not None]
        for name in known or _PROMISES[:1]:
            told = card.get(name)
            card[name] = min(told, limit) if type(told) is int and told > 0 else limit
    return msgspec.json.encode(listing)


def _readable(said: bytes) -> bool:
    try:
        json.loads(said)
    except RecursionError:
        return True  # by parsers that go deeper
    except ValueError:
        return False
    return True


def server_info(room: Room | None, ready: bool) -> bytes:
    """A router of which no worker is told, nor why it is not ready: who asks here is not to know addresses."""
    known = (
        {} if room is None else {"context_length": room.total, "max_req_input_len": min(room.longest, room.total - 1)}
    )
    return msgspec.json.encode(
        {
            "engine": "pagefence",
            "version": __version__,
            "role": "router",
            **known,
            "ready": ready,
            "guards": {"edge-admission": room is not None},
            "workers": [],
        }
    )


class Tokenizing:
    """Token ids of texts, as completions would have them: beside the event loop and one after the other."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._cuts = can_cut(tokenizer.definition())
        self._beside = Beside(_QUEUE, "tokenize")

    async def answer(self, body: dict[str, Any], tag: str, room: Room | None) -> bytes | Refusal:
        """`tag`: of the tenant. A client that goes takes it with it, at the next part."""
        stop = threading.Event()
        try:
            asked = msgspec.convert(body, _Asked)
            if len(asked.prompt) > _LONGEST:
                said = f"No more than {_LONGEST:,} characters are tokenised."
                return Refusal(413, "request_too_large", said, "prompt")
            if len(asked.prompt) <= _AT_ONCE:
                ids: list[int] | Refusal = self._ids(asked, stop.is_set)
            else:
                ids = await self._beside.run(tag, len(asked.prompt), self._ids, asked, stop.is_set)
        except (msgspec.ValidationError, ValueError) as error:
            return Refusal(400, "invalid_value", f"{str(error)[:200]}. What is tokenised here is a text, as `prompt`.")
        finally:
            stop.set()
        if isinstance(ids, Refusal):
            return ids
        limit = {} if room is None else {"max_model_len": room.total}
        return msgspec.json.encode({"count": len(ids), **limit, "tokens": ids})

    def _ids(self, asked: _Asked, stopped: Callable[[], bool]) -> list[int]:
        ids = list(self._tokenizer.prefix) if asked.add_special_tokens else []
        for part in parts_of(asked.prompt) if self._cuts else [asked.prompt]:
            if stopped():
                raise Stopped
            ids += self._tokenizer.encode_beside(part)
        return ids
