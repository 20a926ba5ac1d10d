"""What the latency probe computes its floor from: how much a prompt token costs, and what this machine can do at most.

Both err on the side of a lower floor: parameters that a prompt token does not use are left out, and the peak is one
that no processor of this kind reaches.
"""

from __future__ import annotations

import os
from collections.abc import Set

from pagefence.engine.model.config import Dtype, ModelConfig
from pagefence.engine.model.dtype import cpu_flags

# No processor sold runs at more. Which clock this one has a virtual machine often does not tell.
_MOST_HZ = 6_500_000_000
# Floating point operations of one core in one clock cycle, two units that multiply and add: instruction set, for
# bfloat16, for float32. The first that the processor has counts.
_PER_CYCLE = (
    ("amx_bf16", 2048, 64),
    ("avx512_bf16", 128, 64),
    ("avx512f", 64, 64),
    ("avx2", 32, 32),
)


def active_parameters(config: ModelConfig) -> int:
    """Weights of the matrices that each prompt token goes through. Embedding and output are none of them: one is a
    look-up, the other is needed for the last token only."""
    attention = config.hidden * config.head_dim * (2 * config.heads + 2 * config.kv_heads)
    moe = config.moe
    dense = config.layers if moe is None else min(config.layers, moe.dense_layers)
    total = config.layers * attention + dense * 3 * config.hidden * config.mlp
    if moe is not None:
        token = 3 * config.hidden * (moe.used * moe.mlp + moe.shared) + config.hidden * moe.experts
        total += (config.layers - dense) * token
    return total


def peak_flop_per_s(dtype: Dtype, flags: Set[str] | None = None, cores: int | None = None) -> int | None:
    """More than all cores of this machine compute in a second; None for a processor that is not in the table."""
    known = cpu_flags() if flags is None else flags
    each = next(((bf16, f32) for name, bf16, f32 in _PER_CYCLE if name in known), None)
    if each is None:
        return None
    return (cores or os.cpu_count() or 1) * _MOST_HZ * each[dtype == "float32"]


def speed(config: ModelConfig, dtype: Dtype) -> dict[str, int]:
    """The figures for `/server_info`, all positive; what is not known is left out."""
    peak = peak_flop_per_s(dtype)
    figures = {
        "active_parameters": active_parameters(config),
        "layers": config.layers,
        "attention_width": config.heads * config.head_dim,
    }
    return figures if peak is None else figures | {"devices": 1, "peak_flop_per_s": peak}
