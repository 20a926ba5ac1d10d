"""TensorRT-LLM (`trtllm-serve`): `/prometheus/metrics` has the live pool, once the engine has done one iteration.

Read in NVIDIA/TensorRT-LLM, the state of summer 2026:
- `tensorrt_llm/serve/openai_server.py`: the routes; `/prometheus/metrics` is there only with `return_perf_metrics`, and
  is filled only with `enable_iter_perf_stats`. `/metrics` is never asked: it hands out each iteration's statistics
  once, so a reader takes them from the next. Info gauges hold launch arguments; `max_model_len` among them is
  configuration, and no limit that the process was seen to keep.
- `tensorrt_llm/metrics/collector.py` (commit 050f80de): `trtllm_kv_cache_max_blocks` and
  `trtllm_kv_cache_tokens_per_block` come from `kvCacheStats` of an iteration: before the first one they are absent.
- `tensorrt_llm/_torch/pyexecutor/resource_manager.py`: all ranks agree on the smallest of their pools (MPI.MIN), so the
  figure of rank 0 is everybody's. With several processes there is one sample for each (`pid`): the smallest counts.
- `tensorrt_llm/serve/openai_protocol.py`: `ModelCard.owned_by` is "tensorrt_llm". `/version` alone tells
  nothing: vLLM's looks the same.
"""

from __future__ import annotations

from pagefence.fleet.engines.adapter import Adapter, Asked, model
from pagefence.fleet.engines.readings import info_labels, least, owner, product
from pagefence.fleet.facts import UNKNOWN, NodeFacts, text, unknown
from pagefence.fleet.http import Reply

ENGINE = "tensorrt-llm"
MODELS = "/v1/models"
VERSION = "/version"
METRICS = "/prometheus/metrics"
_BLOCKS, _TOKENS = "trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block"
_INFO = (
    "trtllm_model_config_info",
    "trtllm_parallel_config_info",
    "trtllm_kv_cache_config_info",
    "trtllm_speculative_config_info",
)


def recognises(reply: Reply) -> str | None:
    """By the owner of its model cards."""
    return f'{MODELS} says owned_by = "tensorrt_llm"' if owner(reply) == "tensorrt_llm" else None


def read(asked: Asked) -> NodeFacts:
    """Facts of one server."""
    page = least(asked, METRICS, _TOKENS)
    pool = product(least(asked, METRICS, _BLOCKS), page)
    if pool.problem is not None and asked.reply(METRICS).status == 200:
        pool = unknown(pool.source, f"{pool.problem} (it appears after one iteration: send one request first)")
    elif asked.reply(METRICS).status == 404:
        pool = unknown(pool.source, f"{pool.problem} (start the server with return_perf_metrics)")
    return NodeFacts(
        role=UNKNOWN,
        url=asked.url,
        engine=ENGINE,
        version=text(asked.json(VERSION), "version"),
        pool=pool,
        page_size=page,
        ranks=(pool,),
        model=model(asked, MODELS),
        settings=info_labels(asked, METRICS, _INFO),
        open_api=asked.reply(MODELS).serves,
        missing=("context", "longest"),
    )


ADAPTER = Adapter(ENGINE, MODELS, recognises, (VERSION, METRICS), read)
