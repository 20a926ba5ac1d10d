"""Products with a model's matrices, in whatever form they lie in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from pagefence.engine.model.quantised import Packed, quantised_product

Matrix = Tensor | Packed
_ROWS = 16  # a guess at how many tokens a product has, for oneDNN to choose a layout that suits one and many


def laid_out(matrix: Tensor) -> Tensor:
    """The matrix [rows, columns] as products read it fastest: float32 on a CPU in oneDNN's blocks, else as it is."""
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if matrix.dtype != torch.float32 or matrix.device.type != "cpu" or not has_onednn:
        return matrix
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(matrix.contiguous(), _ROWS)
    return reordered


def product(x: Tensor, matrix: Matrix, bias: Tensor | None = None) -> Tensor:
    """x [tokens, columns] times the matrix [rows, columns]; [tokens, rows], of the type of `x`."""
    if isinstance(matrix, Packed):
        out = quantised_product(x, matrix)
    elif matrix.is_mkldnn:
        out = torch.ops.mkldnn._linear_pointwise(x, matrix, None, "none", [], "")
    else:
        # This way round because a CPU is up to twice as fast with the large matrix on the left and few columns.
        out = torch.mm(matrix, x.t()).t()
    return out if bias is None else out + bias
