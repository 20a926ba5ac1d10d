"""llama-server of llama.cpp: `/props` tells the context of one slot and how many slots there are.

With a split store each slot has `n_ctx` cells of its own; with `--kv-unified` all slots share `n_ctx` cells, and
slots x `n_ctx` would overstate the pool. No endpoint says which of the two it is [seen on b11434], so the pool of a
server with several slots has to be declared. `/v1/models` also has `n_ctx_train`, what the model was trained for: no
limit of this server.
"""

from __future__ import annotations

from pagefence.fleet.answer import mapping
from pagefence.fleet.engines.adapter import Adapter, Asked, Counters, Holding, cards, model, settings
from pagefence.fleet.facts import SINGLE, Figure, NodeFacts, figure, text, unknown
from pagefence.fleet.http import Reply

ENGINE = "llama-server"
PROPS = "/props"
_GENERATION = "default_generation_settings"
_SETTINGS = ("model_path", "model_ftype", "total_slots", "build_info")
_MODEL = ("ftype", "n_params", "size", "n_ctx_train")


def recognises(reply: Reply) -> str | None:
    """By a field that no other engine's `/props` has."""
    return f"{PROPS} holds {_GENERATION}" if _GENERATION in reply.body else None


def read(asked: Asked) -> NodeFacts:
    """Facts of one llama-server. It takes part in no hand-off, so it is a server of its own."""
    body = asked.json(PROPS)
    context = figure(mapping(body.get(_GENERATION)), ("n_ctx",), f"{PROPS} {_GENERATION}")
    slots = asked.figure(PROPS, "total_slots")
    pool = _pool(context, slots)
    return NodeFacts(
        role=SINGLE,
        url=asked.url,
        engine=ENGINE,
        version=_version(asked),
        pool=pool,
        context=context,
        page_size=Figure(1, "llama.cpp stores every token in a cell of its own"),
        ranks=(pool,),
        advertised=context,
        model=model(asked) or text(body, "model_alias"),
        settings=_settings(asked, context),
        open_api=asked.reply("/v1/models").serves,
        missing=("pool",) if pool.value is None else (),
    )


def _pool(context: Figure, slots: Figure) -> Figure:
    if context.value is None:
        return context
    if slots.value is None:
        return slots
    if slots.value == 1:
        return context
    least, most = context.value, context.value * slots.value
    why = (
        f"is at least {least:,} tokens (and at most {most:,}): no endpoint says whether the {slots.value} slots share "
        "one store (--kv-unified) or have one each; declare pool"
    )
    return unknown(f"{context.source} x total_slots", why)


def _version(asked: Asked) -> str | None:
    """`build_info`, like "b11434-0123abc". One that was built outside a repository says "b0-unknown": no version."""
    build = text(asked.json(PROPS), "build_info")
    return None if build is None or build.startswith("b0-") else build


def _settings(asked: Asked, context: Figure) -> dict[str, str]:
    listed = cards(asked)
    found = settings(asked.json(PROPS), _SETTINGS)
    found |= settings(mapping(listed[0].get("meta")) if listed else {}, _MODEL)
    return found | ({"n_ctx": str(context.value)} if context.value is not None else {})


def counters(asked: Asked, role: str) -> Counters:
    """With `--metrics`. It counts no requests."""
    if "llamacpp:" not in asked.reply("/metrics").text:
        return Counters()
    computed, cached = (asked.counted(f"llamacpp:prompt_tokens_{name}total") for name in ("", "cached_"))
    return Counters(None, None if computed is None or cached is None else computed + cached, cached)


def held(asked: Asked, role: str) -> Holding:
    """With `--metrics`: slots with a request. What a slot keeps of its last one is a cache."""
    return Holding(asked.summed("llamacpp:requests_processing"), "slots", asked.summed("llamacpp:n_decode_total"))


ADAPTER = Adapter(ENGINE, PROPS, recognises, ("/v1/models",), read, token_field="content", counters=counters, held=held)
