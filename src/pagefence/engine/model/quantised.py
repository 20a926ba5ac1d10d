"""Matrices that stay as a file quantised them: four bits a weight, or eight, multiplied without being dequantised.

A block is 32 weights of a row that share a scale and an offset: `weight = scale * code + offset`. Torch's kernel for
four-bit weights runs blocks of that size with activations, scales and offsets in bfloat16. It computes each row of
the input on its own, in one order: a product does not depend on what else is in the batch.

Eight bits are two times four: `code = 16 * high + low`, so a matrix of eight bits is one of four that is twice as wide,
for an input that is given twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import Tensor

BLOCK = 32
_KERNEL_ROWS = 16  # the kernel's rows come in these
_TYPES = frozenset({GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0})


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix of four-bit codes. Eight bits: the high halves of a row, then its low ones."""

    codes: Tensor  # [rows, columns] int32, 0 to 15; columns twice those of the matrix where it is of eight bits
    scales: Tensor  # [rows, columns / BLOCK] float32
    offsets: Tensor  # [rows, columns / BLOCK] float32: what code 8 stands for, as the kernel wants it
    bits: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        rows, codes = self.codes.shape
        return rows, codes * 4 // self.bits

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, order: Tensor) -> Blocks:
        """The rows in another order."""
        return Blocks(self.codes[order], self.scales[order], self.offsets[order], self.bits)


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix [rows, columns] as the kernel reads it."""

    codes: Tensor
    scales_and_offsets: Tensor  # [columns / BLOCK, rows, 2] bfloat16
    bits: int


def quantised_product(x: Tensor, matrix: Packed) -> Tensor:
    """x [tokens, columns] times the matrix [rows, columns]; [tokens, rows], of the type of `x`."""
    given = x.to(torch.bfloat16)
    if matrix.bits == 8:
        given = torch.cat([given, given], -1)
    run = torch.ops.aten._weight_int4pack_mm_for_cpu
    out: Tensor = run(given, matrix.codes, BLOCK, matrix.scales_and_offsets).to(x.dtype)
    return out


def blocks_of(raw: npt.NDArray[np.uint8], kind: GGMLQuantizationType) -> Blocks | None:
    """The blocks of a GGUF tensor: raw [rows, bytes of a row]. None where the kernel knows none like them."""
    if kind not in _TYPES or raw.ndim != 2:
        return None
    size = GGML_QUANT_SIZES[kind][1]
    blocks = raw.reshape(len(raw), -1, size)
    scales = _halfs(blocks[..., :2])
    if kind is GGMLQuantizationType.Q8_0:
        codes = blocks[..., 2:].view(np.int8).reshape(len(raw), -1)
        both = np.concatenate([(codes >> 4) + 8, codes & 15], 1)
        zero = torch.zeros_like(scales)
        return Blocks(_codes(both), torch.cat([16 * scales, scales], 1), torch.cat([zero, 8 * scales], 1), 8)
    packed = blocks[..., -BLOCK // 2 :]
    codes = np.concatenate([packed & 15, packed >> 4], -1).reshape(len(raw), -1)
    has_offsets = kind is GGMLQuantizationType.Q4_1
    offsets = _halfs(blocks[..., 2:4]) + 8 * scales if has_offsets else torch.zeros_like(scales)
    return Blocks(_codes(codes), scales, offsets, 4)


def pack(parts: Sequence[Blocks | None]) -> Packed | None:
    """Matrices on top of each other as one. None where one is missing, they differ in bits, or no kernel fits."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({part.bits for part in known}) != 1:
        return None
    codes = torch.cat([part.codes for part in known])
    if len(codes) % _KERNEL_ROWS:
        return None
    scales, offsets = (torch.cat([getattr(part, name) for part in known]) for name in ("scales", "offsets"))
    both = torch.stack([scales, offsets], -1).transpose(0, 1).contiguous().to(torch.bfloat16)
    return Packed(torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1), both, known[0].bits)


def _halfs(raw: npt.NDArray[np.uint8]) -> Tensor:
    """Two bytes each, [..., 2], as float32 [...]."""
    return torch.from_numpy(np.ascontiguousarray(raw).view(np.float16)[..., 0].astype(np.float32))


def _codes(codes: npt.NDArray[np.integer]) -> Tensor:
    return torch.from_numpy(codes.astype(np.int32))
