"""SGLang: `/server_info` holds the launch flags, and under `internal_states` what each data-parallel rank has.

The figures at its top are rank 0's. `max_total_tokens` is what was asked for, never what there is. `/v1/models`
promises the context also where the pool is smaller [seen on 0.5.23: 2,048 promised, 1,024 there].
"""

from __future__ import annotations

from pagefence.fleet.answer import mapping
from pagefence.fleet.engines.adapter import Adapter, Asked, advertised, model, settings
from pagefence.fleet.facts import DECODE, PREFILL, SINGLE, UNKNOWN, Figure, NodeFacts, positive, smallest, text
from pagefence.fleet.http import Reply

ENGINE = "sglang"
INFO = "/server_info"
_OLD_INFO = "/get_server_info"
_RANK = "internal_states[{}].memory_usage.token_capacity"
_ROLES = {"prefill": PREFILL, "decode": DECODE, "null": SINGLE, None: SINGLE}
# What changes how much fits, or the bytes that a transfer moves.
_SETTINGS = (
    "model_path", "revision", "weight_version", "dtype", "quantization", "kv_cache_dtype", "context_length",
    "page_size", "max_total_tokens", "mem_fraction_static", "tp_size", "dp_size", "pp_size", "ep_size",
    "enable_dp_attention",
    "chunked_prefill_size", "max_running_requests", "cuda_graph_config", "disaggregation_mode",
    "disaggregation_transfer_backend", "speculative_algorithm", "enable_hierarchical_cache", "attention_backend",
)  # fmt: skip


def recognises(reply: Reply) -> str | None:
    """By a field that no other engine's `/server_info` has."""
    if "internal_states" in reply.body or "disaggregation_transfer_backend" in reply.body:
        return f"{INFO} holds SGLang's launch flags"
    return None


def read(asked: Asked) -> NodeFacts:
    """Facts of one SGLang server."""
    body = asked.json(INFO)
    ranks = _ranks(body)
    mode = body.get("disaggregation_mode")
    checksum = asked.flag(INFO, "disaggregation_enable_kv_checksum")
    return NodeFacts(
        role=_ROLES.get(mode if isinstance(mode, str) else None, UNKNOWN) if "disaggregation_mode" in body else UNKNOWN,
        url=asked.url,
        engine=ENGINE,
        version=text(body, "version"),
        pool=smallest(ranks, f"{INFO} {_RANK.format(0)}"),
        longest=asked.figure(INFO, "max_req_input_len"),
        context=_context(asked),
        page_size=asked.figure(INFO, "page_size"),
        ranks=ranks,
        advertised=advertised(asked),
        model=model(asked) or text(body, "served_model_name"),
        flags={
            "auto_truncate": asked.flag(INFO, "allow_auto_truncate"),
            "kv_checksum": checksum,
            "kv_transfer": asked.flag(INFO, "disaggregation_transfer_backend"),
        },
        settings=settings(body, _SETTINGS),
        open_api=asked.reply("/v1/models").status == 200,
    )


def _ranks(body: object) -> tuple[Figure, ...]:
    states = mapping(body).get("internal_states")
    found = []
    for i, state in enumerate(states if isinstance(states, list) else []):
        usage = mapping(mapping(state).get("memory_usage"))
        source = f"{INFO} {_RANK.format(i)}"
        found.append(
            positive(usage["token_capacity"], source)
            if "token_capacity" in usage
            else Figure(None, source, "is missing")
        )
    size = mapping(body).get("dp_size")
    if isinstance(size, int) and not isinstance(size, bool) and len(found) < size <= 100_000:
        missing = f"{INFO} internal_states has {len(found)} of {size} ranks"
        found.append(Figure(None, missing, "and the others are not told"))
    return tuple(found)


def _context(asked: Asked) -> Figure:
    """What it serves; the flag where the model list is closed (it is the same number, or null when not given)."""
    promised = advertised(asked)
    return promised if promised.value is not None else asked.figure(INFO, "context_length")


ADAPTER = Adapter(ENGINE, INFO, recognises, ("/v1/models",), read)
