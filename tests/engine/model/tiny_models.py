"""Tiny random models of every family: made by transformers, and written to GGUF as llama.cpp's converter would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
Encode = Callable[[Array], tuple[Array, gguf.GGMLQuantizationType]]

F32 = gguf.GGMLQuantizationType.F32

_SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
    "bos_token_id": None,
    "pad_token_id": None,
}

# GGUF's name -> the name that transformers' classes begin with, and what differs from the sizes above.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"head_dim": 8, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "glm4": ("Glm4", {"head_dim": 16, "attention_bias": True}),
    "glm4moe": (
        "Glm4Moe",
        {
            "head_dim": 16,
            "attention_bias": True,
            "use_qk_norm": True,
            "moe_intermediate_size": 20,
            "n_routed_experts": 12,
            "num_experts_per_tok": 3,
            "n_shared_experts": 2,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.7,
            "num_nextn_predict_layers": 0,
        },
    ),
}


def make(family: str, **changes: Any) -> Any:
    """A model in float32 whose norms and biases are random too, so that leaving one out shows."""
    import transformers

    name, own = FAMILIES[family]
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(**_SIZES | own | changes)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for path, tensor in model.state_dict().items():
            mean, spread = (1.0, 0.3) if "norm" in path else (0.0, 0.3)
            tensor.copy_(mean + spread * torch.randn(tensor.shape))
    return model


def write_gguf(
    path: Path,
    family: str,
    model: Any,
    encode: Encode = lambda values: (values, F32),
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, Array] | None = None,
) -> Path:
    """The model as a GGUF file, matrices through `encode`; `metadata` and `tensors` are added to what belongs there."""
    config = model.config
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if family.startswith("glm4"):
        writer.add_rope_dimension_count(int(config.head_dim * config.rope_parameters["partial_rotary_factor"]))
    if family == "glm4moe":
        writer.add_expert_count(config.n_routed_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_token_list([f"t{i}" for i in range(config.vocab_size)])
    writer.add_token_types([1] * config.vocab_size)
    writer.add_eos_token_id(1)
    for key, value in (metadata or {}).items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        (writer.add_uint32 if isinstance(value, int) else add)(key, value)
    for name, tensor in _tensors(family, model):
        values, kind = encode(tensor.numpy()) if _is_encoded(name) else (tensor.numpy(), F32)
        writer.add_tensor(name, values, raw_dtype=kind)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _is_encoded(name: str) -> bool:
    """As in llama.cpp: norms, biases and routers stay float32 in any file."""
    return name.endswith(".weight") and "norm" not in name and "ffn_gate_inp" not in name


def _tensors(family: str, model: Any) -> list[tuple[str, Tensor]]:
    """Every tensor by its GGUF name."""
    config = model.config
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == family)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tensors = []
    for theirs, tensor in model.state_dict().items():
        if theirs == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if theirs.endswith("experts.gate_up_proj"):  # transformers' own form in memory; files have two
            block = theirs.split(".")[2]
            gate, up = tensor.chunk(2, 1)
            tensors += [(f"blk.{block}.ffn_gate_exps.weight", gate), (f"blk.{block}.ffn_up_exps.weight", up)]
            continue
        full = theirs.replace("correction_bias", "correction.bias")
        full = f"{full}.weight" if theirs.endswith("experts.down_proj") else full
        name = names.get_name(full, (".weight", ".bias"))
        assert name, theirs
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2])
        tensors.append((name, _permute(tensor, heads) if heads and family == "llama" else tensor))
    return [(name, tensor.contiguous()) for name, tensor in tensors]


def _permute(weights: Tensor, heads: int) -> Tensor:
    """`LlamaModel.permute` of llama.cpp's converter."""
    halves = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def encoder(kind: gguf.GGMLQuantizationType) -> Encode:
    """Quantise by the library; the K kinds, which it can only read, become random blocks of a fitting size."""

    def encode(values: Array) -> tuple[Array, gguf.GGMLQuantizationType]:
        try:
            return gguf.quants.quantize(values, kind), kind
        except NotImplementedError:
            return _random_blocks(values.shape, kind), kind

    return encode


def _random_blocks(shape: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> Array:
    """Bytes [rows, bytes of a row] whose values are of order 0.1, as the layouts in ggml-common.h have it."""
    per_block, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(shape[0])
    blocks = rng.integers(0, 256, (shape[0], shape[1] // per_block, size), dtype=np.uint8)
    scales = {gguf.GGMLQuantizationType.Q4_K: {0: 4e-4, 2: 3e-3}, gguf.GGMLQuantizationType.Q6_K: {208: 1e-4}}
    for offset, scale in scales[kind].items():
        blocks[..., offset : offset + 2] = np.array([scale], np.float16).view(np.uint8)
    return blocks.reshape(shape[0], -1)
