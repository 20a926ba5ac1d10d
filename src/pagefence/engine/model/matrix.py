"""Products with a model's matrices, each in the forms in which this machine reads it fastest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pagefence.engine.model.panels import Panels, panel_product, panels_of_bfloat16

Forms = Literal["dense", "both", "panels"]
"""What to keep of a matrix. "panels": only them where a file quantised the matrix, or else both."""

FEW = 16
"""Up to so many tokens panels are the faster form: the measured break-even of float32 with AVX2."""
_ROWS = 16  # a guess at how many tokens a product has, for oneDNN to choose a layout that suits one and many


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix [rows, columns] in one form or in both. Both hold the same weights; sums differ by float rounding."""

    dense: Tensor | None
    panels: Panels | None


def matrix_of(dense: Tensor, quantised: Panels | None = None, forms: Forms = "both") -> Matrix:
    """`dense` [rows, columns], and the same as a file quantised it, if it did."""
    with_panels = forms != "dense" and dense.dtype == torch.float32 and dense.device.type == "cpu"
    return Matrix(_laid_out(dense), (quantised or panels_of_bfloat16(dense)) if with_panels else None)


def product(x: Tensor, matrix: Matrix, bias: Tensor | None = None) -> Tensor:
    """x [tokens, columns] times the matrix [rows, columns]; [tokens, rows], of the type of `x`."""
    dense, panels = matrix.dense, matrix.panels
    if panels is not None and (dense is None or len(x) <= FEW):
        out = panel_product(x, panels)
    elif dense is not None and dense.is_mkldnn:
        out = torch.ops.mkldnn._linear_pointwise(x, dense, None, "none", [], "")
    else:
        assert dense is not None
        # This way round because a CPU is up to twice as fast with the large matrix on the left and few columns.
        out = torch.mm(dense, x.t()).t()
    return out if bias is None else out + bias


def _laid_out(matrix: Tensor) -> Tensor:
    """The matrix as products of many tokens read it fastest: float32 on a CPU in oneDNN's blocks, else as it is."""
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if matrix.dtype != torch.float32 or matrix.device.type != "cpu" or not has_onednn:
        return matrix
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(matrix.contiguous(), _ROWS)
    return reordered
