"""NVIDIA Dynamo's frontend: `/metrics` has one pool for each model, whatever the number of workers behind it.

Read in ai-dynamo/dynamo, the state of autumn 2026 (commits 0014908a and 0e85161d; releases from 1.2 on):
- `lib/llm/src/http/service/metrics.rs`: `dynamo_frontend_model_total_kv_blocks`, `_kv_cache_block_size` and
  `_context_length` have the label `model` and no other. They are set from the card of a worker when it registers, so
  the last one to come overwrites what the others said: the figure is a worker's only where there is just one, with one
  rank. 0 and absence mean that the worker did not report. `DYN_METRICS_PREFIX` renames all of them: such a frontend is
  not recognised.
- `lib/llm/src/model_card.rs`: the context is the engine's limit or, where the worker reported none, what the model's
  architecture allows: never less than what is live.
- `lib/llm/src/http/service/worker_metrics.rs`: `dynamo_frontend_router_worker_state` names every worker with its type,
  `dynamo_frontend_worker_active_decode_blocks` every worker and rank. None has an HTTP address here: workers are asked
  at their own system ports, named with --prefill and --decode.
- `lib/llm/src/http/service/openai.rs`: `context_window` of `/v1/models` is what clients are promised
  (`DYN_CONTEXT_WINDOW` replaces it).
No endpoint tells the version: the one in `/openapi.json` is a constant.
"""

from __future__ import annotations

from pagefence.fleet.engines.adapter import Adapter, Asked, advertised, model
from pagefence.fleet.engines.readings import least, product
from pagefence.fleet.facts import DECODE, PREFILL, ROUTER, UNKNOWN, Figure, NodeFacts, brief, unknown
from pagefence.fleet.http import Reply

ENGINE = "dynamo"
METRICS = "/metrics"
MODELS = "/v1/models"
_PREFIX = "dynamo_frontend_"
_BLOCKS, _TOKENS = _PREFIX + "model_total_kv_blocks", _PREFIX + "model_kv_cache_block_size"
_CONTEXT = _PREFIX + "model_context_length"
_STATE, _RANKS = _PREFIX + "router_worker_state", _PREFIX + "worker_active_decode_blocks"
_SETTINGS = ("model_kv_cache_block_size", "model_max_num_seqs", "model_max_num_batched_tokens", "model_migration_limit")
_ROLES = {"prefill": PREFILL, "decode": DECODE}


def recognises(reply: Reply) -> str | None:
    """By the names of its metrics; a worker's begin otherwise."""
    named = any(line.startswith(_PREFIX) for line in reply.text.splitlines())
    return f"{METRICS} has {_PREFIX}*" if named else None


def read(asked: Asked) -> NodeFacts:
    """Facts of a frontend: a server with one worker, or a router before several."""
    workers, ranks = _workers(asked)
    # A prefill worker alone serves nobody: its decode side has not come yet.
    several = len(workers) > 1 or PREFILL in workers.values()
    page = _of_one_model(asked, _TOKENS)
    pool = _pool(asked, page, len(workers), ranks)
    return NodeFacts(
        role=ROUTER if several else UNKNOWN,
        url=asked.url,
        engine=ENGINE,
        version=None,
        pool=pool,
        context=_of_one_model(asked, _CONTEXT),
        page_size=page,
        ranks=(pool,),
        advertised=advertised(asked, MODELS, "context_window"),
        model=model(asked, MODELS),
        settings=_settings(asked),
        workers=tuple(("", role) for role in workers.values()) if several else (),
        open_api=asked.reply(MODELS).serves,
        missing=("pool",) if pool.value is None else (),
    )


def _workers(asked: Asked) -> tuple[dict[str, str | None], int]:
    """The workers that the frontend names, by id with their role, and the number of ranks that it names."""
    types: dict[str, str] = {}
    for labels, value in asked.metrics(METRICS, _STATE)[0]:
        if value:
            types[labels.get("router_worker_id", "")] = labels.get("worker_type", "")
    ranks = [labels for labels, _ in asked.metrics(METRICS, _RANKS)[0]]
    for labels in ranks:
        types.setdefault(labels.get("worker_id", ""), labels.get("worker_type", ""))
    # A server without prefill workers calls its only kind "decode" too.
    apart = "prefill" in types.values()
    roles = {worker: _ROLES.get(kind) if apart else None for worker, kind in types.items()}
    return roles, len({(labels.get("worker_id"), labels.get("dp_rank")) for labels in ranks})


def _pool(asked: Asked, page: Figure, workers: int, ranks: int) -> Figure:
    found = product(_of_one_model(asked, _BLOCKS), page)
    if found.value is None:
        return found
    if workers != 1 or ranks != 1:
        known = f"{workers} workers with {ranks} ranks are named"
        problem = f"is {found.value:,}, but is one figure, of the worker that registered last: {known}"
        return unknown(found.source, problem)
    return found


def _of_one_model(asked: Asked, name: str) -> Figure:
    """A gauge of the model that is served; of several models it is nobody's."""
    models = {labels.get("model") for labels, _ in asked.metrics(METRICS, name)[0]}
    if len(models) > 1:
        return unknown(f"{METRICS} {name}", f"is told for {len(models)} models: gate a frontend that serves one")
    return least(asked, METRICS, name)


def _settings(asked: Asked) -> dict[str, str]:
    found = {name: {_exactly(value) for _, value in asked.metrics(METRICS, _PREFIX + name)[0]} for name in _SETTINGS}
    return {name: ", ".join(sorted(values)) for name, values in found.items() if values}


def _exactly(value: float) -> str:
    return f"{value:.17g}" if isinstance(value, float) else brief(value)  # an int of any size is a value here too


ADAPTER = Adapter(ENGINE, METRICS, recognises, (MODELS,), read)
