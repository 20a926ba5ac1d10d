"""Panels give what the dense matrix gives but for float rounding, and a row the same bits whatever is beside it."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.engine.model import panels, weights
from pagefence.engine.model.decoder import Decoder, Span
from pagefence.engine.model.matrix import FEW, matrix_of, product
from pagefence.engine.model.panels import Panels, panel_product, panels_of_bfloat16, panels_of_blocks
from pagefence.engine.model.quantised import blocks_of
from pagefence.engine.model.weights import load_weights
from pagefence.models import ModelError
from tests.engine.model.tiny_models import Array, make, write_gguf

QUANTISED = (GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0)
KINDS = (*QUANTISED, GGMLQuantizationType.BF16)
# Sizes that panels and blocks take.
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16, "vocab_size": 96}
ROUNDING = 2.0**-18  # of a sum of a few hundred floats, relative to the sum of their magnitudes

pytestmark = pytest.mark.skipif(not panels.available(), reason="there was no C compiler when PageFence was installed")


def in_panels(rows: int, columns: int, kind: GGMLQuantizationType, seed: int = 1) -> tuple[Panels, torch.Tensor]:
    """A random matrix in panels, and dense."""
    values = np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)
    raw = gguf.quants.quantize(values, kind)
    dense = torch.from_numpy(gguf.quants.dequantize(raw, kind))
    made = panels_of_bfloat16(dense) if kind is GGMLQuantizationType.BF16 else panels_of_blocks([blocks_of(raw, kind)])
    assert made is not None
    return made, dense


def random(rows: int, columns: int, seed: int = 2) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def encoded(values: Array, kind: GGMLQuantizationType) -> tuple[Array, GGMLQuantizationType]:
    """Quantised, where rows are whole blocks."""
    if values.ndim != 2 or values.shape[-1] % 32:
        return values, GGMLQuantizationType.F32
    return gguf.quants.quantize(values, kind), kind


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(tokens=st.integers(1, 20), panels=st.integers(1, 9), blocks=st.integers(1, 8), seed=st.integers(0, 99))
def test_a_product_is_that_of_the_dense_matrix_within_float_rounding(
    kind: GGMLQuantizationType, tokens: int, panels: int, blocks: int, seed: int
) -> None:
    matrix, dense = in_panels(16 * panels, 32 * blocks, kind, seed)
    x = random(tokens, 32 * blocks, seed)
    # The terms of a sum: a code times its scale, and its offset, may be larger than the weight that they add up to.
    terms = x.abs() @ (dense.abs() + dense.abs().max()).t()
    assert ((panel_product(x, matrix) - x @ dense.t()).abs() <= ROUNDING * terms).all()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(rows=st.integers(2, 40), seed=st.integers(0, 99), threads=st.integers(1, 2))
def test_a_row_has_the_same_bits_alone_and_among_any_others(
    kind: GGMLQuantizationType, rows: int, seed: int, threads: int
) -> None:
    matrix, _ = in_panels(112, 96, kind)
    x = random(rows, 96, seed)
    before = torch.get_num_threads()
    together = panel_product(x, matrix)
    try:
        torch.set_num_threads(threads)
        for row in range(rows):
            assert torch.equal(panel_product(x[row : row + 1], matrix)[0], together[row])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", QUANTISED)
def test_rows_in_another_order_give_outputs_in_that_order(kind: GGMLQuantizationType) -> None:
    raw = gguf.quants.quantize(np.random.default_rng(4).standard_normal((32, 64), dtype=np.float32), kind)
    blocks, order, x = blocks_of(raw, kind), torch.randperm(32), random(1, 64)
    assert blocks is not None
    plain, turned = panels_of_blocks([blocks]), panels_of_blocks([blocks[order]])
    assert plain is not None
    assert turned is not None
    assert torch.equal(panel_product(x, turned), panel_product(x, plain)[:, order])


def test_parts_lie_on_top_of_each_other() -> None:
    parts = [gguf.quants.quantize(random(16 * n, 64, n).numpy(), GGMLQuantizationType.Q4_1) for n in (1, 2)]
    blocks, x = [blocks_of(part, GGMLQuantizationType.Q4_1) for part in parts], random(3, 64)
    whole, each = panels_of_blocks(blocks), [panels_of_blocks([part]) for part in blocks]
    assert whole is not None
    assert torch.equal(panel_product(x, whole), torch.cat([panel_product(x, part) for part in each if part], 1))


def test_what_the_kernel_cannot_run_has_no_panels() -> None:
    four, eight, odd = (
        blocks_of(gguf.quants.quantize(np.ones((rows, 32), np.float32), kind), kind)
        for rows, kind in ((16, QUANTISED[0]), (16, QUANTISED[2]), (8, QUANTISED[0]))
    )
    assert panels_of_blocks([four]) is not None
    for parts in ([four, eight], [four, None], [odd], []):
        assert panels_of_blocks(parts) is None
    assert blocks_of(np.zeros((4, 210), np.uint8), GGMLQuantizationType.Q6_K) is None
    assert panels_of_bfloat16(torch.ones(16, 32)) is not None
    assert panels_of_bfloat16(torch.ones(8, 32)) is None
    assert panels_of_bfloat16(torch.ones(16, 48)) is None


def test_a_matrix_that_bfloat16_would_round_stays_dense() -> None:
    matrix = torch.ones(16, 32)
    matrix[15, 31] += 2.0**-9
    assert panels_of_bfloat16(matrix) is None
    assert matrix_of(matrix).panels is None


def test_an_input_of_another_width_is_refused_before_memory_is_read() -> None:
    matrix, _ = in_panels(16, 64, GGMLQuantizationType.BF16)
    with pytest.raises(ValueError, match=r"\(1, 32\) does not fit a matrix of 64 columns"):
        panel_product(torch.ones(1, 32), matrix)


def test_an_input_that_lies_apart_or_in_another_type_gives_the_same_product() -> None:
    matrix, _ = in_panels(32, 64, GGMLQuantizationType.Q8_0)
    x = random(64, 6).t()
    assert torch.equal(panel_product(x, matrix), panel_product(x.contiguous(), matrix))
    half = x.to(torch.bfloat16)
    assert torch.equal(panel_product(half, matrix), panel_product(half.float(), matrix).to(torch.bfloat16))


def test_few_tokens_go_through_panels_and_many_through_the_dense_form() -> None:
    panels_, dense = in_panels(32, 64, GGMLQuantizationType.BF16)
    both = matrix_of(dense)
    assert torch.equal(product(random(FEW, 64), both), panel_product(random(FEW, 64), panels_))
    many = product(random(FEW + 1, 64), both)
    assert torch.equal(many, product(random(FEW + 1, 64), matrix_of(dense, forms="dense")))
    assert torch.allclose(many, panel_product(random(FEW + 1, 64), panels_), atol=1e-4)


def test_a_library_that_does_not_load_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "_panels.so"
    broken.write_bytes(b"\x7fELF, and nothing behind it")
    monkeypatch.setattr(panels, "find_spec", lambda name: ModuleSpec(name, None, origin=str(broken)))
    assert panels._library.__wrapped__() is None


def test_without_a_compiled_product_everything_is_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (panels, weights):
        monkeypatch.setattr(module, "available", lambda: False)
    path = write_gguf(tmp_path / "tiny.gguf", "llama", make("llama", **SIZES), lambda v: encoded(v, QUANTISED[0]))
    _, loaded = load_weights(path, torch.float32)
    assert all(matrix.panels is None for layer in loaded.layers for matrix in layer.matrices)
    with pytest.raises(ModelError, match=r"C compiler.*apt-get install.*exact mode"):
        load_weights(path, torch.float32, forms="panels")


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "glm4", "glm4moe"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_family_in_panels_is_its_dense_self(tmp_path: Path, family: str, kind: GGMLQuantizationType) -> None:
    """The rotary channels of Llama and GLM-4 change places in blocks, too."""
    path = write_gguf(tmp_path / "tiny.gguf", family, make(family, **SIZES), lambda values: encoded(values, kind))
    dense, both = Decoder.load(path, forms="dense"), Decoder.load(path)
    assert any(matrix.panels for layer in both.weights.layers for matrix in layer.matrices)
    models = [both] if kind is GGMLQuantizationType.BF16 else [both, Decoder.load(path, forms="panels")]
    config = dense.config
    span, layout = Span((0, 1), 0, tuple(range(3, 12))), (2, config.layers, 2, 8, config.kv_heads, config.head_dim)
    wanted = dense.forward([span], torch.zeros(layout))[0]
    for model in models:
        assert (model.forward([span], torch.zeros(layout))[0] - wanted).abs().max() < 1e-4 * wanted.std()


@pytest.mark.slow
def test_the_embedded_model_in_panels_is_its_dense_self(gguf_path: Path) -> None:
    dense, quantised = Decoder.load(gguf_path, forms="dense"), Decoder.load(gguf_path, forms="panels")
    assert all(matrix.dense is None for layer in quantised.weights.layers for matrix in layer.matrices)
    assert quantised.weights.head.dense is None
    config, span = dense.config, Span((0,), 0, tuple(range(300, 332)))
    wanted, made = (
        each.forward([span], torch.zeros(1, config.layers, 2, 64, config.kv_heads, config.head_dim))[0]
        for each in (dense, quantised)
    )
    assert (made - wanted).abs().max() < 1e-3 * wanted.std()


def test_a_matrix_of_another_shape_is_refused_by_name_though_it_could_stay(tmp_path: Path) -> None:
    model = make("llama", **SIZES)
    small = model.state_dict()["model.layers.0.mlp.down_proj.weight"]
    model.model.layers[0].mlp.down_proj.weight = torch.nn.Parameter(small[:, :64].contiguous(), requires_grad=False)
    path = write_gguf(tmp_path / "tiny.gguf", "llama", model, lambda values: encoded(values, QUANTISED[1]))
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_down\.weight.*\(64, 64\), expected \(64, 96\)"):
        load_weights(path, torch.float32, forms="panels")


def test_a_file_without_a_matrix_that_can_stay_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", "llama", make("llama"))
    with pytest.raises(ModelError, match=r"Q4_0, Q4_1 or Q8_0.*exact mode"):
        load_weights(path, torch.float32, forms="panels")
    with pytest.raises(ModelError, match=r"on a CPU, not on cuda"):
        load_weights(path, torch.float32, "cuda", forms="panels")
    with pytest.raises(ModelError, match=r"folder.*exact mode"):
        load_weights(tmp_path, torch.float32, forms="panels")
