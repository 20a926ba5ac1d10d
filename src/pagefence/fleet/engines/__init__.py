"""One adapter for each engine. To add one: a file like the others, and its name in `ADAPTERS`."""

from __future__ import annotations

from pagefence.fleet.engines import llama_server, openai, pagefence, sglang, vllm
from pagefence.fleet.engines.adapter import Adapter, Asked

# The order in which a node is asked who it is; what every engine answers to comes last.
ADAPTERS: tuple[Adapter, ...] = (
    pagefence.ADAPTER,
    sglang.ADAPTER,
    vllm.ADAPTER,
    llama_server.ADAPTER,
    sglang.OLD,
    openai.ADAPTER,
)

__all__ = ["ADAPTERS", "Adapter", "Asked"]
