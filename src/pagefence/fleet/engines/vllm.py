"""vLLM: `/metrics` tells the pool in the labels of one sample for each engine, `/v1/models` the context.

Which figure is whose [read in the source: `vllm/v1/engine/core_client.py`, `_apply_ready_response`]: `num_gpu_blocks`
is the sum over all data-parallel ranks and is repeated on every sample; `kv_cache_size_tokens` is that of the rank that
answered first, and counts what a model with several kinds of layers really holds, which blocks x block size does not.
One block of each rank is the null block, which holds nobody's tokens [seen on 0.32.0: 364 blocks of 128 are told as
46,592 tokens, and 363 can be used].

No endpoint tells the role of a disaggregated pair, the data type of the weights or their quantisation.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.fleet.engines.adapter import (
    Adapter,
    Asked,
    Counters,
    Holding,
    Labels,
    advertised,
    cards,
    model,
    number,
    settings,
    total,
)
from pagefence.fleet.facts import DECODE, PREFILL, UNKNOWN, Figure, NodeFacts, brief, positive, smallest, text, unknown
from pagefence.fleet.http import Reply

ENGINE = "vllm"
MODELS = "/v1/models"
METRICS = "/metrics"
_INFO = "vllm:cache_config_info"
_SOURCE = f"{METRICS} {_INFO}"
# A prefill keeps so long what its decode does not fetch (VLLM_NIXL_ABORT_REQUEST_TIMEOUT, its default).
_FETCH_S = 480.0
# What changes how much fits, what a page is, or who shares it.
_SETTINGS = (
    "block_size", "cache_dtype", "gpu_memory_utilization", "kv_cache_memory_bytes", "num_gpu_blocks_override",
    "enable_prefix_caching", "prefix_caching_hash_algo", "sliding_window", "kv_cache_dtype_skip_layers",
    "kv_cache_layout", "kv_sharing_fast_prefill", "kv_offloading_backend", "kv_offloading_size", "mamba_block_size",
    "mamba_cache_dtype", "mamba_cache_mode", "is_attention_free",
)  # fmt: skip


def recognises(reply: Reply) -> str | None:
    """By the owner in its model list: several engines have a `/version`, and nothing in vLLM's says whose it is."""
    owned = any(card.get("owned_by") == ENGINE for card in cards(Asked("", {MODELS: reply})))
    return f'{MODELS} says owned_by = "{ENGINE}"' if owned else None


def read(asked: Asked) -> NodeFacts:
    """Facts of one vLLM server. Its role has to be declared where it is part of a pair."""
    samples, problem = asked.metrics(METRICS, _INFO)
    labels = [found for found, _ in samples]
    ranks = _ranks(labels) if problem is None else (unknown(_SOURCE, problem),)
    promised = advertised(asked)
    return NodeFacts(
        role=UNKNOWN,
        url=asked.url,
        engine=ENGINE,
        version=text(asked.json("/version"), "version"),
        pool=smallest(ranks, _SOURCE),
        context=promised,
        page_size=_label(labels[0], "block_size") if labels else unknown(f"{_SOURCE} block_size", str(problem)),
        ranks=ranks,
        advertised=promised,
        model=model(asked),
        settings=_settings(asked, labels),
        open_api=asked.reply(MODELS).serves,
    )


def _ranks(labels: Sequence[Labels]) -> tuple[Figure, ...]:
    """The pool of every rank. Of many, only the first is told: the others are known where they must be equal to it."""
    count = len({one.get("engine") for one in labels})
    return tuple(_rank(one, count) for one in labels)


def _rank(labels: Labels, count: int) -> Figure:
    told = [_label(labels, name) for name in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size")]
    for figure in told:
        if figure.value is None:
            return figure
    tokens, blocks, size = (figure.value or 0 for figure in told)
    source = told[0].source
    if count > 1 and not _equal(labels, count, tokens, blocks * size):
        why = f"is {tokens:,}, but of the first of {count} ranks only, and num_gpu_blocks is the sum of them all"
        return unknown(source, why)
    each = blocks // count
    return positive(tokens * (each - 1) // each if each else 0, f"{source} less the null block")


def _equal(labels: Labels, count: int, first: int, total: int) -> bool:
    """Whether every rank has what the first has.

    The average being that of the first is no proof, unless there are but two, or a setting gave each rank its size.
    """
    given = any(_label(labels, name).value for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override"))
    return first * count == total and (count == 2 or given)


def _label(labels: Labels, name: str) -> Figure:
    source = f"{_SOURCE} {name}"
    return number(labels[name], source) if name in labels else unknown(source, "is missing")


def _settings(asked: Asked, labels: Sequence[Labels]) -> dict[str, str]:
    found = settings(labels[0], _SETTINGS) if labels else {}
    roots = [brief(card["root"]) for card in cards(asked) if card.get("root") and not card.get("parent")]
    if roots:
        found["model_path"] = roots[0]
    if labels:
        found["data_parallel_ranks"] = str(len({one.get("engine") for one in labels}))
    return found


def counters(asked: Asked, role: str) -> Counters:
    """Its own cache, and the tiers behind it (host, disk, peers). On decode those tiers are the hand-off itself."""
    if "vllm:" not in asked.reply(METRICS).text:
        return Counters()
    own, behind = (asked.counted(f"vllm:{name}prefix_cache_hits_total") for name in ("", "external_"))
    cached = None if own is None or behind is None else own + (0 if role == DECODE else behind)
    return Counters(
        asked.counted("vllm:request_success_total"),
        asked.counted("vllm:prompt_tokens_total"),
        cached,
    )


def held(asked: Asked, role: str) -> Holding:
    """The share of the pool that is not free, of all ranks together; a free block that is cached counts as free.

    It is told anew by each step, also by the one that follows an abort [read in the source: `Scheduler.make_stats`].
    """
    share = asked.summed("vllm:kv_cache_usage_perc")
    done = total(*(asked.summed(f"vllm:{name}_tokens_total") for name in ("prompt", "generation")))
    late_s = _FETCH_S if role in (PREFILL, DECODE) else 0.0
    return Holding(None if share is None else 100 * share, "% of the pool", done, late_s)


ADAPTER = Adapter(ENGINE, MODELS, recognises, ("/version", METRICS), read, counters=counters, held=held)
