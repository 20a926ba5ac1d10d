"""Matrices as a file quantised them: in blocks of 32 weights of a row that share a scale and an offset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import Tensor

BLOCK = 32
_TYPES = frozenset({GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0})


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix: `weight = scale * code + offset`."""

    codes: Tensor  # [rows, columns]: uint8, 0 to 15, of four bits; int8 of eight
    scales: Tensor  # [rows, columns / BLOCK] float32
    offsets: Tensor  # [rows, columns / BLOCK] float32
    bits: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        rows, columns = self.codes.shape
        return rows, columns

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, order: Tensor) -> Blocks:
        """The rows in another order."""
        return Blocks(self.codes[order], self.scales[order], self.offsets[order], self.bits)


def blocks_of(raw: npt.NDArray[np.uint8], kind: GGMLQuantizationType) -> Blocks | None:
    """The blocks of a GGUF tensor: raw [rows, bytes of a row]. None for a format that is not made of such blocks."""
    if kind not in _TYPES or raw.ndim != 2:
        return None
    size = GGML_QUANT_SIZES[kind][1]
    blocks = raw.reshape(len(raw), -1, size)
    scales = _halfs(blocks[..., :2])
    if kind is GGMLQuantizationType.Q8_0:
        codes = torch.from_numpy(blocks[..., 2:].reshape(len(raw), -1).view(np.int8))
        return Blocks(codes, scales, torch.zeros_like(scales), 8)
    packed = torch.from_numpy(np.ascontiguousarray(blocks[..., -BLOCK // 2 :]))
    codes = torch.cat([packed & 15, packed >> 4], -1).flatten(1)
    offsets = _halfs(blocks[..., 2:4]) if kind is GGMLQuantizationType.Q4_1 else -8 * scales
    return Blocks(codes, scales, offsets, 4)


def _halfs(raw: npt.NDArray[np.uint8]) -> Tensor:
    """Two bytes each, [..., 2], as float32 [...]."""
    return torch.from_numpy(np.ascontiguousarray(raw).view(np.float16)[..., 0].astype(np.float32))
