"""The shape of a Llama-family model, read from a GGUF file or from a Hugging Face folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pagefence.engine.model.gguf_file import GGUFFile
from pagefence.models import ModelError

Dtype = Literal["float32", "bfloat16"]

_BYTES: dict[Dtype, int] = {"float32": 4, "bfloat16": 2}

# Control tokens that end a turn or a text, whatever a file's one `eos_token_id` says; llama.cpp does the same.
_END_NAMES = frozenset({"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"})


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one model.

    `context` is the longest sequence in tokens; `eos_ids` the tokens that end a generation; `tied` says that the
    output matrix is the embedding. `rope_factors` divide the rotary frequencies, one for each pair of channels
    (None: plain RoPE).
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    rope_theta: float
    norm_eps: float
    context: int
    tied: bool
    bos_id: int | None
    eos_ids: tuple[int, ...]
    rope_factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Raises ModelError for sizes that cannot belong together."""
        sizes = (self.layers, self.hidden, self.heads, self.kv_heads, self.head_dim, self.mlp, self.vocab, self.context)
        if min(sizes) < 1:
            raise ModelError("the model's configuration has a size below 1: the file is damaged.")
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.heads} heads cannot share {self.kv_heads} KV heads evenly: the file is damaged.")
        if self.head_dim % 2:
            raise ModelError(f"a head size of {self.head_dim} is odd, and RoPE turns pairs of channels.")
        if self.rope_factors is not None and len(self.rope_factors) != self.head_dim // 2:
            raise ModelError(f"{len(self.rope_factors)} RoPE factors for {self.head_dim // 2} frequencies.")


def kv_bytes_per_token(config: ModelConfig, dtype: Dtype) -> int:
    """Bytes that the keys and values of one token take, over all layers."""
    return config.layers * 2 * config.kv_heads * config.head_dim * _BYTES[dtype]


def load_config(path: Path) -> ModelConfig:
    """The configuration in a GGUF file or a Hugging Face folder. Raises ModelError."""
    if path.is_dir():
        return config_from_folder(path)
    return config_from_gguf(GGUFFile(path))


def config_from_gguf(file: GGUFFile) -> ModelConfig:
    """Read the `llama.*` metadata. Raises ModelError when the architecture is another one or a key is missing."""
    if (architecture := file.get("general.architecture")) != "llama":
        raise ModelError(f"{file.path}: architecture {architecture!r} is not supported; only llama is.")
    if (scaling := file.get("llama.rope.scaling.type", "none")) != "none":
        raise ModelError(f"{file.path}: RoPE scaling {scaling!r} is not supported.")
    if file.get("llama.expert_count", 0):
        raise ModelError(f"{file.path}: mixtures of experts are not supported.")
    heads = int(file["llama.attention.head_count"])
    hidden = int(file["llama.embedding_length"])
    head_dim = int(file.get("llama.attention.key_length", hidden // heads))
    if int(file.get("llama.rope.dimension_count", head_dim)) != head_dim:
        raise ModelError(f"{file.path}: RoPE over a part of each head is not supported.")
    tokens = file["tokenizer.ggml.tokens"]
    ends = {file.get("tokenizer.ggml.eos_token_id"), file.get("tokenizer.ggml.eot_token_id")} - {None}
    ends |= {i for i, kind in enumerate(file["tokenizer.ggml.token_type"]) if kind == 3 and tokens[i] in _END_NAMES}
    factors = file.tensor("rope_freqs.weight") if file.has("rope_freqs.weight") else None
    return ModelConfig(
        layers=int(file["llama.block_count"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(file.get("llama.attention.head_count_kv", heads)),
        head_dim=head_dim,
        mlp=int(file["llama.feed_forward_length"]),
        vocab=len(tokens),
        rope_theta=float(file.get("llama.rope.freq_base", 10_000.0)),
        norm_eps=_as_written(float(file["llama.attention.layer_norm_rms_epsilon"])),
        context=int(file["llama.context_length"]),
        tied=not file.has("output.weight"),
        bos_id=file.get("tokenizer.ggml.bos_token_id"),
        eos_ids=tuple(sorted(ends)),
        rope_factors=None if factors is None else tuple(map(float, factors)),
    )


def config_from_folder(folder: Path) -> ModelConfig:
    """Read `config.json` (and `generation_config.json` for the end tokens). Raises ModelError."""
    raw = _read_json(folder / "config.json")
    if "LlamaForCausalLM" not in raw.get("architectures", []):
        found = ", ".join(raw.get("architectures", [])) or raw.get("model_type")
        raise ModelError(f"{folder}: architecture {found!r} is not supported; only LlamaForCausalLM is.")
    if raw.get("attention_bias") or raw.get("mlp_bias") or raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"{folder}: biases and activations other than silu are not supported.")
    generation = folder / "generation_config.json"
    ends = _ids(raw.get("eos_token_id"))
    if generation.is_file():
        ends |= _ids(_read_json(generation).get("eos_token_id"))
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    try:
        heads = int(raw["num_attention_heads"])
        head_dim = int(raw.get("head_dim") or raw["hidden_size"] // heads)
        theta = float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
        return ModelConfig(
            layers=int(raw["num_hidden_layers"]),
            hidden=int(raw["hidden_size"]),
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=head_dim,
            mlp=int(raw["intermediate_size"]),
            vocab=int(raw["vocab_size"]),
            rope_theta=theta,
            norm_eps=float(raw["rms_norm_eps"]),
            context=int(raw["max_position_embeddings"]),
            tied=bool(raw.get("tie_word_embeddings", False)),
            bos_id=raw.get("bos_token_id"),
            eos_ids=tuple(sorted(ends)),
            rope_factors=_rope_factors(folder, rope, theta, head_dim),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder / 'config.json'}: missing or wrong {error}.") from error


def _rope_factors(folder: Path, rope: Mapping[str, Any], theta: float, head_dim: int) -> tuple[float, ...] | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return (float(rope["factor"]),) * (head_dim // 2)
    if kind != "llama3":
        raise ModelError(f"{folder}: RoPE scaling {kind!r} is not supported.")
    factor, low, high = (float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = float(rope["original_max_position_embeddings"])

    def divisor(pair: int) -> float:
        turns: float = trained / (2 * math.pi * theta ** (2 * pair / head_dim))
        if turns > high:
            return 1.0
        if turns < low:
            return factor
        share = (turns - low) / (high - low)
        return 1.0 / ((1 - share) / factor + share)

    return tuple(divisor(pair) for pair in range(head_dim // 2))


def _as_written(value: float) -> float:
    """A float32 such as 9.99999974e-06 as the decimal that it was written from, 1e-05."""
    return float(f"{value:.6g}")


def _ids(value: int | list[int] | None) -> set[int]:
    if value is None:
        return set()
    return set(value) if isinstance(value, list) else {value}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}.") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} is not a JSON object.")
    return content
