"""What the edge tells of itself and of its model, so that clients and probes know the limit that is kept here.

`/server_info` is read by `pagefence gate` and `verify` (fleet/engines/pagefence.py), `/tokenize` by `verify`, which
counts its borders with it. Both as vLLM, SGLang and PageFence's own router have them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pagefence import __version__
from pagefence.edge.beside import Beside, Queue
from pagefence.edge.capacity import Room
from pagefence.edge.refusal import Refusal
from pagefence.engine.model.tokenizer import Tokenizer

_PROMISES = ("max_model_len", "context_length", "context_window", "max_context_length")
_AT_ONCE = 4096  # characters that are tokenised on the event loop
_LONGEST = 8 * 1024 * 1024  # characters; the library takes a minute for four million, and cannot be told to stop
COUNTS = Queue(threads=1, waiting=32, amount=8 * _LONGEST, per_tenant=8, tenant_amount=2 * _LONGEST)
"""Texts that wait to be tokenised: beside the counts of admission, so that a flood of them refuses nobody's prompt."""


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt: str
    model: str | None = None
    add_special_tokens: bool = True


def promised(said: bytes, limit: int) -> bytes:
    """A listing of models in which no card promises more tokens than `limit`; as it is where it is none.

    A client that believes a promise sends what is then refused (I8). A card that promises nothing is told the limit,
    by vLLM's and SGLang's name for it.
    """
    try:
        listing = msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return said
    cards = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(cards, list):
        return said
    for card in (card for card in cards if isinstance(card, dict)):
        known = [name for name in _PROMISES if card.get(name) is not None]
        for name in known or _PROMISES[:1]:
            told = card.get(name)
            card[name] = min(told, limit) if type(told) is int and told > 0 else limit
    return msgspec.json.encode(listing)


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


async def tokenized(
    tokenizer: Tokenizer, tag: str, body: dict[str, Any], room: Room | None, beside: Beside
) -> bytes | Refusal:
    """The token ids of a text as a completion would have them. `tag`: of the tenant; `beside`: for long ones."""
    try:
        asked = msgspec.convert(body, _Asked)
        size = len(asked.prompt)
        if size > _LONGEST:
            return Refusal(413, "request_too_large", f"No more than {_LONGEST:,} characters are tokenised.", "prompt")
        if size <= _AT_ONCE:
            return _counted(tokenizer, asked, room)
        return await beside.run(tag, size, _counted, tokenizer, asked, room)
    except (msgspec.ValidationError, ValueError) as error:
        return Refusal(400, "invalid_value", f"{str(error)[:200]}. What is tokenised here is a text, as `prompt`.")


def _counted(tokenizer: Tokenizer, asked: _Asked, room: Room | None) -> bytes:
    ids = tokenizer.encode(asked.prompt, asked.add_special_tokens)
    limit = {} if room is None else {"max_model_len": room.total}
    return msgspec.json.encode({"count": len(ids), **limit, "tokens": ids})
