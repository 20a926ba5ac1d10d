"""One adapter for each engine. To add one: a file like the others, and its name in `ADAPTERS`."""

from __future__ import annotations

from pagefence.fleet.engines import (
    dynamo,
    llama_server,
    lmdeploy,
    ollama,
    openai,
    pagefence,
    sglang,
    smg,
    tensorrt_llm,
    tgi,
    vllm,
)
from pagefence.fleet.engines.adapter import Adapter, Asked

# The order in which a node is asked who it is. A router that hands questions on to a worker comes before every engine
# that it could pass for; a sign that several share is asked once; what every engine answers to comes last. TensorRT-LLM
# comes before those that ask for /metrics, because reading its own takes statistics away.
ADAPTERS: tuple[Adapter, ...] = (
    smg.ADAPTER,
    pagefence.ADAPTER,
    sglang.ADAPTER,
    tensorrt_llm.ADAPTER,
    vllm.ADAPTER,
    llama_server.ADAPTER,
    lmdeploy.ADAPTER,
    tgi.ADAPTER,
    ollama.ADAPTER,
    dynamo.ADAPTER,
    sglang.OLD,
    openai.ADAPTER,
)

__all__ = ["ADAPTERS", "Adapter", "Asked"]
