"""SGLang: `/server_info` holds the launch flags, and under `internal_states` what each data-parallel rank has.

The figures at its top are rank 0's. `max_total_tokens` is what was asked for, never what there is. `/v1/models`
promises the context also where the pool is smaller [seen on 0.5.23: 2,048 promised, 1,024 there]. `/v1/loads` tells the
pool of each rank again, by its number: it is asked where `internal_states` leaves ranks out. Older versions have
`/get_server_info` only.
"""

from __future__ import annotations

from functools import partial

from pagefence.fleet.answer import mapping
from pagefence.fleet.engines.adapter import (
    Adapter,
    Asked,
    Counters,
    Holding,
    advertised,
    amount,
    model,
    settings,
    total,
)
from pagefence.fleet.facts import (
    DECODE,
    PREFILL,
    SINGLE,
    UNKNOWN,
    Figure,
    NodeFacts,
    figure,
    positive,
    smallest,
    text,
    unknown,
)
from pagefence.fleet.http import Reply

ENGINE = "sglang"
INFO = "/server_info"
OLD_INFO = "/get_server_info"
LOADS = "/v1/loads"
_ROLES = {"prefill": PREFILL, "decode": DECODE, "null": SINGLE, None: SINGLE}
# max_req_input_len is min(context - 1, pool - 1) - 5, and a prompt must be shorter than that [seen on 0.5.23 with a
# pool of 1,024: 1,017 tokens are accepted, 1,018 are refused].
_KEPT_OF_POOL = 7
# So long one side of a pair may wait for the other (SGLANG_DISAGGREGATION_WAITING_TIMEOUT, its default).
_WAITING_S = 300.0
# What changes how much fits, or the bytes that a transfer moves.
_SETTINGS = (
    "model_path", "revision", "weight_version", "dtype", "quantization", "kv_cache_dtype", "context_length",
    "page_size", "max_total_tokens", "mem_fraction_static", "tp_size", "dp_size", "pp_size", "ep_size",
    "enable_dp_attention",
    "chunked_prefill_size", "max_running_requests", "cuda_graph_config", "disaggregation_mode",
    "disaggregation_transfer_backend", "speculative_algorithm", "enable_hierarchical_cache", "attention_backend",
)  # fmt: skip


def recognises(reply: Reply, path: str = INFO) -> str | None:
    """By a field that no other engine's `/server_info` has."""
    if "internal_states" in reply.body or "disaggregation_transfer_backend" in reply.body:
        return f"{path} holds SGLang's launch flags"
    return None


def read(asked: Asked, path: str = INFO) -> NodeFacts:
    """Facts of one SGLang server, from its description at `path`."""
    body = asked.json(path)
    ranks = _ranks(asked, path)
    pool = smallest(ranks, f"{path} internal_states")
    return NodeFacts(
        role=_role(body.get("disaggregation_mode", 0)),
        url=asked.url,
        engine=ENGINE,
        version=text(body, "version"),
        pool=pool,
        longest=_longest(asked, path, pool),
        context=_context(asked, path),
        page_size=asked.figure(path, "page_size"),
        ranks=ranks,
        advertised=advertised(asked),
        model=model(asked) or text(body, "served_model_name"),
        flags={
            "auto_truncate": asked.flag(path, "allow_auto_truncate"),
            "kv_checksum": asked.flag(path, "disaggregation_enable_kv_checksum"),
            "kv_transfer": asked.flag(path, "disaggregation_transfer_backend"),
        },
        settings=settings(body, _SETTINGS),
        open_api=asked.reply("/v1/models").serves,
    )


def _role(mode: object) -> str:
    return _ROLES.get(mode, UNKNOWN) if mode is None or isinstance(mode, str) else UNKNOWN


def _ranks(asked: Asked, path: str) -> tuple[Figure, ...]:
    """The pool of every rank, and an unknown one in place of those that nobody tells."""
    told = _states(asked, path)
    size = asked.figure(path, "dp_size")
    if size.value is None:
        return (*told, unknown(size.source, f"{size.problem}, so the number of ranks is unknown"))
    if len(told) >= size.value:
        return told
    again, numbers = _loads(asked)
    if numbers >= set(range(min(size.value, len(numbers) + 1))):
        return (*told, *again)
    why = asked.reply(LOADS).json_problem or f"tells {len(numbers)}"
    what = f"tells {len(told)} of {size.value:,} ranks, and {LOADS} {why}"
    return (*told, *again, unknown(f"{path} internal_states", what))


def _states(asked: Asked, path: str) -> tuple[Figure, ...]:
    states = asked.json(path).get("internal_states")
    return tuple(
        figure(
            mapping(mapping(state).get("memory_usage")),
            ("token_capacity",),
            f"{path} internal_states[{i}].memory_usage",
        )
        for i, state in enumerate(states if isinstance(states, list) else [])
    )


def _loads(asked: Asked) -> tuple[tuple[Figure, ...], set[int]]:
    """What `/v1/loads` tells of each rank, and the numbers of the ranks that it tells of."""
    listed = asked.json(LOADS).get("loads")
    found: list[Figure] = []
    numbers: set[int] = set()
    for load in map(mapping, listed if isinstance(listed, list) else []):
        rank = load.get("dp_rank")
        found.append(figure(load, ("max_total_num_tokens",), f"{LOADS} dp_rank {rank}"))
        if isinstance(rank, int) and not isinstance(rank, bool):
            numbers.add(rank)
    return tuple(found), numbers


def _leaves_ranks_out(reply: Reply, path: str = INFO) -> tuple[str, ...]:
    asked = Asked("", {path: reply})
    return (LOADS,) if len(_states(asked, path)) < (asked.figure(path, "dp_size").value or 0) else ()


def _longest(asked: Asked, path: str, pool: Figure) -> Figure:
    """The longest prompt that every rank accepts. `max_req_input_len` is rank 0's and is itself refused."""
    first = asked.figure(path, "max_req_input_len")
    if first.value is None:
        return first
    if pool.value is not None and pool.value - _KEPT_OF_POOL < first.value - 1:
        return positive(pool.value - _KEPT_OF_POOL, f"{pool.source} - {_KEPT_OF_POOL}")
    return positive(first.value - 1, f"{first.source} - 1")


def _context(asked: Asked, path: str) -> Figure:
    """What it serves; the flag where the model list is closed (it is the same number, or null when not given)."""
    promised = advertised(asked)
    return promised if promised.value is not None else asked.figure(path, "context_length")


def counters(asked: Asked, role: str) -> Counters:
    """With `--enable-metrics`. These count when a request has ended; others only at each log interval.

    Refused requests are counted too, with the one token of their placeholder on prefill. Decode repeats what prefill
    found in its cache [seen on 0.5.23], so there it says nothing of its own.
    """
    if "sglang:" not in asked.reply("/metrics").text:
        return Counters()
    return Counters(
        asked.counted("sglang:num_requests_total"),
        asked.counted("sglang:prompt_tokens_total"),
        0 if role == DECODE else asked.counted("sglang:cached_tokens_total"),
    )


def held(asked: Asked, role: str) -> Holding:
    """Tokens of all ranks that neither are free nor lie in the prefix cache alone.

    [Seen on 0.5.23: 1,022 of 1,024 tokens cached, none used.]

    `/metrics` has them too, but a server at rest writes that figure only every 30 s; this one is made as it is asked
    for, or whenever a server comes to rest.
    """
    listed = asked.json(LOADS).get("loads")
    loads = [mapping(load) for load in listed] if isinstance(listed, list) else []
    used = [amount(load.get("num_used_tokens")) for load in loads]
    tokens = None if None in used else total(*used)
    steps = [load.get("decode_moments") for load in loads]
    done = total(
        *(amount(load.get("total_prefill_uncached_tokens")) for load in loads),
        *(amount(moments[0]) for moments in steps if isinstance(moments, list) and moments),
    )
    return Holding(tokens, "tokens", done, _WAITING_S if role in (PREFILL, DECODE) else 0.0)


ADAPTER = Adapter(
    ENGINE,
    INFO,
    recognises,
    ("/v1/models",),
    read,
    also=_leaves_ranks_out,
    counters=counters,
    held=held,
    held_at=LOADS,
)
OLD = Adapter(
    ENGINE,
    OLD_INFO,
    partial(recognises, path=OLD_INFO),
    ("/v1/models",),
    partial(read, path=OLD_INFO),
    also=partial(_leaves_ranks_out, path=OLD_INFO),
    counters=counters,
    held=held,
    held_at=LOADS,
)
