"""Matrices in panels: what multiplies a few rows as fast as memory delivers the weights.

Torch has no product on a CPU that reads bfloat16 or four bits and sums in float32: it widens the matrix first, and then
reads two to six times as much for every token. `panels.c` is that product. The installation compiles it where there is
a C compiler with OpenMP; without it there are no panels, and everything else computes as before.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from pagefence.engine.model.quantised import BLOCK, Blocks

PANEL = 16
_BFLOAT16 = 16


@dataclass(frozen=True, slots=True)
class Panels:
    """A matrix [rows, columns], 16 rows side by side. A weight is `scale * code + offset`, or itself as bfloat16."""

    words: Tensor  # [panels, columns * bits / 32, PANEL] int32: neighbouring columns of a row in each, the first lowest
    scales: Tensor  # [panels, columns / BLOCK, 2, PANEL] float32: scales and offsets; empty for bfloat16
    bits: int
    columns: int

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        return len(self.words) * PANEL


@cache
def available() -> bool:
    """Whether the compiled product is here and this machine's bytes are in its order."""
    return sys.byteorder == "little" and _library() is not None


def panels_of_bfloat16(matrix: Tensor) -> Panels | None:
    """Panels of a matrix [rows, columns] that bfloat16 holds without rounding; None for another one."""
    rows, columns = matrix.shape
    if not available() or matrix.device.type != "cpu" or rows % PANEL or columns % BLOCK:
        return None
    rounded = matrix.to(torch.bfloat16)
    if not torch.equal(rounded.to(matrix.dtype), matrix):
        return None
    return Panels(_side_by_side(rounded), torch.empty(0), _BFLOAT16, columns)


def panels_of_blocks(parts: Sequence[Blocks | None]) -> Panels | None:
    """Matrices on top of each other as one. None where one is missing, they differ in bits, or no kernel fits."""
    known = [part for part in parts if part is not None]
    if not available() or len(known) < len(parts) or len({part.bits for part in known}) != 1:
        return None
    codes = torch.cat([part.codes for part in known])
    rows, columns = codes.shape
    if rows % PANEL:
        return None
    if known[0].bits == 4:
        codes = codes[:, 0::2] | codes[:, 1::2] << 4
    both = torch.stack([torch.cat([part.scales for part in known]), torch.cat([part.offsets for part in known])])
    scales = both.view(2, -1, PANEL, columns // BLOCK).permute(1, 3, 0, 2).contiguous()
    return Panels(_side_by_side(codes), scales, known[0].bits, columns)


def panel_product(x: Tensor, matrix: Panels) -> Tensor:
    """x [tokens, columns] times the matrix [rows, columns]; [tokens, rows], of the type of `x`, summed in float32.

    A token's row has the same bits whatever the other tokens are. Raises ValueError for another number of columns.
    """
    if x.dim() != 2 or x.shape[1] != matrix.columns:
        raise ValueError(f"{tuple(x.shape)} does not fit a matrix of {matrix.columns} columns")
    given = x.to("cpu", torch.float32).contiguous()
    out = torch.empty(len(x), matrix.rows)
    sums = torch.empty(0 if matrix.bits == _BFLOAT16 else len(x) * matrix.columns // BLOCK)
    library = _library()
    assert library is not None
    tensors = (matrix.words, matrix.scales, given, sums, out)
    library(matrix.bits, *(tensor.data_ptr() for tensor in tensors), len(x), matrix.rows, matrix.columns)
    return out.to(x.dtype)


def _side_by_side(weights: Tensor) -> Tensor:
    """[rows, columns] of any type, as words of 32 bits [panels, words, PANEL]."""
    words = weights.contiguous().view(torch.int32)
    return words.view(-1, PANEL, words.shape[1]).transpose(1, 2).contiguous()


@cache
def _library() -> ctypes._NamedFuncPointer | None:
    spec = find_spec("pagefence.engine.model._panels")
    if spec is None or spec.origin is None:
        return None
    # Torch has loaded OpenMP by now, and the library uses the same one: one pool of threads, not two that compete.
    try:
        function = ctypes.CDLL(spec.origin).pagefence_panel_product
    except (OSError, AttributeError):  # built for another machine, or cut short: as good as none
        return None
    function.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 5, *[ctypes.c_long] * 3]
    function.restype = None
    return function
