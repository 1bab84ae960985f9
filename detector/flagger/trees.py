"""LightGBM's trees by its own library, without its Python package.

Importing the package takes longer than a scan of a small trace: it loads scipy, and pandas and
scikit-learn where they are installed. Training uses it; a scan only needs predictions.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import weakref
from collections.abc import Collection
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector.errors import ModelError

_NAMES: Final = ("lib_lightgbm.so", "lib_lightgbm.dylib", "lib_lightgbm.dll")
_PLACES: Final = ("lib", "bin", ".", "..")  # of the package, by version and system
_FLOAT32, _ROWS, _ALL = 0, 1, -1  # the type of the data, its layout, how many trees
_NORMAL, _CONTRIBUTIONS = 0, 3


class Trees:
    """A model from its text. Predicts what ``lightgbm.Booster`` does. Raises ModelError."""

    def __init__(self, text: str) -> None:
        self._handle = ctypes.c_void_p()
        library, count = _library(), ctypes.c_int()
        _done(
            library.LGBM_BoosterLoadModelFromString(
                text.encode(), ctypes.byref(count), ctypes.byref(self._handle)
            )
        )
        weakref.finalize(self, library.LGBM_BoosterFree, self._handle)

    def num_feature(self) -> int:
        """How many columns it uses."""
        count = ctypes.c_int()
        _done(_library().LGBM_BoosterGetNumFeature(self._handle, ctypes.byref(count)))
        return count.value

    def predict(
        self, data: npt.NDArray[np.float32], pred_contrib: bool = False, num_threads: int = 0
    ) -> npt.NDArray[np.float64]:
        """Scores of the rows of ``data`` [n, columns]: [n], or [n, classes].

        ``pred_contrib``: each column's part in the raw score instead, and the constant:
        [n, columns + 1]. ``num_threads``: 0 for all.
        """
        rows = np.ascontiguousarray(data, np.float32)
        kind = _CONTRIBUTIONS if pred_contrib else _NORMAL
        library, count = _library(), ctypes.c_int64()
        _done(
            library.LGBM_BoosterCalcNumPredict(
                self._handle, len(rows), kind, 0, _ALL, ctypes.byref(count)
            )
        )
        found = np.empty(count.value, np.float64)
        _done(
            library.LGBM_BoosterPredictForMat(
                self._handle,
                rows.ctypes.data_as(ctypes.c_void_p),
                _FLOAT32,
                ctypes.c_int32(rows.shape[0]),
                ctypes.c_int32(rows.shape[1]),
                _ROWS,
                kind,
                0,
                _ALL,
                f"num_threads={num_threads}".encode(),
                ctypes.byref(count),
                found.ctypes.data_as(ctypes.c_void_p),
            )
        )
        return found if len(found) == len(rows) else found.reshape(len(rows), -1)


def sha256(text: str) -> str:
    """The hash that a card holds of a model's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_card(folder: Path, needed: Collection[str]) -> dict[str, Any]:
    """The card of a model's folder, which must have these keys. Raises ModelError."""
    file = folder / "card.json"
    try:
        card: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: no readable model card ({error})") from error
    if not isinstance(card, dict) or not card.keys() >= set(needed):
        raise ModelError(f"{file}: not a model card (it needs {', '.join(sorted(needed))})")
    return card


def read(file: Path, digest: object, columns: int) -> Trees:
    """The model of a file whose hash and number of columns must be those of its card.

    Raises ModelError.
    """
    try:
        text = file.read_text()
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{file}: not a text ({error.reason})") from error
    if sha256(text) != digest:
        raise ModelError(f"{file}: does not match the hash in its card")
    trees = Trees(text)
    if trees.num_feature() != columns:
        raise ModelError(f"{file}: uses {trees.num_feature()} columns, its card {columns}")
    return trees


@cache
def _library() -> Any:
    spec = find_spec("lightgbm")
    if spec is None or spec.origin is None:
        raise ModelError("LightGBM is not installed")
    package = Path(spec.origin).parent
    for file in (package / place / name for place in _PLACES for name in _NAMES):
        if file.is_file():
            library = ctypes.cdll.LoadLibrary(str(file))
            library.LGBM_GetLastError.restype = ctypes.c_char_p
            return library
    raise ModelError(f"{package}: no LightGBM library in it")


def _done(status: int) -> None:
    if status:
        raise ModelError(f"LightGBM: {_library().LGBM_GetLastError().decode('utf-8', 'replace')}")
