"""What the edge tells of itself and of its model, so that clients and probes know the limit that is kept here.

`/server_info` is read by `pagefence gate` and `verify` (fleet/engines/pagefence.py), `/tokenize` by `verify`, which
counts its borders with it. Both as vLLM, SGLang and PageFence's own router have them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from pagefence import __version__
from pagefence.edge.capacity import Room
from pagefence.edge.refusal import Refusal
from pagefence.engine.model.tokenizer import Tokenizer

_PROMISES = ("max_model_len", "context_length", "context_window", "max_context_length")
_AT_ONCE = 4096  # characters that are tokenised on the event loop


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


def server_info(room: Room | None, unready: list[str]) -> bytes:
    """A router of which no worker is told: who asks here is not to know them."""
    known = (
        {} if room is None else {"context_length": room.total, "max_req_input_len": min(room.longest, room.total - 1)}
    )
    return msgspec.json.encode(
        {
            "engine": "pagefence",
            "version": __version__,
            "role": "router",
            **known,
            "ready": not unready,
            "reasons": unready,
            "guards": {"edge-admission": room is not None},
            "workers": [],
        }
    )


async def tokenized(tokenizer: Tokenizer, body: dict[str, Any], room: Room | None) -> bytes | Refusal:
    """The token ids of a text as a completion would have them."""
    try:
        asked = msgspec.convert(body, _Asked)
        if len(asked.prompt) <= _AT_ONCE:
            ids = tokenizer.encode(asked.prompt, asked.add_special_tokens)
        else:
            ids = await asyncio.to_thread(tokenizer.encode, asked.prompt, asked.add_special_tokens)
    except (msgspec.ValidationError, ValueError) as error:
        return Refusal(400, "invalid_value", f"{str(error)[:200]}. What is tokenised here is a text, as `prompt`.")
    limit = {} if room is None else {"max_model_len": room.total}
    return msgspec.json.encode({"count": len(ids), **limit, "tokens": ids})
