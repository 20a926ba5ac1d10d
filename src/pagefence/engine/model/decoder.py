"""The forward pass over a paged KV store: one decoder for all models, told apart by `ModelConfig` and `LayerWeights`.

The store belongs to the caller: `kv[page, layer, 0 keys | 1 values, slot, kv_head, channel]`, of the model's dtype.
Pages may lie apart in memory (dimension 0 may have any stride). Keys are stored after the rotary embedding.

A token's keys and values go into slot `position % page_size` of page `pages[position // page_size]`, and attention
reads them back from there: there is no other path from one token to the next, so what a page table says is what a
request can see. Slots past a sequence's last token are never computed with, not even masked: a mask multiplies by
zero, and zero times the NaN that a stranger left there is NaN. Where a copy of pages holds them, it is cleared first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from pagefence.engine.model.config import Dtype, ModelConfig, MoE
from pagefence.engine.model.matrix import Forms, Matrix, product
from pagefence.engine.model.weights import Experts, LayerWeights, Weights, load_weights

_DTYPES: dict[Dtype, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence's new tokens in a forward pass.

    `pages` is its page table, in order; `start` the position of the first new token, which is the number of tokens
    that already lie in the store; `tokens` the new token ids, one or more.
    """

    pages: Sequence[int]
    start: int
    tokens: Sequence[int]

    @property
    def end(self) -> int:
        """Number of tokens of the sequence after the pass."""
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One span's queries, and what they attend over."""

    rows: slice
    pages: Tensor  # [pages in use] int64
    length: int  # tokens in those pages
    mask: Tensor  # [queries, length] bool: True where a query may look


@dataclass(frozen=True, slots=True)
class _Steps:
    """Spans of one token each and of about the same length, read at once: the shorter ones look at a page twice."""

    rows: Tensor  # [n] int64
    pages: Tensor  # [n * width] int64: each span's pages in use, filled up with its own first one
    past: Tensor  # int64: the slots past each span's last token, in those pages side by side
    mask: Tensor  # [n, 1, 1, width * page_size]: 0 where a query may look, else -inf


@dataclass(frozen=True, slots=True)
class _Batch:
    page: Tensor  # [tokens] page of each new token
    slot: Tensor  # [tokens] slot in that page
    cos: Tensor  # [tokens, 1, rotary_dim / 2]
    sin: Tensor
    chunks: tuple[_Chunk, ...]
    steps: tuple[_Steps, ...]
    last: Tensor  # [spans] row of each one's last token


class Decoder:
    """A model in memory. `forward` keeps no state: all of it lies in the caller's pages."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self._cos, self._sin = _rope_table(config, self.dtype, self.device)

    @classmethod
    def load(cls, path: Path, dtype: Dtype = "float32", device: str = "cpu", forms: Forms = "both") -> Decoder:
        """From a GGUF file or a Hugging Face folder; `forms` as in `load_weights`. Raises ModelError."""
        return cls(*load_weights(path, _DTYPES[dtype], device, forms))

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span], kv: Tensor) -> Tensor:
        """Write the spans' keys and values into their pages; logits [len(spans), vocab] float32 after each one's last.

        A span's logits do not depend on its neighbours beyond float rounding (which, in a mixture of experts, decides
        between two experts that score the same). Raises ValueError for a span that its pages or the model's context
        cannot hold, for a token or page that does not exist, and for a wrong store; then nothing was written.
        """
        self._check(spans, kv)
        batch = self._plan(spans, kv.shape[3])
        tokens = [token for span in spans for token in span.tokens]
        hidden = F.embedding(torch.tensor(tokens, device=self.device), self.weights.embedding)
        for index, layer in enumerate(self.weights.layers):
            hidden = hidden + self._attention(layer, hidden, kv[:, index], batch)
            hidden = hidden + self._mlp(layer, hidden)
        last = _rms_norm(hidden[batch.last], self.weights.norm, self.config.norm_eps)
        return product(last, self.weights.head).float().contiguous()

    def _attention(self, layer: LayerWeights, hidden: Tensor, kv: Tensor, batch: _Batch) -> Tensor:
        config, normed = self.config, _rms_norm(hidden, layer.attn_norm, self.config.norm_eps)
        heads = product(normed, layer.qkv, layer.qkv_bias).view(len(hidden), -1, config.head_dim)
        turned = config.heads + config.kv_heads  # queries and keys are turned, values are not
        rotated = _rotate(_rms_norm(heads[:, :turned], layer.qk_norm, config.norm_eps), batch.cos, batch.sin)
        queries, keys = rotated[:, : config.heads], rotated[:, config.heads :]
        # [pages, slots, 2, kv_heads, head_dim]: one write for keys and values
        kv.transpose(1, 2)[batch.page, batch.slot] = torch.stack([keys, heads[:, turned:]], 1)
        out = queries.new_empty(queries.shape)
        for chunk in batch.chunks:
            out[chunk.rows] = _attend(queries[chunk.rows], kv, chunk)
        for steps in batch.steps:
            out[steps.rows] = _attend_steps(queries[steps.rows], kv, steps)
        return _rms_norm(product(out.view(len(hidden), -1), layer.out), layer.attn_post_norm, config.norm_eps)

    def _mlp(self, layer: LayerWeights, hidden: Tensor) -> Tensor:
        normed = _rms_norm(hidden, layer.mlp_norm, self.config.norm_eps)
        out = _swiglu(normed, layer.gate_up, layer.down)
        if layer.experts is not None and self.config.moe is not None:
            out = _mixture(self.config.moe, layer.experts, normed) + out
        return _rms_norm(out, layer.mlp_post_norm, self.config.norm_eps)

    def _plan(self, spans: Sequence[Span], page_size: int) -> _Batch:
        """What all layers share: where tokens go, how far queries see, by how much they turn."""
        chunks, tables, positions, row = [], [], [], 0
        steps: dict[int, list[tuple[int, Span]]] = {}
        for span in spans:
            count = -(-span.end // page_size)
            pages = torch.tensor(span.pages[:count], device=self.device)
            at = torch.arange(span.start, span.end, device=self.device)
            if len(span.tokens) == 1:
                # With those that have up to twice as many pages, and not with longer ones: it reads as many as they.
                steps.setdefault((count - 1).bit_length(), []).append((row, span))
            else:
                mask = torch.arange(span.end, device=self.device) <= at[:, None]
                chunks.append(_Chunk(slice(row, row + len(span.tokens)), pages, span.end, mask))
            tables.append(pages[at // page_size])
            positions.append(at)
            row += len(span.tokens)
        position = torch.cat(positions)
        return _Batch(
            page=torch.cat(tables),
            slot=position % page_size,
            cos=self._cos[position, None],
            sin=self._sin[position, None],
            chunks=tuple(chunks),
            steps=tuple(self._plan_steps(alike, page_size) for alike in steps.values()),
            last=torch.tensor([len(span.tokens) for span in spans], device=self.device).cumsum(0) - 1,
        )

    def _plan_steps(self, alike: Sequence[tuple[int, Span]], page_size: int) -> _Steps:
        counts = [-(-span.end // page_size) for _, span in alike]
        width = max(counts)
        pages = [
            [*span.pages[:count], *[span.pages[0]] * (width - count)]
            for (_, span), count in zip(alike, counts, strict=True)
        ]
        ends = torch.tensor([[span.end] for _, span in alike], device=self.device)
        hidden = torch.arange(width * page_size, device=self.device) >= ends
        # A page that is there only to fill up holds the span's own tokens: masked it may be computed with.
        borders = torch.tensor([[count * page_size] for count in counts], device=self.device)
        past = hidden & (torch.arange(width * page_size, device=self.device) < borders)
        return _Steps(
            rows=torch.tensor([row for row, _ in alike], device=self.device),
            pages=torch.tensor(pages, device=self.device).flatten(),
            past=past.flatten().nonzero().flatten(),
            mask=torch.zeros_like(hidden, dtype=self.dtype).masked_fill(hidden, float("-inf"))[:, None, None],
        )

    def _check(self, spans: Sequence[Span], kv: Tensor) -> None:
        config = self.config
        layout = (config.layers, 2, kv.shape[3] if kv.dim() == 6 else 0, config.kv_heads, config.head_dim)
        if kv.shape[1:] != layout or kv.dtype != self.dtype:
            raise ValueError(f"a KV store {tuple(kv.shape)} of {kv.dtype} does not fit {config} in {self.dtype}")
        if not spans:
            raise ValueError("a forward pass needs at least one span")
        for span in spans:
            if not span.tokens or span.start < 0:
                raise ValueError(f"a span needs a token and a start from 0 on, not {len(span.tokens)} at {span.start}")
            room = min(config.context, len(span.pages) * kv.shape[3])
            if span.end > room:
                raise ValueError(f"{span.end} tokens do not fit in {len(span.pages)} pages and context: {room}")
            # Checked here because an index of -1 would quietly be somebody else's page.
            if min(span.pages) < 0 or max(span.pages) >= len(kv):
                raise ValueError(f"a page table names a page outside the store's {len(kv)}")
            if min(span.tokens) < 0 or max(span.tokens) >= config.vocab:
                raise ValueError(f"a token is outside the vocabulary of {config.vocab}")


def _attend(queries: Tensor, kv: Tensor, chunk: _Chunk) -> Tensor:
    """Attention of one span: queries [n, heads, head_dim] over a layer's pages; the same shape."""
    keys, values = (
        kv[:, which].index_select(0, chunk.pages).flatten(0, 1)[: chunk.length].transpose(0, 1) for which in (0, 1)
    )
    out = F.scaled_dot_product_attention(
        queries.transpose(0, 1)[None], keys[None], values[None], attn_mask=chunk.mask, enable_gqa=True
    )
    return out[0].transpose(0, 1)


def _attend_steps(queries: Tensor, kv: Tensor, steps: _Steps) -> Tensor:
    """Attention of spans of one token: queries [n, heads, head_dim] over a layer's pages; the same shape."""
    n, heads, head_dim = queries.shape
    kv_heads = kv.shape[3]
    keys, values = (
        kv[:, which]
        .index_select(0, steps.pages)
        .flatten(0, 1)
        .index_fill_(0, steps.past, 0.0)
        .view(n, -1, kv_heads, head_dim)
        .transpose(1, 2)
        for which in (0, 1)
    )
    # The queries that share a KV head stand in for positions, so that no key is copied for them.
    shared = queries.view(n, kv_heads, heads // kv_heads, head_dim)
    return F.scaled_dot_product_attention(shared, keys, values, attn_mask=steps.mask).view(n, heads, head_dim)


def _mixture(moe: MoE, experts: Experts, x: Tensor) -> Tensor:
    """Each token of x [tokens, hidden] through its own experts, weighed and added up; the same shape.

    A token's experts are added in their order, whoever else is in the batch.
    """
    chosen, shares = _route(moe, experts, x)
    out = torch.zeros_like(x)
    for expert in sorted(set(chosen.flatten().tolist())):
        rows, column = (chosen == expert).nonzero(as_tuple=True)
        given = _swiglu(x[rows], experts.gate_up[expert], experts.down[expert])
        out[rows] += (given * shares[rows, column, None]).to(x.dtype)
    return out


def _route(moe: MoE, experts: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
    """The experts of each token of x [tokens, hidden] and their shares: int64 and float32, [tokens, moe.used]."""
    scores = F.linear(x.float(), experts.router).sigmoid()
    ranks = (scores + experts.bias).view(len(x), moe.groups, -1)  # [tokens, groups, experts of a group]
    best = ranks.topk(2).values.sum(-1).topk(moe.groups_used).indices
    outside = torch.ones_like(ranks[..., 0], dtype=torch.bool).scatter(1, best, False)
    chosen = ranks.masked_fill(outside[..., None], float("-inf")).flatten(1).topk(moe.used).indices
    shares = scores.gather(1, chosen)
    if moe.normalised:
        shares = shares / (shares.sum(-1, keepdim=True) + 1e-20)
    return chosen, shares * moe.scale


def _swiglu(x: Tensor, gate_up: Matrix, down: Matrix) -> Tensor:
    """x [tokens, hidden], gate_up [2 * mlp, hidden], down [hidden, mlp]; [tokens, hidden]."""
    gate, up = product(x, gate_up).chunk(2, -1)
    return product(F.silu(gate) * up, down)


def _rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Normalised in float32 and rounded before the weight, as Hugging Face does. None: a norm the model lacks."""
    if weight is None:
        return x
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (i, i + rotary_dim / 2) of x [tokens, heads, head_dim] by its position's angle."""
    half = cos.shape[-1]
    first, second, rest = x.tensor_split((half, 2 * half), -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


def _rope_table(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines [context, rotary_dim / 2], computed in float32 and then rounded to `dtype`."""
    exponents = torch.arange(0, config.rotary_dim, 2, dtype=torch.float32) / config.rotary_dim
    frequencies = 1.0 / config.rope_theta**exponents
    if config.rope_factors is not None:
        frequencies = frequencies / torch.tensor(config.rope_factors)
    angles = torch.outer(torch.arange(config.context, dtype=torch.float32), frequencies)
    return angles.cos().to(dtype).to(device), angles.sin().to(dtype).to(device)
