"""Matrices that stay quantised give what the dequantised ones give, but for bfloat16, whatever is in the batch."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.engine.model.decoder import Decoder, Span
from pagefence.engine.model.quantised import Packed, blocks_of, pack, quantised_product
from pagefence.engine.model.weights import load_weights
from pagefence.models import ModelError
from tests.engine.model.tiny_models import Array, make, write_gguf

KINDS = (GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0)
BFLOAT16 = 2.0**-8  # the rounding of one scale, input or output


def quantised(rows: int, columns: int, kind: GGMLQuantizationType, seed: int) -> tuple[Packed, torch.Tensor]:
    """A random matrix as the kernel reads it, and dequantised."""
    values = np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)
    raw = gguf.quants.quantize(values, kind)
    packed = pack([blocks_of(raw, kind)])
    assert packed is not None
    return packed, torch.from_numpy(gguf.quants.dequantize(raw, kind))


def encoded(values: Array, kind: GGMLQuantizationType) -> tuple[Array, GGMLQuantizationType]:
    """Quantised, where rows are whole blocks."""
    if values.ndim != 2 or values.shape[-1] % 32:
        return values, GGMLQuantizationType.F32
    return gguf.quants.quantize(values, kind), kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_that_of_the_dequantised_matrix_within_the_rounding_of_bfloat16(
    kind: GGMLQuantizationType,
) -> None:
    packed, dense = quantised(48, 128, kind, seed=1)
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(2))
    wanted, bound = x @ dense.t(), 4 * BFLOAT16 * (x.abs() @ dense.abs().t())
    assert ((quantised_product(x, packed) - wanted).abs() <= bound).all()
    assert ((quantised_product(x, packed) - wanted).abs() / wanted.std()).mean() < 2 * BFLOAT16


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(rows=st.integers(2, 70), seed=st.integers(0, 99))
def test_a_row_is_the_same_alone_and_among_any_others(kind: GGMLQuantizationType, rows: int, seed: int) -> None:
    packed, _ = quantised(64, 64, kind, seed=3)
    x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(seed))
    together = quantised_product(x, packed)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(quantised_product(x[row : row + 1], packed)[0], together[row])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_in_another_order_give_outputs_in_that_order(kind: GGMLQuantizationType) -> None:
    raw = gguf.quants.quantize(np.random.default_rng(4).standard_normal((32, 64), dtype=np.float32), kind)
    blocks, order, x = blocks_of(raw, kind), torch.randperm(32), torch.randn(1, 64)
    assert blocks is not None
    plain, turned = pack([blocks]), pack([blocks[order]])
    assert plain is not None
    assert turned is not None
    assert torch.equal(quantised_product(x, turned), quantised_product(x, plain)[:, order])


def test_what_the_kernel_cannot_run_is_not_packed() -> None:
    four, eight = (
        blocks_of(gguf.quants.quantize(np.ones((16, 32), np.float32), kind), kind) for kind in (KINDS[0], KINDS[2])
    )
    assert pack([four]) is not None
    assert pack([four, eight]) is None
    assert pack([four, None]) is None
    assert pack([blocks_of(gguf.quants.quantize(np.ones((8, 32), np.float32), KINDS[0]), KINDS[0])]) is None
    assert blocks_of(np.zeros((4, 210), np.uint8), GGMLQuantizationType.Q6_K) is None


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "glm4", "glm4moe"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_family_runs_quantised_near_its_dequantised_self(
    tmp_path: Path, family: str, kind: GGMLQuantizationType
) -> None:
    """Sizes that the kernel takes; the rotary channels of Llama and GLM-4 change places in blocks, too."""
    model = make(family, hidden_size=64, intermediate_size=96, num_attention_heads=4, head_dim=16, vocab_size=96)

    path = write_gguf(tmp_path / "tiny.gguf", family, model, lambda values: encoded(values, kind))
    plain, packed = Decoder.load(path), Decoder.load(path, quantised=True)
    assert any(isinstance(matrix, Packed) for layer in packed.weights.layers for matrix in layer.matrices)
    config = plain.config
    span, layout = Span((0, 1), 0, tuple(range(3, 12))), (2, config.layers, 2, 8, config.kv_heads, config.head_dim)
    wanted, made = (each.forward([span], torch.zeros(layout))[0] for each in (plain, packed))
    assert (made - wanted).abs().mean() < 0.05 * wanted.std()


def test_the_embedded_model_stays_near_its_dequantised_self(gguf_path: Path, smollm: Decoder) -> None:
    packed = Decoder.load(gguf_path, quantised=True)
    assert all(isinstance(matrix, Packed) for layer in packed.weights.layers for matrix in layer.matrices)
    assert isinstance(packed.weights.head, Packed)
    config, span = smollm.config, Span((0,), 0, tuple(range(300, 332)))
    wanted, made = (
        each.forward([span], torch.zeros(1, config.layers, 2, 64, config.kv_heads, config.head_dim))[0]
        for each in (smollm, packed)
    )
    assert (made - wanted).abs().mean() < 0.05 * wanted.std()


def test_a_matrix_of_another_shape_is_refused_by_name_though_it_could_stay(tmp_path: Path) -> None:
    model = make("llama", hidden_size=64, intermediate_size=96, num_attention_heads=4, head_dim=16, vocab_size=96)
    small = model.state_dict()["model.layers.0.mlp.down_proj.weight"]
    model.model.layers[0].mlp.down_proj.weight = torch.nn.Parameter(small[:, :64].contiguous(), requires_grad=False)
    path = write_gguf(tmp_path / "tiny.gguf", "llama", model, lambda values: encoded(values, KINDS[1]))
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_down\.weight.*\(64, 64\), expected \(64, 96\)"):
        load_weights(path, torch.float32, quantised=True)


def test_a_file_without_a_matrix_that_can_stay_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", "llama", make("llama"))
    with pytest.raises(ModelError, match=r"Q4_0, Q4_1 or Q8_0.*exact mode"):
        load_weights(path, torch.float32, quantised=True)
    with pytest.raises(ModelError, match=r"on a CPU, not on cuda"):
        load_weights(path, torch.float32, "cuda", quantised=True)
    with pytest.raises(ModelError, match=r"folder.*exact mode"):
        load_weights(tmp_path, torch.float32, quantised=True)
