"""Hugging Face TGI: `/info` has the limits that its router enforces; the size of the pool is told nowhere.

Read in huggingface/text-generation-inference, 3.x:
- `router/src/lib.rs`, `Info`: `max_input_tokens` (older: `max_input_length`), `max_total_tokens`, `version`,
  `router` = "text-generation-router". text-embeddings-inference has an `/info` too, with another router and no total.
- `router/src/validation.rs`: a prompt is refused when it is longer than `max_input_tokens`, or when it and its new
  tokens exceed `max_total_tokens`; so both are limits that are kept, not only announced.
- `max_batch_total_tokens` of older versions is a setting of the batcher, which the warm-up may have replaced.
"""

from __future__ import annotations

from pagefence.fleet.engines.adapter import Adapter, Asked, settings
from pagefence.fleet.facts import UNKNOWN, NodeFacts, text
from pagefence.fleet.http import Reply

ENGINE = "tgi"
INFO = "/info"
_SETTINGS = (
    "model_id", "model_sha", "model_dtype", "model_device_type", "max_concurrent_requests", "max_client_batch_size",
    "max_batch_total_tokens", "max_batch_size", "max_input_tokens", "max_input_length", "max_total_tokens", "sha",
    "docker_label",
)  # fmt: skip


def recognises(reply: Reply) -> str | None:
    """By the name of its router."""
    name = "text-generation-router"
    return f'{INFO} says router = "{name}"' if str(reply.body.get("router", "")).startswith(name) else None


def read(asked: Asked) -> NodeFacts:
    """Facts of one server."""
    body = asked.json(INFO)
    context = asked.figure(INFO, "max_total_tokens")
    return NodeFacts(
        role=UNKNOWN,
        url=asked.url,
        engine=ENGINE,
        version=text(body, "version"),
        longest=asked.figure(INFO, "max_input_tokens", "max_input_length"),
        context=context,
        advertised=context,
        model=text(body, "model_id"),
        settings=settings(body, _SETTINGS),
        missing=("pool", "page_size"),
    )


ADAPTER = Adapter(ENGINE, INFO, recognises, (), read)
