"""How likely a candidate is right: trees over its savings, its occurrences and the trace.

A candidate says what a repair would save. Whether an expert would agree (whether the wait, the copy
or the cast is needless here) was learned from labeled traces. The confidence is calibrated on
programs that the trees never saw, separately for traces with a device and for CPU runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from detector.errors import ModelError
from detector.features.candidate import COLUMNS, guesses
from detector.flagger import Float32, calibration, trees
from detector.flagger.trees import read, sha256
from detector.patterns import PATTERNS

Float64 = npt.NDArray[np.float64]

SHIPPED: Final = Path(__file__).resolve().parent.parent / "models" / "confidence"
KINDS: Final = ("cpu", "device")  # of traces, by the column "device"
CARD: Final = frozenset(("version", "features", "patterns", "calibration", "sha256"))
_DEVICE: Final = COLUMNS.index("device")
GUESS: Final = 0.3  # at most, where the trace lacks the proof of the pattern: a lead


class Confidence(Protocol):
    """Says how likely each candidate is right."""

    name: str

    def score(self, matrix: Float32) -> Float64:
        """float64[candidates] in [0, 1]; ``matrix``: see ``features.candidate.matrix``."""
        ...


class ConstantConfidence:
    """Nothing learned: one figure for traces with a device, one for CPU runs."""

    name = "constant"

    def __init__(self, device: float = 0.5, cpu: float = 0.3) -> None:
        self._by_kind = np.array([cpu, device])

    def score(self, matrix: Float32) -> Float64:
        """See ``Confidence``."""
        found: Float64 = self._by_kind[kind_of(matrix)]
        return found


class LightGBMConfidence:
    """The trees of a folder (``None``: the ones that ship).

    Raises ModelError where a file is missing or does not match the card.
    """

    def __init__(self, path: str | None = None) -> None:
        folder = Path(path) if path else SHIPPED
        self.card = read_card(folder)
        self.name = f"lightgbm {self.card['version']}"
        self._curves = [_curve(folder / "card.json", self.card, kind) for kind in KINDS]
        self._trees = read(folder / "trees.txt", self.card["sha256"], len(COLUMNS))

    def score(self, matrix: Float32) -> Float64:
        """See ``Confidence``."""
        if not len(matrix):
            return np.zeros(0)
        raw = self._trees.predict(matrix, num_threads=1)
        return calibrated(raw, matrix, self._curves)


def kind_of(matrix: Float32) -> npt.NDArray[np.int64]:
    """For each candidate the index of its trace's kind in ``KINDS``."""
    return (matrix[:, _DEVICE] > 0).astype(np.int64)


def calibrated(raw: Float64, matrix: Float32, curves: list[calibration.Curve]) -> Float64:
    """Raw scores of the candidates through the curve of their kind; guesses are at most ``GUESS``.

    In the training data a pause that looks like a collection is one, because its faults were made
    that way; in other traces the same pause may be a lock, a sleep or the operating system.
    """
    kind, found = kind_of(matrix), np.zeros(len(raw))
    for k, curve in enumerate(curves):
        found[kind == k] = calibration.apply(curve, raw[kind == k])
    return np.where(guesses(matrix), np.minimum(found, GUESS), found)


# -- files -----------------------------------------------------------------------------------------


def read_card(folder: Path) -> dict[str, Any]:
    """A card, checked against this version's columns and patterns. Raises ModelError."""
    file, card = folder / "card.json", trees.read_card(folder, CARD)
    if card["features"] != list(COLUMNS):
        raise ModelError(f"{file}: made for other features than this version computes")
    if card["patterns"] != [pattern.id for pattern in PATTERNS]:
        raise ModelError(f"{file}: made for other patterns than this version has")
    return card


def _curve(file: Path, card: Mapping[str, Any], kind: str) -> calibration.Curve:
    curves = card["calibration"]
    try:
        return calibration.checked(curves[kind] if isinstance(curves, dict) else None)
    except (KeyError, ValueError) as error:
        raise ModelError(f"{file}: calibration of {kind} traces: {error}") from error


def save(folder: Path, text: str, card: Mapping[str, Any]) -> int:
    """Write the trees' text and, last, the card that vouches for it. Returns the size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trees.txt").write_text(text)
    full = {
        **card,
        "features": list(COLUMNS),
        "patterns": [pattern.id for pattern in PATTERNS],
        "sha256": sha256(text),
    }
    (folder / "card.json").write_text(json.dumps(full, indent=1, sort_keys=True) + "\n")
    return len(text)
