"""What the engine tells of its speed is never more work, and never less hardware, than there is."""

from __future__ import annotations

import pytest

from pagefence.engine.model.config import Dtype, ModelConfig, MoE
from pagefence.engine.speed import active_parameters, peak_flop_per_s


def config(moe: MoE | None = None) -> ModelConfig:
    """The embedded model's sizes."""
    return ModelConfig("llama", 30, 576, 9, 3, 64, 1536, 49_152, 100_000.0, 64, 1e-5, 8192, True, None, (2,), moe=moe)


def test_the_embedded_model_without_its_embedding() -> None:
    total, embedding, norms = 134_515_008, 49_152 * 576, 61 * 576
    assert active_parameters(config()) == total - embedding - norms


def test_of_experts_only_those_count_that_a_token_uses() -> None:
    moe = MoE(1, 64, 4, 128, 256, 1, 1, True, 1.0)
    attention, dense = 30 * 576 * 64 * 24, 3 * 576 * 1536
    assert active_parameters(config(moe)) == attention + dense + 29 * (3 * 576 * (4 * 128 + 256) + 576 * 64)


@pytest.mark.parametrize(
    ("flags", "dtype", "each"),
    [({"avx2"}, "float32", 32), ({"avx2", "avx512f", "amx_bf16"}, "bfloat16", 2048), ({"avx512f"}, "float32", 64)],
)
def test_the_peak_is_that_of_the_widest_instructions_at_a_clock_that_nothing_has(
    flags: set[str], dtype: Dtype, each: int
) -> None:
    assert peak_flop_per_s(dtype, flags, 2) == 2 * 6_500_000_000 * each


def test_an_unknown_processor_has_no_peak() -> None:
    assert peak_flop_per_s("float32", {"sve"}, 2) is None
