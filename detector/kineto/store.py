"""A column that grows: chunks of anonymous memory, returned to the system one by one.

Small arrays for every block would fragment the heap, with a peak a third higher.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

ROWS = 1 << 16


class Store:
    """Values of one column, row after row; rows without a value are -1."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._chunks: list[npt.NDArray[Any]] = []
        self._filled = 0

    def __len__(self) -> int:
        return self._filled

    def put(self, first: int, values: npt.NDArray[Any]) -> None:
        """Put values at the rows from ``first`` on, after all earlier ones."""
        if first > self._filled:
            self._extend(np.broadcast_to(np.array(-1, self._dtype), (first - self._filled,)))
        self._extend(values)

    def _extend(self, values: npt.NDArray[Any]) -> None:
        while len(values):
            at = self._filled % ROWS
            if at == 0:
                memory = mmap.mmap(-1, ROWS * self._dtype.itemsize)
                self._chunks.append(np.frombuffer(memory, self._dtype))
            count = min(ROWS - at, len(values))
            self._chunks[-1][at : at + count] = values[:count]
            self._filled += count
            values = values[count:]

    def drain(self) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """(first row, values), each chunk freed after it was yielded."""
        self._chunks.reverse()
        first = 0
        while self._chunks:
            chunk = self._chunks.pop()[: self._filled - first]
            yield first, chunk
            first += len(chunk)
