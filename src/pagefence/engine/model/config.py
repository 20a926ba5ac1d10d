"""The shape of a model, read from a GGUF file or from a Hugging Face folder.

What one architecture has and another has not is data: a row of `_FAMILIES`, or what a file says. What a file says and
`decoder.Decoder` does not compute is refused by name.
"""

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

_SIGMOID = 2  # llama.cpp's number for the gate of its experts


@dataclass(frozen=True, slots=True)
class _Family:
    """What the models of one architecture have in common. None: each file says for itself."""

    gguf: str  # its name in GGUF files
    folder: str  # and in config.json
    qkv_bias: bool | None = False
    qk_norm: bool | None = False
    partial_rotary: bool = False
    sandwich_norms: bool = False
    moe: bool = False


_FAMILIES = (
    _Family("llama", "LlamaForCausalLM"),
    _Family("qwen2", "Qwen2ForCausalLM", qkv_bias=True),
    _Family("qwen3", "Qwen3ForCausalLM", qk_norm=True),
    _Family("glm4", "Glm4ForCausalLM", qkv_bias=None, partial_rotary=True, sandwich_norms=True),
    _Family("glm4moe", "Glm4MoeForCausalLM", qkv_bias=None, qk_norm=None, partial_rotary=True, moe=True),
)

# Every key that may follow the architecture's name. One with another name could change what the model computes.
_GGUF_KEYS = frozenset(
    {
        *("block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size"),
        *("nextn_predict_layers", "leading_dense_block_count"),
        *(f"attention.{name}" for name in ("head_count", "head_count_kv", "key_length", "value_length")),
        "attention.layer_norm_rms_epsilon",
        *("rope.dimension_count", "rope.freq_base"),
        *(f"rope.scaling.{name}" for name in ("type", "factor", "original_context_length", "finetuned")),
        *(f"expert_{name}" for name in ("count", "used_count", "shared_count", "group_count", "group_used_count")),
        *(f"expert_{name}" for name in ("feed_forward_length", "weights_scale", "weights_norm", "gating_func")),
    }
)

_ROPE_KEYS = frozenset(
    {
        *("rope_type", "type", "rope_theta", "partial_rotary_factor"),
        *("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    }
)


@dataclass(frozen=True, slots=True)
class MoE:
    """A mixture of experts in place of the MLP, as GLM-4.5 and DeepSeek-V3 have it.

    Experts lie in `groups` of equal size. A token goes to the `used` best experts of its `groups_used` best groups,
    and to one MLP of width `shared` that all tokens share.
    """

    dense_layers: int  # how many layers, from the first on, have a plain MLP
    experts: int
    used: int
    mlp: int  # width of one expert
    shared: int
    groups: int
    groups_used: int
    normalised: bool  # whether the shares of a token's experts add up to one, before `scale`
    scale: float

    def __post_init__(self) -> None:
        """Raises ModelError for numbers that cannot belong together."""
        sizes = (self.experts, self.used, self.mlp, self.shared, self.groups, self.groups_used)
        if min(sizes) < 1 or self.dense_layers < 0:
            raise ModelError("the configuration of the model's experts has a size below 1, which is not supported.")
        in_group, rest = divmod(self.experts, self.groups)
        # A group is ranked by its best two, so it needs two.
        if rest or in_group < 2 or self.groups_used > self.groups or self.used > self.groups_used * in_group:
            raise ModelError(
                f"{self.used} of {self.experts} experts in {self.groups_used} of {self.groups} groups cannot be: "
                "the file is damaged."
            )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of one model.

    `architecture` is GGUF's name of it. `context` is the longest sequence in tokens; `eos_ids` the tokens that end a
    generation; `tied` says that the output matrix is the embedding. The first `rotary_dim` channels of each head are
    turned by the rotary embedding; `rope_factors` divide its frequencies, one for each pair of channels (None: plain
    RoPE). `qk_norm` normalises every head of queries and keys; `sandwich_norms` what attention and MLP give, too.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    rope_theta: float
    rotary_dim: int
    norm_eps: float
    context: int
    tied: bool
    bos_id: int | None
    eos_ids: tuple[int, ...]
    rope_factors: tuple[float, ...] | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    sandwich_norms: bool = False
    moe: MoE | None = None

    def __post_init__(self) -> None:
        """Raises ModelError for sizes that cannot belong together."""
        sizes = (self.layers, self.hidden, self.heads, self.kv_heads, self.head_dim, self.mlp, self.vocab, self.context)
        if min(sizes) < 1:
            raise ModelError("the model's configuration has a size below 1: the file is damaged.")
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.heads} heads cannot share {self.kv_heads} KV heads evenly: the file is damaged.")
        if self.rotary_dim % 2 or not 0 < self.rotary_dim <= self.head_dim:
            raise ModelError(f"RoPE turns pairs of channels: not {self.rotary_dim} of a head's {self.head_dim}.")
        if self.rope_factors is not None and len(self.rope_factors) != self.rotary_dim // 2:
            raise ModelError(f"{len(self.rope_factors)} RoPE factors for {self.rotary_dim // 2} frequencies.")


def kv_bytes_per_token(config: ModelConfig, dtype: Dtype) -> int:
    """Bytes that the keys and values of one token take, over all layers."""
    return config.layers * 2 * config.kv_heads * config.head_dim * _BYTES[dtype]


def load_config(path: Path) -> ModelConfig:
    """The configuration in a GGUF file or a Hugging Face folder. Raises ModelError."""
    if path.is_dir():
        return config_from_folder(path)
    return config_from_gguf(GGUFFile(path))


def config_from_gguf(file: GGUFFile) -> ModelConfig:
    """Read the architecture's metadata.

    Raises ModelError for another architecture, a missing key, and a key or value that is not supported.
    """
    if (parts := file.get("split.count", 0)) > 1:
        raise ModelError(f"{file.path} is one of {parts} parts: merge them first (llama-gguf-split --merge).")
    name = file.get("general.architecture")
    family = next((family for family in _FAMILIES if family.gguf == name), None)
    if family is None:
        known = ", ".join(family.gguf for family in _FAMILIES)
        raise ModelError(f"{file.path}: architecture {name!r} is not supported, only {known}.")
    prefix = f"{name}."
    unknown = [key for key in file.metadata if key.startswith(prefix) and key.removeprefix(prefix) not in _GGUF_KEYS]
    if unknown:
        raise ModelError(f"{file.path}: {min(unknown)} = {file[min(unknown)]!r} is not supported.")
    try:
        return _from_metadata(file, family)
    except (TypeError, ValueError, IndexError) as error:
        raise ModelError(f"{file.path}: wrong metadata: {error}.") from error


def _from_metadata(file: GGUFFile, family: _Family) -> ModelConfig:
    def need(key: str) -> Any:
        return file[f"{family.gguf}.{key}"]

    def get(key: str, default: Any) -> Any:
        return file.get(f"{family.gguf}.{key}", default)

    heads, hidden = int(need("attention.head_count")), int(need("embedding_length"))
    head_dim = int(get("attention.key_length", hidden // heads))
    rotary_dim = int(get("rope.dimension_count", head_dim))
    if int(get("attention.value_length", head_dim)) != head_dim:
        raise ModelError(f"{file.path}: values of another size than keys are not supported.")
    if rotary_dim != head_dim and not family.partial_rotary:
        raise ModelError(f"{file.path}: RoPE over a part of each head is not supported for {family.gguf}.")
    if get("expert_count", 0) and not family.moe:
        raise ModelError(f"{file.path}: a mixture of experts is not supported for {family.gguf}.")
    tokens = file["tokenizer.ggml.tokens"]
    ends = {file.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")} - {None}
    ends |= {i for i, kind in enumerate(file["tokenizer.ggml.token_type"]) if kind == 3 and tokens[i] in _END_NAMES}
    qkv_bias, qk_norm = file.has("blk.0.attn_q.bias"), file.has("blk.0.attn_q_norm.weight")
    return ModelConfig(
        architecture=family.gguf,
        # Blocks that guess more than one token ahead come last, and are left out.
        layers=int(need("block_count")) - int(get("nextn_predict_layers", 0)),
        hidden=hidden,
        heads=heads,
        kv_heads=int(get("attention.head_count_kv", heads)),
        head_dim=head_dim,
        mlp=int(need("feed_forward_length")),
        vocab=len(tokens),
        rope_theta=float(get("rope.freq_base", 10_000.0)),
        rotary_dim=rotary_dim,
        norm_eps=_as_written(float(need("attention.layer_norm_rms_epsilon"))),
        context=int(need("context_length")),
        tied=not file.has("output.weight"),
        bos_id=file.get("tokenizer.ggml.bos_token_id"),
        eos_ids=tuple(sorted(ends)),
        rope_factors=_gguf_rope_factors(file, family, rotary_dim),
        qkv_bias=qkv_bias if family.qkv_bias is None else family.qkv_bias,
        qk_norm=qk_norm if family.qk_norm is None else family.qk_norm,
        sandwich_norms=family.sandwich_norms,
        moe=_gguf_moe(file, family) if family.moe else None,
    )


def _gguf_rope_factors(file: GGUFFile, family: _Family, rotary_dim: int) -> tuple[float, ...] | None:
    # llama.cpp takes a file that names no kind for one of linear scaling, as a rule with a factor of one.
    kind = file.get(f"{family.gguf}.rope.scaling.type", "linear")
    if kind not in {"none", "linear"}:
        raise ModelError(f"{file.path}: RoPE scaling {kind!r} is not supported.")
    linear = float(file.get(f"{family.gguf}.rope.scaling.factor", 1.0)) if kind == "linear" else 1.0
    if file.has("rope_freqs.weight"):
        return tuple(linear * float(factor) for factor in file.tensor("rope_freqs.weight"))
    return None if linear in {0.0, 1.0} else (linear,) * (rotary_dim // 2)


def _gguf_moe(file: GGUFFile, family: _Family) -> MoE:
    def get(key: str, default: Any = None) -> Any:
        key = f"{family.gguf}.{key}"
        return file[key] if default is None else file.get(key, default)

    if (gate := get("expert_gating_func", _SIGMOID)) != _SIGMOID:
        raise ModelError(f"{file.path}: gate {gate} of the experts is not supported, only {_SIGMOID} (sigmoid) is.")
    width = int(get("expert_feed_forward_length"))
    return MoE(
        dense_layers=int(get("leading_dense_block_count", 0)),
        experts=int(get("expert_count")),
        used=int(get("expert_used_count")),
        mlp=width,
        shared=width * int(get("expert_shared_count")),
        groups=int(get("expert_group_count", 0)) or 1,
        groups_used=int(get("expert_group_used_count", 0)) or 1,
        normalised=bool(get("expert_weights_norm", False)),
        scale=_as_written(float(get("expert_weights_scale", 0.0))) or 1.0,
    )


def config_from_folder(folder: Path) -> ModelConfig:
    """Read `config.json` (and `generation_config.json` for the end tokens).

    Raises ModelError for another architecture, a missing key, and a value that is not supported.
    """
    raw = _read_json(folder / "config.json")
    classes = raw.get("architectures") or []
    family = next((family for family in _FAMILIES if family.folder in classes), None)
    if family is None:
        found = ", ".join(classes) or raw.get("model_type")
        known = ", ".join(family.folder for family in _FAMILIES)
        raise ModelError(f"{folder}: architecture {found!r} is not supported, only {known}.")
    generation = folder / "generation_config.json"
    ends = _ids(raw.get("eos_token_id"))
    if generation.is_file():
        ends |= _ids(_read_json(generation).get("eos_token_id"))
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    try:
        _refuse_options(folder, raw, rope, family)
        heads = int(raw["num_attention_heads"])
        head_dim = int(raw.get("head_dim") or raw["hidden_size"] // heads)
        theta = float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
        rotary_dim = int(head_dim * _partial_rotary(raw, rope, family))
        return ModelConfig(
            architecture=family.gguf,
            layers=int(raw["num_hidden_layers"]),
            hidden=int(raw["hidden_size"]),
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=head_dim,
            mlp=int(raw["intermediate_size"]),
            vocab=int(raw["vocab_size"]),
            rope_theta=theta,
            rotary_dim=rotary_dim,
            norm_eps=float(raw["rms_norm_eps"]),
            context=int(raw["max_position_embeddings"]),
            tied=bool(raw.get("tie_word_embeddings", False)),
            bos_id=raw.get("bos_token_id"),
            eos_ids=tuple(sorted(ends)),
            rope_factors=_rope_factors(folder, rope, theta, rotary_dim),
            qkv_bias=bool(raw["attention_bias"]) if family.qkv_bias is None else family.qkv_bias,
            qk_norm=bool(raw["use_qk_norm"]) if family.qk_norm is None else family.qk_norm,
            sandwich_norms=family.sandwich_norms,
            moe=_folder_moe(raw) if family.moe else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder / 'config.json'}: missing or wrong {error}.") from error


def _refuse_options(folder: Path, raw: Mapping[str, Any], rope: Mapping[str, Any], family: _Family) -> None:
    """Raises ModelError for an option of transformers' configuration of this family that changes what is computed."""
    if (activation := raw.get("hidden_act", "silu")) != "silu":
        raise ModelError(f"{folder}: activation {activation!r} is not supported, only 'silu' is.")
    # With transformers these two give the output projection of attention, and the MLP, biases as well.
    if family.qkv_bias is False and raw.get("attention_bias"):
        raise ModelError(f"{folder}: attention_bias is not supported for {family.folder}.")
    if raw.get("mlp_bias"):
        raise ModelError(f"{folder}: mlp_bias is not supported.")
    if raw.get("quantization_config"):
        raise ModelError(f"{folder}: quantised safetensors (quantization_config) are not supported; GGUF files are.")
    if raw.get("is_causal") is False:
        raise ModelError(f"{folder}: attention that looks ahead (is_causal false) is not supported.")
    kinds = set(raw.get("layer_types") or ())
    slides = raw.get("use_sliding_window") and raw.get("sliding_window") is not None
    if not kinds and slides and int(raw.get("max_window_layers", 28)) < int(raw["num_hidden_layers"]):
        kinds.add("sliding_attention")
    if other := sorted(kinds - {"full_attention"}):
        raise ModelError(f"{folder}: layers of kind {other[0]!r} are not supported, only full attention is.")
    if unknown := sorted(set(rope) - _ROPE_KEYS):
        raise ModelError(f"{folder}: RoPE parameter {unknown[0]!r} is not supported.")
    if _partial_rotary(raw, rope, family) != 1.0 and not family.partial_rotary:
        raise ModelError(f"{folder}: RoPE over a part of each head is not supported for {family.folder}.")


def _partial_rotary(raw: Mapping[str, Any], rope: Mapping[str, Any], family: _Family) -> float:
    default = 0.5 if family.partial_rotary else 1.0  # as in transformers
    return float(rope.get("partial_rotary_factor", raw.get("partial_rotary_factor", default)))


def _folder_moe(raw: Mapping[str, Any]) -> MoE:
    width = int(raw["moe_intermediate_size"])
    return MoE(
        dense_layers=int(raw["first_k_dense_replace"]),
        experts=int(raw["n_routed_experts"]),
        used=int(raw["num_experts_per_tok"]),
        mlp=width,
        shared=width * int(raw["n_shared_experts"]),
        groups=int(raw["n_group"]),
        groups_used=int(raw["topk_group"]),
        normalised=bool(raw["norm_topk_prob"]),
        scale=float(raw["routed_scaling_factor"]),
    )


def _rope_factors(folder: Path, rope: Mapping[str, Any], theta: float, rotary_dim: int) -> tuple[float, ...] | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return (float(rope["factor"]),) * (rotary_dim // 2)
    if kind != "llama3":
        raise ModelError(f"{folder}: RoPE scaling {kind!r} is not supported.")
    factor, low, high = (float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = float(rope["original_max_position_embeddings"])

    def divisor(pair: int) -> float:
        turns: float = trained / (2 * math.pi * theta ** (2 * pair / rotary_dim))
        if turns > high:
            return 1.0
        if turns < low:
            return factor
        share = (turns - low) / (high - low)
        return 1.0 / ((1 - share) / factor + share)

    return tuple(divisor(pair) for pair in range(rotary_dim // 2))


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
