"""The weights of a Llama-family model, under one set of names whatever file they come from.

Names are those of GGUF. Projections are laid out as Hugging Face lays them out ([out, in], rotary channels in two
halves), which is what `llama.Llama` computes with.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pagefence.engine.model.config import ModelConfig, config_from_folder, config_from_gguf
from pagefence.engine.model.gguf_file import GGUFFile
from pagefence.models import ModelError

Read = Callable[[str], Tensor]

# GGUF name -> Hugging Face name, of one layer and of the whole model.
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. q, k, v lie in one matrix and gate, up in another: one product each instead of three and two."""

    attn_norm: Tensor  # [hidden]
    qkv: Tensor  # [(heads + 2 * kv_heads) * head_dim, hidden]
    out: Tensor  # [hidden, heads * head_dim]
    mlp_norm: Tensor  # [hidden]
    gate_up: Tensor  # [2 * mlp, hidden]
    down: Tensor  # [hidden, mlp]


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a model; `head` is `embedding` itself where they are tied."""

    embedding: Tensor  # [vocab, hidden]
    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [hidden]
    head: Tensor  # [vocab, hidden]


def load_weights(path: Path, dtype: torch.dtype, device: str = "cpu") -> tuple[ModelConfig, Weights]:
    """Read a GGUF file or a Hugging Face folder.

    Raises ModelError for another architecture, a missing or misshapen tensor, a truncated file.
    """
    if path.is_dir():
        return _from_folder(path, dtype, device)
    file = GGUFFile(path)
    config = config_from_gguf(file)

    def read(name: str) -> Tensor:
        array = file.tensor(name)
        # What needs no dequantising is a view of the mapped file: a file cut short later would kill the process.
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        if name.endswith("attn_q.weight"):
            return _halves_of_pairs(tensor, config.heads)
        if name.endswith("attn_k.weight"):
            return _halves_of_pairs(tensor, config.kv_heads)
        return tensor

    return config, _assemble(path, config, read, dtype, device)


def _halves_of_pairs(matrix: Tensor, heads: int) -> Tensor:
    """Undo llama.cpp's permutation: there a rotary pair is (2i, 2i + 1), here it is (i, i + head_dim / 2)."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def _from_folder(folder: Path, dtype: torch.dtype, device: str) -> tuple[ModelConfig, Weights]:
    config = config_from_folder(folder)
    with ExitStack() as stack:
        where: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                shard = stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path} is not a complete safetensors file ({error}). Copy it again.") from error
            where.update(dict.fromkeys(shard.keys(), shard))

        def read(name: str) -> Tensor:
            theirs = _hugging_face_name(name)
            if theirs not in where:
                raise ModelError(f"{folder} has no tensor {theirs!r}.")
            tensor: Tensor = where[theirs].get_tensor(theirs)
            return tensor

        return config, _assemble(folder, config, read, dtype, device)


def _hugging_face_name(name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_LAYER[parts[2]]}.weight"
    return f"{_MODEL[parts[0]]}.weight"


def _assemble(path: Path, config: ModelConfig, read: Read, dtype: torch.dtype, device: str) -> Weights:
    def get(name: str, *shape: int) -> Tensor:
        tensor = read(f"{name}.weight")
        if tuple(tensor.shape) != shape:
            raise ModelError(f"{path}: tensor {name!r} has shape {tuple(tensor.shape)}, expected {shape}.")
        return tensor.to(device=device, dtype=dtype)

    def layer(index: int) -> LayerWeights:
        block = f"blk.{index}"
        return LayerWeights(
            attn_norm=get(f"{block}.attn_norm", hidden),
            qkv=torch.cat(
                [
                    get(f"{block}.attn_q", queries, hidden),
                    get(f"{block}.attn_k", keys, hidden),
                    get(f"{block}.attn_v", keys, hidden),
                ]
            ),
            out=get(f"{block}.attn_output", hidden, queries),
            mlp_norm=get(f"{block}.ffn_norm", hidden),
            gate_up=torch.cat(
                [get(f"{block}.ffn_gate", config.mlp, hidden), get(f"{block}.ffn_up", config.mlp, hidden)]
            ),
            down=get(f"{block}.ffn_down", hidden, config.mlp),
        )

    hidden, queries, keys = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    embedding = get("token_embd", config.vocab, hidden)
    return Weights(
        embedding=embedding,
        layers=tuple(layer(index) for index in range(config.layers)),
        norm=get("output_norm", hidden),
        head=embedding if config.tied else get("output", config.vocab, hidden),
    )
