"""Any OpenAI-compatible endpoint: nothing but a model list is common to all, so its figures have to be declared."""

from __future__ import annotations

from pagefence.fleet.engines.adapter import Adapter, Asked, advertised, model
from pagefence.fleet.facts import UNKNOWN, NodeFacts
from pagefence.fleet.http import Reply

ENGINE = "openai-compatible"
MODELS = "/v1/models"


def recognises(reply: Reply) -> str | None:
    """By the shape of a model list."""
    return f"{MODELS} is a model list" if isinstance(reply.body.get("data"), list) else None


def read(asked: Asked) -> NodeFacts:
    """The advertised limit, where a model card has one."""
    promised = advertised(asked)
    return NodeFacts(
        role=UNKNOWN,
        url=asked.url,
        engine=ENGINE,
        version=None,
        context=promised,
        advertised=promised,
        model=model(asked),
        open_api=asked.reply(MODELS).serves,
        missing=("pool", *(() if promised.value is not None else ("context",))),
    )


ADAPTER = Adapter(ENGINE, MODELS, recognises, (), read)
