"""A GGUF file: its metadata and its tensors, dequantised to float32."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType
from gguf.quants import dequantize

from pagefence.models import ModelError

Floats = npt.NDArray[np.float32]

# `dequantize` works through groups of 16 rows. Rows of a few hundred bytes, as they lie in the file, cost the embedded
# model 3.5 s of calls; groups of a hundred kilobytes and more take a third of that.
_ROWS = 16
_GROUP_BYTES = 1 << 17


class _Reader(GGUFReader):  # type: ignore[misc]  # gguf has no types
    """The library's reader, but an array is one view. A view for each of 98,000 strings takes it four seconds."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
        if GGUFValueType(raw_type) is not GGUFValueType.ARRAY or self.byte_order != "I":
            return super()._get_field_parts(orig_offs, raw_type)  # type: ignore[no-any-return]
        raw_item, length = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
        item, start = GGUFValueType(raw_item[0]), orig_offs + 12
        if item is GGUFValueType.STRING:
            values = self._get(start, np.uint8, _strings_size(self.data, start, int(length[0])))
        elif item in self.gguf_scalar_to_np:
            values = self._get(start, self.gguf_scalar_to_np[item], length[0])
        else:
            return super()._get_field_parts(orig_offs, raw_type)  # type: ignore[no-any-return]
        return 12 + int(values.nbytes), [raw_item, length, values], [2], [GGUFValueType.ARRAY, item]


class GGUFFile:
    """An open GGUF file. Tensors are read from a memory map when asked for.

    Raises ModelError when the file is truncated, damaged or not GGUF.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = _Reader(path)
            self._values: dict[str, Any] = {name: _value(field) for name, field in self._reader.fields.items()}
        except OSError as error:
            raise ModelError(f"cannot read {path}: {error.strerror or error}.") from error
        except (ValueError, KeyError, IndexError, OverflowError, MemoryError, struct.error) as error:
            raise ModelError(f"{path} is not a complete GGUF file ({error}). Fetch or copy it again.") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def __getitem__(self, key: str) -> Any:
        """The metadata under `key`; ModelError when there is none."""
        if key not in self._values:
            raise ModelError(f"{self.path} has no metadata {key!r}.")
        return self._values[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The metadata under `key`, or `default`."""
        return self._values.get(key, default)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """All metadata."""
        return self._values

    @property
    def names(self) -> Iterable[str]:
        """The names of all tensors."""
        return self._tensors.keys()

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        return name in self._tensors

    def tensor(self, name: str) -> Floats:
        """A tensor as float32, in the order that torch uses: a matrix is [out, in]. Raises ModelError."""
        tensor = self._find(name)
        kind, shape = tensor.tensor_type, tuple(reversed(tensor.shape.tolist()))
        data = tensor.data
        if kind not in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
            data = data.reshape(_groups(data.size, shape), -1)
        try:
            values: Floats = dequantize(data, kind).reshape(shape)
        except NotImplementedError as error:
            raise ModelError(f"{self.path}: tensor {name!r} has type {kind.name}, which is not supported.") from error
        return values

    def raw(self, name: str) -> tuple[npt.NDArray[Any], GGMLQuantizationType]:
        """A tensor as it lies in the file, and its type: of a quantised matrix, the bytes of each row. ModelError."""
        tensor = self._find(name)
        return tensor.data, tensor.tensor_type

    def _find(self, name: str) -> Any:
        if name not in self._tensors:
            raise ModelError(f"{self.path} has no tensor {name!r}.")
        return self._tensors[name]


def _groups(size: int, shape: tuple[int, ...]) -> int:
    """Into how many equal rows of whole blocks to cut `size` bytes, a multiple of 16 where possible.

    A block never crosses a row of the tensor, so any divisor of the number of rows will do.
    """
    rows = int(np.prod(shape[:-1]))
    fitting = [n for n in range(_ROWS, rows + 1, _ROWS) if rows % n == 0 and size // (n // _ROWS) >= _GROUP_BYTES]
    return max(fitting, default=1)


def _value(field: Any) -> Any:
    array_of_strings = list(field.types) == [GGUFValueType.ARRAY, GGUFValueType.STRING]
    if array_of_strings and len(field.data) == 1 and field.parts[field.data[0]].ndim == 1:
        return _strings(field)
    return field.contents()


def _strings(field: Any) -> list[str]:
    length = int(field.parts[field.data[0] - 1][0])
    raw = field.parts[field.data[0]].tobytes()
    strings, offset = [], 0
    for _ in range(length):
        size = int.from_bytes(raw[offset : offset + 8], "little")
        strings.append(str(raw[offset + 8 : offset + 8 + size], "utf-8"))
        offset += 8 + size
    return strings


def _strings_size(data: npt.NDArray[np.uint8], start: int, length: int) -> int:
    """How many bytes `length` strings take from `start` on. Raises struct.error past the end of the file."""
    raw, offset, size_of = memoryview(data.data), start, struct.Struct("<Q").unpack_from
    for _ in range(length):
        offset += 8 + size_of(raw, offset)[0]
    return offset - start
