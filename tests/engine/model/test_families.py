"""Every family from every kind of file: the logits of transformers, and nothing in a file ignored in silence."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pagefence.engine.model.config import load_config
from pagefence.engine.model.decoder import Decoder, Span
from pagefence.engine.model.weights import Experts, LayerWeights, load_weights
from pagefence.models import ModelError

from . import tiny_models
from .test_decoder import expected, expected_all, store, table

# Float32 with another order of summation, over three layers; logits are of order 10. Measured: up to 2.3e-5.
CLOSE = 1e-4
PROMPT = random.Random(1).choices(range(97), k=41)
OTHER = random.Random(2).choices(range(97), k=23)
KINDS = ("folder", "gguf")


@dataclass(frozen=True)
class Family:
    name: str
    reference: Any
    paths: dict[str, Path]
    models: dict[str, Decoder]


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    """Each family as a folder and as a GGUF file of the same numbers, and loaded from both."""
    made = {}
    for name in tiny_models.FAMILIES:
        folder, reference = tmp_path_factory.mktemp(name), tiny_models.make(name)
        reference.save_pretrained(folder)
        paths = {"folder": folder, "gguf": tiny_models.write_gguf(folder / "model.gguf", name, reference)}
        made[name] = Family(name, reference, paths, {kind: Decoder.load(path) for kind, path in paths.items()})
    return made


@pytest.fixture(params=tiny_models.FAMILIES)
def family(families: dict[str, Family], request: pytest.FixtureRequest) -> Family:
    return families[request.param]


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=CLOSE, atol=CLOSE)


def one_chunk(model: Decoder, tokens: list[int]) -> Tensor:
    return model.forward([Span(table(len(tokens), 20), 0, tokens)], store(model.config, 20))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_one_chunk_gives_the_logits_of_transformers(family: Family, kind: str) -> None:
    close(one_chunk(family.models[kind], PROMPT), expected(family.reference, PROMPT))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 7])
def test_chunks_and_single_tokens_through_scrambled_pages_give_them_too(family: Family, kind: str, chunk: int) -> None:
    model, whole = family.models[kind], expected_all(family.reference, PROMPT)
    kv, pages = store(model.config, 30), table(41, 30, seed=chunk)
    for start in range(0, len(PROMPT), chunk):
        logits = model.forward([Span(pages, start, PROMPT[start : start + chunk])], kv)
        close(logits[0], whole[min(start + chunk, 41) - 1])


def test_two_sequences_in_one_batch_equal_each_alone(family: Family) -> None:
    """A fresh prompt beside a decoding sequence, then both decoding."""
    model = family.models["folder"]
    kv, pages = store(model.config, 40), (list(range(39, 20, -2)), list(range(38, 20, -2)))
    model.forward([Span(pages[0], 0, PROMPT[:30])], kv)
    for starts, lengths in (((30, 0), (1, 22)), ((31, 22), (1, 1))):
        spans = [
            Span(pages[n], starts[n], tokens[starts[n] : starts[n] + lengths[n]])
            for n, tokens in enumerate((PROMPT, OTHER))
        ]
        logits = model.forward(spans, kv)
        close(logits[0], one_chunk(model, PROMPT[: spans[0].end]))
        close(logits[1], one_chunk(model, OTHER[: spans[1].end]))


def test_a_poisoned_neighbour_does_not_show(family: Family) -> None:
    """What a stranger's page holds stays in the stranger's rows, also where an expert multiplies rows of both."""
    model = family.models["gguf"]
    kv = store(model.config, 20)
    logits = model.forward([Span([19, 18], 5, PROMPT[5:7]), Span(table(23, 16), 0, OTHER)], kv)
    assert logits[0].isnan().all()
    close(logits[1], one_chunk(model, OTHER))


def test_the_same_numbers_come_from_a_folder_and_from_gguf(family: Family) -> None:
    """To the bit: what llama.cpp's converter permutes, stacks and renames is undone."""
    folder, file = (family.models[kind] for kind in KINDS)
    assert folder.config == file.config
    pairs = list(zip(tensors(folder.weights), tensors(file.weights), strict=True))
    assert len(pairs) > 3 * 6
    assert all(torch.equal(ours.to_dense(), theirs.to_dense()) for ours, theirs in pairs)


def tensors(weights: Any) -> list[Tensor]:
    if isinstance(weights, Tensor) or weights is None:
        return [] if weights is None else [weights]
    parts = weights if isinstance(weights, tuple) else [getattr(weights, field.name) for field in fields(weights)]
    return [tensor for part in parts for tensor in tensors(part)]


def layers_with(**changes: Any) -> Callable[[Decoder], Decoder]:
    def change(layer: LayerWeights) -> LayerWeights:
        return replace(layer, **{name: value for name, value in changes.items() if getattr(layer, name) is not None})

    def changed(model: Decoder) -> Decoder:
        weights = replace(model.weights, layers=tuple(change(layer) for layer in model.weights.layers))
        return Decoder(model.config, weights)

    return changed


def config_with(**changes: Any) -> Callable[[Decoder], Decoder]:
    return lambda model: Decoder(replace(model.config, **changes), model.weights)


def moe_with(**changes: Any) -> Callable[[Decoder], Decoder]:
    def changed(model: Decoder) -> Decoder:
        assert model.config.moe is not None
        return Decoder(replace(model.config, moe=replace(model.config.moe, **changes)), model.weights)

    return changed


def without_correction_bias(model: Decoder) -> Decoder:
    def change(experts: Experts | None) -> Experts | None:
        return None if experts is None else replace(experts, bias=torch.zeros_like(experts.bias))

    layers = tuple(replace(layer, experts=change(layer.experts)) for layer in model.weights.layers)
    return Decoder(model.config, replace(model.weights, layers=layers))


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        pytest.param(name, changed, id=f"{name}-{what}")
        for name, what, changed in [
            ("qwen2", "qkv bias", layers_with(qkv_bias=None)),
            ("qwen3", "qk norm", layers_with(qk_norm=None)),
            ("glm4", "qkv bias", layers_with(qkv_bias=None)),
            ("glm4", "norm after attention", layers_with(attn_post_norm=None)),
            ("glm4", "norm after the MLP", layers_with(mlp_post_norm=None)),
            ("glm4", "partial rotary", config_with(rotary_dim=16)),
            ("glm4moe", "qkv bias", layers_with(qkv_bias=None)),
            ("glm4moe", "qk norm", layers_with(qk_norm=None)),
            ("glm4moe", "partial rotary", config_with(rotary_dim=16)),
            ("glm4moe", "experts", layers_with(experts=None)),
            ("glm4moe", "correction bias", without_correction_bias),
            ("glm4moe", "groups", moe_with(groups=1, groups_used=1)),
            ("glm4moe", "other groups", moe_with(groups_used=3)),
            ("glm4moe", "normalised shares", moe_with(normalised=False)),
            ("glm4moe", "scale", moe_with(scale=1.0)),
        ]
    ],
)
def test_each_part_counts(families: dict[str, Family], name: str, changed: Callable[[Decoder], Decoder]) -> None:
    """The counterpart of the tests above: without the part they would fail, by far."""
    model = families[name].models["folder"]
    assert (one_chunk(changed(model), PROMPT) - one_chunk(model, PROMPT)).abs().max() > 100 * CLOSE


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("glm4moe", {"norm_topk_prob": False, "attention_bias": False, "use_qk_norm": False}),
        ("glm4moe", {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 0}),
        ("glm4", {"attention_bias": False, "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.25}}),
        ("qwen3", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}}),
        ("qwen2", {"tie_word_embeddings": False, "use_sliding_window": True, "max_window_layers": 3}),
    ],
)
def test_other_options_give_the_logits_of_transformers(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    reference = tiny_models.make(name, **changes)
    reference.save_pretrained(tmp_path)
    scaling = {"qwen3.rope.scaling.type": "linear", "qwen3.rope.scaling.factor": 4.0} if name == "qwen3" else {}
    file = tiny_models.write_gguf(tmp_path / "model.gguf", name, reference, metadata=scaling)
    for path in (tmp_path, file):
        close(one_chunk(Decoder.load(path), PROMPT), expected(reference, PROMPT))


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"])
def test_every_format_gives_the_logits_of_its_dequantised_weights(name: str, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType[name]
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4}
    reference = tiny_models.make("qwen2", **sizes)
    read: list[gguf.GGMLQuantizationType] = []
    encode = tiny_models.encoder(kind)

    def encode_and_keep(values: tiny_models.Array) -> tuple[tiny_models.Array, gguf.GGMLQuantizationType]:
        encoded, kind = encode(values)
        values[:] = gguf.quants.dequantize(encoded, kind)  # the reference's own memory
        read.append(kind)
        return encoded, kind

    path = tiny_models.write_gguf(tmp_path / "model.gguf", "qwen2", reference, encode_and_keep)
    model = Decoder.load(path)
    assert len(read) == 8
    close(one_chunk(model, PROMPT), expected(reference, PROMPT))


def test_routers_stay_float32(families: dict[str, Family]) -> None:
    for path in families["glm4moe"].paths.values():
        _, weights = load_weights(path, torch.bfloat16)
        experts = weights.layers[1].experts
        assert experts is not None
        assert (experts.router.dtype, experts.bias.dtype) == (torch.float32, torch.float32)
        assert {matrix.dense.dtype for matrix in experts.down if matrix.dense is not None} == {torch.bfloat16}
        assert weights.layers[0].experts is None


FOLDER_REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("llama qwen2 qwen3 glm4 glm4moe", {"hidden_act": "gelu"}, "activation 'gelu'"),
    ("llama qwen3", {"attention_bias": True}, "attention_bias"),
    ("llama", {"mlp_bias": True}, "mlp_bias"),
    ("glm4", {"attention_bias": False}, "'blk.0.attn_[kqv].bias' is not supported"),
    ("glm4moe", {"use_qk_norm": False}, "'blk.0.attn_k_norm.weight' is not supported"),
    ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "'sliding_attention'"),
    (
        "qwen2 qwen3",
        {"layer_types": None, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
        "'sliding_attention'",
    ),
    ("qwen2", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
    ("qwen2", {"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "'dynamic'"),
    ("glm4", {"rope_parameters": {"mrope_section": [1, 1, 2]}}, "'mrope_section'"),
    ("qwen3", {"partial_rotary_factor": 0.5}, "part of each head"),
    ("glm4", {"rope_parameters": {"partial_rotary_factor": 1.5}}, "pairs of channels"),
    ("qwen3", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    ("qwen3", {"is_causal": False}, "is_causal"),
    ("glm4moe", {"n_group": 5}, "in 2 of 5 groups"),
    ("glm4moe", {"n_group": 12}, "in 2 of 12 groups"),
    ("glm4moe", {"num_experts_per_tok": 7}, "7 of 12 experts"),
    ("glm4moe", {"n_shared_experts": 0}, "size below 1"),
    ("glm4moe", {"n_routed_experts": 16}, r"no tensor 'blk.1.ffn_gate_exps.weight.12'"),
    ("glm4moe", {"first_k_dense_replace": 2}, r"no tensor 'blk.1.ffn_gate.weight'"),
    ("glm4moe", {"norm_topk_prob": None, "topk_group": None}, "missing or wrong"),
    ("qwen3", {"head_dim": 8}, r"'blk.0.attn_q.weight' has shape \(96, 48\), expected \(48, 48\)"),
]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [(name, changes, message) for names, changes, message in FOLDER_REFUSALS for name in names.split()],
)
def test_a_folder_with_something_else_is_refused_by_name(
    families: dict[str, Family], tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    folder = families[name].paths["folder"]
    config = json.loads((folder / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(ModelError, match=message) as refused:
        Decoder.load(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "metadata", "message"),
    [
        ("llama", {"llama.expert_count": 8}, "mixture of experts is not supported for llama"),
        ("llama", {"llama.rope.dimension_count": 4}, "part of each head is not supported for llama"),
        ("qwen2", {"qwen2.attention.sliding_window": 64}, "qwen2.attention.sliding_window = 64"),
        ("qwen3", {"qwen3.rope.scaling.type": "yarn"}, "'yarn'"),
        ("qwen3", {"qwen3.pooling_type": 3}, "qwen3.pooling_type = 3"),
        ("qwen3", {"qwen3.block_count": "three"}, "wrong metadata"),
        ("glm4", {"glm4.rope.dimension_sections": 8}, "glm4.rope.dimension_sections = 8"),
        ("glm4", {"glm4.attention.value_length": 8}, "values of another size"),
        ("glm4moe", {"glm4moe.expert_gating_func": 1}, r"gate 1 .* only 2 \(sigmoid\)"),
        ("glm4moe", {"glm4moe.expert_used_count": 7}, "7 of 12 experts"),
        ("glm4moe", {"glm4moe.expert_group_scale": 0.5}, "glm4moe.expert_group_scale = 0.5"),
        ("qwen3", {"split.count": 3}, "one of 3 parts"),
    ],
)
def test_a_gguf_file_with_something_else_is_refused_by_name(
    families: dict[str, Family],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    metadata: dict[str, Any],
    message: str,
) -> None:
    # The writer refuses a key twice; here the last one counts.
    monkeypatch.setattr(gguf.GGUFWriter, "add_key_value", overwrite)
    path = tiny_models.write_gguf(tmp_path / "model.gguf", name, families[name].reference, metadata=metadata)
    with pytest.raises(ModelError, match=message) as refused:
        load_config(path)
    assert "\n" not in str(refused.value)


def overwrite(writer: Any, key: str, value: Any, kind: Any, *rest: Any) -> None:
    writer.kv_data[0][key] = gguf.gguf_writer.GGUFValue(value=value, type=kind)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("llama", "blk.0.attn_q.bias"),
        ("llama", "blk.2.attn_q_norm.weight"),
        ("qwen2", "blk.1.attn_output.bias"),
        ("qwen3", "blk.1.post_ffw_norm.weight"),
        ("glm4", "output.bias"),
        ("glm4moe", "blk.0.ffn_gate_exps.weight"),
    ],
)
def test_a_tensor_without_a_use_is_refused_by_name(
    families: dict[str, Family], tmp_path: Path, name: str, tensor: str
) -> None:
    extra = {tensor: np.zeros(96, np.float32)}
    path = tiny_models.write_gguf(tmp_path / "model.gguf", name, families[name].reference, tensors=extra)
    with pytest.raises(ModelError, match=f"'{tensor}' is not supported for {name}"):
        Decoder.load(path)


def copy(family: Family, folder: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    """The family's folder again, with other tensors."""
    (folder / "config.json").write_text((family.paths["folder"] / "config.json").read_text())
    held = load_file(family.paths["folder"] / "model.safetensors")
    change(held)
    save_file(held, folder / "model.safetensors")
    return folder


def test_a_scale_of_a_quantised_matrix_is_refused_by_name(families: dict[str, Family], tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.q_proj.weight_scale_inv"
    folder = copy(families["qwen3"], tmp_path, lambda held: held.update({name: torch.ones(1)}))
    with pytest.raises(ModelError, match=f"tensor '{name}' is not supported"):
        Decoder.load(folder)


def test_a_missing_expert_is_named(families: dict[str, Family], tmp_path: Path) -> None:
    folder = copy(families["glm4moe"], tmp_path, lambda held: held.pop("model.layers.2.mlp.experts.5.up_proj.weight"))
    with pytest.raises(ModelError, match=r"no tensor 'blk.2.ffn_up_exps.weight.5' \(as GGUF names it\)"):
        Decoder.load(folder)


def test_an_expert_of_another_shape_is_named(families: dict[str, Family], tmp_path: Path) -> None:
    changed = {"model.layers.2.mlp.experts.5.up_proj.weight": torch.ones(21, 48)}
    folder = copy(families["glm4moe"], tmp_path, lambda held: held.update(changed))
    with pytest.raises(ModelError, match=r"experts of 'blk.2.ffn_up_exps.weight' .* differ in shape"):
        Decoder.load(folder)


def test_frequencies_that_old_folders_hold_are_left_out(families: dict[str, Family], tmp_path: Path) -> None:
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    folder = copy(families["llama"], tmp_path, lambda held: held.update(old))
    close(one_chunk(Decoder.load(folder), PROMPT), expected(families["llama"].reference, PROMPT))


def test_a_folder_with_names_of_another_layout_is_not_taken_for_hugging_faces(
    families: dict[str, Family], tmp_path: Path
) -> None:
    """Meta's own names are in GGUF's tables too; rotary pairs lie side by side there, and nothing would say so."""
    names = {"model.layers.0.self_attn.q_proj.weight": "layers.0.attention.wq.weight"}
    folder = copy(
        families["llama"],
        tmp_path,
        lambda held: [held.update({meta: held.pop(theirs)}) for theirs, meta in names.items()],
    )
    with pytest.raises(ModelError, match=r"no tensor 'blk.0.attn_q.weight'"):
        Decoder.load(folder)


def test_layers_that_guess_ahead_are_left_out(families: dict[str, Family], tmp_path: Path) -> None:
    family = families["glm4moe"]
    ahead = {
        "model.layers.3.eh_proj.weight": torch.ones(48, 96),
        "model.layers.3.input_layernorm.weight": torch.ones(48),
    }
    folder = copy(family, tmp_path, lambda held: held.update(ahead))
    count = {"glm4moe.nextn_predict_layers": 1}
    tensors = {
        "blk.3.nextn.eh_proj.weight": np.ones((48, 96), np.float32),
        "blk.3.attn_norm.weight": np.ones(48, np.float32),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family.reference.config, "num_hidden_layers", 4)
        file = tiny_models.write_gguf(tmp_path / "m.gguf", "glm4moe", family.reference, metadata=count, tensors=tensors)
    for path in (folder, file):
        close(one_chunk(Decoder.load(path), PROMPT), one_chunk(family.models["folder"], PROMPT))
