"""LMDeploy (`lmdeploy serve api_server`): its one endpoint with blocks echoes a configuration, so the pool is declared.

Read in InternLM/lmdeploy, commits 156ed458 and 732a2744:
- `lmdeploy/serve/openai/endpoints/distserve.py`: `/distserve/engine_info` copies `num_gpu_blocks` and `block_size` from
  the engine's configuration. It answers a JSON *string* that holds the object (`return response.model_dump_json()`).
  The TurboMind back-end has no such fields, so the path answers 500 there.
- `lmdeploy/pytorch/engine/engine.py`: newer PyTorch engines write the blocks that were allocated back into that
  configuration; older ones leave what was asked for, 0 where nothing was. No endpoint tells the version, so which of
  the two a number is cannot be known: it never counts as live. One block of it is reserved besides.
- `lmdeploy/serve/openai/protocol.py`: `ModelCard.owned_by` is "lmdeploy", and has no length.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagefence.fleet.answer import decode_json, mapping
from pagefence.fleet.engines.adapter import Adapter, Asked, model, settings
from pagefence.fleet.engines.readings import owner
from pagefence.fleet.facts import UNKNOWN, Figure, NodeFacts, figure, unknown
from pagefence.fleet.http import Reply

ENGINE = "lmdeploy"
MODELS = "/v1/models"
INFO = "/distserve/engine_info"
_SETTINGS = (
    "tp_size", "dp_size", "pp_size", "ep_size", "dp_rank", "block_size", "num_gpu_blocks", "num_cpu_blocks",
)  # fmt: skip


def recognises(reply: Reply) -> str | None:
    """By the owner of its model cards."""
    return f'{MODELS} says owned_by = "lmdeploy"' if owner(reply) == "lmdeploy" else None


def read(asked: Asked) -> NodeFacts:
    """Facts of one server: its settings, and no figure."""
    body = _engine(asked.reply(INFO))
    pool = _pool(asked.reply(INFO), body)
    return NodeFacts(
        role=UNKNOWN,
        url=asked.url,
        engine=ENGINE,
        version=None,
        pool=pool,
        ranks=(pool,),
        model=model(asked, MODELS),
        settings=settings(body, _SETTINGS),
        open_api=asked.reply(MODELS).serves,
        missing=("pool", "context", "longest", "page_size"),
    )


def _engine(reply: Reply) -> Mapping[str, object]:
    value = decode_json(reply.text.encode()) if reply.problem is None else None
    return mapping(decode_json(value.encode()) if isinstance(value, str) else value)


def _pool(reply: Reply, body: Mapping[str, object]) -> Figure:
    """Always unknown; the reason tells what was echoed."""
    source = f"{INFO} num_gpu_blocks"
    if reply.problem is not None:
        return unknown(source, reply.problem)
    echoed = figure(body, ("num_gpu_blocks",), INFO)
    said = f"is {echoed.value:,} but" if echoed.value is not None else f"{echoed.problem}, and"
    return unknown(source, f"{said} may be no more than what was configured")


ADAPTER = Adapter(ENGINE, MODELS, recognises, (INFO,), read)
