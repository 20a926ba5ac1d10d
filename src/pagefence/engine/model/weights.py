"""The weights of a model, under one set of names and in one layout whatever file they come from.

Names are those of GGUF; what Hugging Face calls them is in the `gguf` library's tables. Projections are laid out as
Hugging Face lays most of them out ([out, in], rotary channels in two halves), which is what `decoder.Decoder` computes
with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pagefence.engine.model.config import ModelConfig, MoE, config_from_folder, config_from_gguf
from pagefence.engine.model.gguf_file import GGUFFile
from pagefence.engine.model.matrix import Forms, Matrix, matrix_of
from pagefence.engine.model.panels import available, panels_of_blocks
from pagefence.engine.model.quantised import Blocks, blocks_of
from pagefence.models import ModelError

Read = Callable[[str], Tensor]
ReadBlocks = Callable[[str], Blocks | None]
_Rows = TypeVar("_Rows", Tensor, Blocks | None)

# Where the two channels of a rotary pair lie side by side. For Llama, llama.cpp's converter moves them there.
_SIDE_BY_SIDE_IN_GGUF = frozenset({"llama", "glm4"})
_SIDE_BY_SIDE_IN_FOLDERS = frozenset({"glm4"})

_EXPERT = re.compile(r"(.+\.mlp\.experts)\.(\d+)\.(\w+\.weight)")
# What a file may hold without a use for it here: a frequency table that `config` reads, and an output matrix beside a
# tied embedding.
_IDLE = frozenset({"rope_freqs.weight", "output.weight"})


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts of one layer and the router that chooses among them. The router stays float32, as it was trained."""

    router: Tensor  # [experts, hidden] float32
    bias: Tensor  # [experts] float32: added to the scores to choose by, not to weigh with
    gate_up: tuple[Matrix, ...]  # of each expert, [2 * moe.mlp, hidden]
    down: tuple[Matrix, ...]  # of each expert, [hidden, moe.mlp]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer; None for what the model lacks. `mlp` is that of the experts' shared MLP in a layer with experts.

    q, k, v lie in one matrix and gate, up in another: one product each instead of three and two.
    """

    attn_norm: Tensor  # [hidden]
    qkv: Matrix  # [(heads + 2 * kv_heads) * head_dim, hidden]
    qkv_bias: Tensor | None  # [(heads + 2 * kv_heads) * head_dim]
    qk_norm: Tensor | None  # [heads + kv_heads, head_dim]: the query norm for each head, then the key norm for each
    out: Matrix  # [hidden, heads * head_dim]
    attn_post_norm: Tensor | None  # [hidden]
    mlp_norm: Tensor  # [hidden]
    gate_up: Matrix  # [2 * mlp, hidden]
    down: Matrix  # [hidden, mlp]
    mlp_post_norm: Tensor | None  # [hidden]
    experts: Experts | None

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """All but those of the experts."""
        return self.qkv, self.out, self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a model; `head` is `embedding` again, in the form for products, where they are tied."""

    embedding: Tensor  # [vocab, hidden]
    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [hidden]
    head: Matrix  # [vocab, hidden]


def load_weights(
    path: Path, dtype: torch.dtype, device: str = "cpu", forms: Forms = "both"
) -> tuple[ModelConfig, Weights]:
    """Read a GGUF file or a Hugging Face folder; with `forms` "panels", matrices of 4 and 8 bits stay quantised.

    Raises ModelError for another architecture, a missing or misshapen tensor, one that the model would not use, a
    truncated file, and a model of which nothing can stay quantised though `forms` says so.
    """
    quantised = forms == "panels"
    if path.is_dir():
        if quantised:
            raise ModelError(f"{path} is a folder, whose weights are not quantised: serve it in exact mode.")
        return _from_folder(path, dtype, device, forms)
    if quantised and device != "cpu":
        raise ModelError(f"quantised mode runs on a CPU, not on {device}: serve in exact mode.")
    if quantised and not available():
        raise ModelError(
            "quantised mode needs a product that the installation compiles, and found no C compiler with OpenMP to do "
            "it (on Debian: apt-get install gcc libc6-dev). Install it and PageFence again, or serve in exact mode."
        )
    file = GGUFFile(path)
    config = config_from_gguf(file)

    def read(name: str) -> Tensor:
        array = file.tensor(name)
        # What needs no dequantising is a view of the mapped file: a file cut short later would kill the process.
        return torch.from_numpy(array if array.flags.writeable else array.copy())

    def read_blocks(name: str) -> Blocks | None:
        return blocks_of(*file.raw(name))

    readers: tuple[Read, ReadBlocks] = (read, read_blocks)
    if config.architecture in _SIDE_BY_SIDE_IN_GGUF:
        readers = _halved(read, config), _halved(read_blocks, config)
    weights = _assemble(path, config, file.names, *readers, dtype, device, forms)
    if quantised and all(matrix.dense is not None for layer in weights.layers for matrix in layer.matrices):
        raise ModelError(f"{path} has no layer in Q4_0, Q4_1 or Q8_0, which quantised mode runs: use exact mode.")
    return config, weights


def _from_folder(folder: Path, dtype: torch.dtype, device: str, forms: Forms) -> tuple[ModelConfig, Weights]:
    config = config_from_folder(folder)
    with ExitStack() as stack:
        where: dict[str, tuple[Any, str]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                shard = stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path} is not a complete safetensors file ({error}). Copy it again.") from error
            where.update({name: (shard, theirs) for theirs, name in _gguf_names(folder, config, shard.keys())})

        def read(name: str) -> Tensor:
            if config.moe is None or "_exps." not in name:
                return one(name)
            each = [one(f"{name}.{index}") for index in range(config.moe.experts)]  # one tensor for all in GGUF
            if len({tensor.shape for tensor in each}) > 1:
                raise ModelError(f"{folder}: the experts of {name!r} (as GGUF names it) differ in shape.")
            return torch.stack(each)

        def one(name: str) -> Tensor:
            if name not in where:
                raise ModelError(f"{folder} has no tensor {name!r} (as GGUF names it).")
            shard, theirs = where[name]
            tensor: Tensor = shard.get_tensor(theirs)
            return tensor

        names = {re.sub(r"\.weight\.\d+$", ".weight", name) for name in where}
        halved = _halved(read, config) if config.architecture in _SIDE_BY_SIDE_IN_FOLDERS else read
        return config, _assemble(folder, config, names, halved, lambda _: None, dtype, device, forms)


def _gguf_names(folder: Path, config: ModelConfig, theirs: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Each tensor's name in the folder and in GGUF. An expert's has its number behind it.

    Left out are layers past the last (they guess more than one token ahead), rotary frequencies (old checkpoints hold
    them, but they follow from the configuration), and what has not Hugging Face's names: the `gguf` library knows
    those of others, too, but their matrices are laid out in other ways. Raises ModelError for another tensor of a layer
    that GGUF has no name for: it would be there to change what the layer computes.
    """
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == config.architecture)
    table = get_tensor_name_map(MODEL_ARCH(architecture), config.layers)
    for name in theirs:
        if not name.startswith(("model.", "lm_head.")) or name.endswith("rotary_emb.inv_freq"):
            continue
        expert = _EXPERT.fullmatch(name)
        plain = f"{expert[1]}.{expert[3]}" if expert else name.replace("correction_bias", "correction.bias")
        if (ours := table.get_name(plain, (".weight", ".bias"))) is not None:
            yield name, f"{ours}.{expert[2]}" if expert else ours
            continue
        layer = re.match(r"model\.layers\.(\d+)\.", name)
        if layer and int(layer[1]) < config.layers:
            raise ModelError(f"{folder}: tensor {name!r} is not supported.")


def _halved(read: Callable[[str], _Rows], config: ModelConfig) -> Callable[[str], _Rows]:
    """`read` for files where a rotary pair is (2i, 2i + 1); here it is (i, i + rotary_dim / 2)."""
    heads_of = {"attn_q": config.heads, "attn_k": config.kv_heads}

    def halved(name: str) -> _Rows:
        rows, heads = read(name), heads_of.get(name.split(".")[-2], 0)
        if rows is None or not heads or len(rows) != heads * config.head_dim:  # the latter has an error of its own
            return rows
        order = torch.arange(len(rows)).view(heads, config.head_dim)
        turned, rest = order[:, : config.rotary_dim], order[:, config.rotary_dim :]
        return rows[torch.cat([turned[:, 0::2], turned[:, 1::2], rest], 1).flatten()]

    return halved


def _assemble(
    path: Path,
    config: ModelConfig,
    names: Iterable[str],
    read: Read,
    read_blocks: ReadBlocks,
    dtype: torch.dtype,
    device: str,
    forms: Forms,
) -> Weights:
    idle = {name for name in names if _block(name) < config.layers} - _IDLE

    def get(name: str, *shape: int, dtype: torch.dtype = dtype) -> Tensor:
        name = name if name.endswith(".bias") else f"{name}.weight"
        tensor = read(name)
        use(name, tuple(tensor.shape), shape)
        return tensor.to(device=device, dtype=dtype)

    def use(name: str, found: tuple[int, ...], shape: tuple[int, ...]) -> None:
        idle.discard(name)
        if found != shape:
            raise ModelError(f"{path}: tensor {name!r} has shape {found}, expected {shape}.")

    def matrix(columns: int, *parts: tuple[str, int], dense: Tensor | None = None) -> Matrix:
        """Parts (name, rows) on top of each other; `dense` where they were read before."""
        blocks = [read_blocks(f"{name}.weight") if forms != "dense" else None for name, _ in parts]
        quantised = panels_of_blocks(blocks)
        if quantised is None or forms != "panels":
            if dense is None:
                dense = torch.cat([get(name, rows, columns) for name, rows in parts])
            return matrix_of(dense, quantised, forms)
        for (name, rows), part in zip(parts, blocks, strict=True):
            use(f"{name}.weight", part.shape if part else (), (rows, columns))
        return Matrix(None, quantised)

    def layer(index: int) -> LayerWeights:
        block = f"blk.{index}"
        moe = config.moe if config.moe is not None and index >= config.moe.dense_layers else None
        post = config.sandwich_norms
        return LayerWeights(
            attn_norm=get(f"{block}.attn_norm", hidden),
            qkv=matrix(hidden, *((f"{block}.attn_{kind}", rows) for kind, rows in projections)),
            qkv_bias=bias(block) if config.qkv_bias else None,
            qk_norm=qk_norm(block) if config.qk_norm else None,
            out=matrix(queries, (f"{block}.attn_output", hidden)),
            attn_post_norm=get(f"{block}.post_attention_norm", hidden) if post else None,
            # The same norm under two names: with GLM's experts, GGUF calls it by its place, as Hugging Face does.
            mlp_norm=get(f"{block}.{'ffn_norm' if config.moe is None else 'post_attention_norm'}", hidden),
            **mlp(block, moe),
            mlp_post_norm=get(f"{block}.post_ffw_norm", hidden) if post else None,
            experts=None if moe is None else experts(block, moe),
        )

    def bias(block: str) -> Tensor:
        return torch.cat([get(f"{block}.attn_{kind}.bias", rows) for kind, rows in projections])

    def qk_norm(block: str) -> Tensor:
        counts = (("q", config.heads), ("k", config.kv_heads))
        return torch.cat([get(f"{block}.attn_{kind}_norm", config.head_dim).expand(n, -1) for kind, n in counts])

    def mlp(block: str, moe: MoE | None) -> dict[str, Matrix]:
        """The layer's MLP, or the one that all tokens share beside its experts."""
        width, end = (config.mlp, "") if moe is None else (moe.shared, "_shexp")
        if config.architecture == "glm4":  # gate and up lie in one matrix already
            gate_up = matrix(hidden, (f"{block}.ffn_up", 2 * width))
        else:
            gate_up = matrix(hidden, *((f"{block}.ffn_{kind}{end}", width) for kind in ("gate", "up")))
        return {"gate_up": gate_up, "down": matrix(width, (f"{block}.ffn_down{end}", hidden))}

    def experts(block: str, moe: MoE) -> Experts:
        halves = [get(f"{block}.ffn_{kind}_exps", moe.experts, moe.mlp, hidden) for kind in ("gate", "up")]
        return Experts(
            router=get(f"{block}.ffn_gate_inp", moe.experts, hidden, dtype=torch.float32),
            bias=get(f"{block}.exp_probs_b.bias", moe.experts, dtype=torch.float32),
            gate_up=tuple(matrix_of(each, None, forms) for each in torch.cat(halves, 1)),
            down=tuple(
                matrix_of(each, None, forms) for each in get(f"{block}.ffn_down_exps", moe.experts, hidden, moe.mlp)
            ),
        )

    hidden, queries, keys = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    projections = (("q", queries), ("k", keys), ("v", keys))
    embedding = get("token_embd", config.vocab, hidden)
    weights = Weights(
        embedding=embedding,
        layers=tuple(layer(index) for index in range(config.layers)),
        norm=get("output_norm", hidden),
        head=matrix(hidden, ("token_embd", config.vocab), dense=embedding)
        if config.tied
        else matrix(hidden, ("output", config.vocab)),
    )
    if idle:
        # A norm or a bias that is left out changes every answer, and no error would say so.
        raise ModelError(f"{path}: tensor {min(idle)!r} is not supported for {config.architecture}.")
    return weights


def _block(name: str) -> int:
    """The number of the layer that a tensor belongs to; -1 for one of the whole model."""
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match[1]) if match else -1
