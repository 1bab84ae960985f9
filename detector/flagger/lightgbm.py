"""The flagger that ships: gradient-boosted trees, one head per side.

A head begins with the largest saving of its side in the window, and its trees add to that, in log
odds.

Model files are LightGBM's own text beside a JSON card. The card holds the feature names, the
columns that the trees use, the curves from raw scores to probabilities, the thresholds and the hash
of each text. A model that does not match its card, or this version's feature table, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector.errors import ModelError
from detector.features import COLUMNS
from detector.features.savings import SAVED
from detector.flagger import Float32, Scores, calibration, trees
from detector.flagger.trees import Trees, read, sha256
from detector.patterns import BY_ID

Float64 = npt.NDArray[np.float64]

SIDES: Final = ("cpu", "gpu")
SHIPPED: Final = Path(__file__).resolve().parent.parent / "models" / "flagger"
TOP: Final = 3
BEGINNING: Final = "largest saving of the side"
EDGE: Final = 0.01  # savings below this share of a window, and above its complement, count as that
SURE: Final = 1e-12
# What a card must hold.
CARD: Final = frozenset(
    ("version", "features", "columns", "beginning", "calibration", "threshold", "sha256")
)


def savings(columns: Sequence[str], seen: Float32, side: str) -> Float32:
    """What repairing each of a side's patterns saves of each window, [n, patterns in ``columns``]:
    shares in [0, 1]."""
    found: Float32 = np.clip(np.nan_to_num(seen[:, _saved(columns, side)]), 0.0, 1.0)
    return found


def beginning(columns: Sequence[str], seen: Float32, side: str) -> Float64:
    """The largest saving of a side in each window, as log odds: float64[n]."""
    largest = savings(columns, seen, side).max(axis=1, initial=0.0).astype(np.float64)
    return _log_odds(np.clip(largest, EDGE, 1 - EDGE))


def _saved(columns: Sequence[str], side: str) -> npt.NDArray[np.int64]:
    """Where the savings of a side's patterns stand among these columns."""
    mine = {name for name, pattern in SAVED.items() if BY_ID[pattern].side == side}
    return np.array([i for i, column in enumerate(columns) if column in mine], np.int64)


def _log_odds(probability: Float64) -> Float64:
    found: Float64 = np.log(probability / (1 - probability))
    return found


class Heads:
    """Trees, and the columns of the features' matrix that they use.

    ``boosters``: by side, ``Trees``, or from training ``lightgbm.Booster``.
    """

    def __init__(self, columns: Sequence[str], boosters: Mapping[str, Any]) -> None:
        place = {column: i for i, column in enumerate(COLUMNS)}
        self.columns = tuple(columns)
        self.boosters = dict(boosters)
        self._places = np.array([place[column] for column in columns], np.int64)

    def seen(self, matrix: Float32) -> Float32:
        """The heads' own columns, float32[n, len(columns)]."""
        return np.take(matrix, self._places, axis=1)

    def raw(self, side: str, seen: Float32) -> Float64:
        """The uncalibrated score of a side's head: float64[n]."""
        if not len(seen):
            return np.zeros(0)
        added = np.asarray(self.boosters[side].predict(seen, num_threads=2), np.float64)
        whole = beginning(self.columns, seen, side) + _log_odds(np.clip(added, SURE, 1 - SURE))
        raw: Float64 = 1 / (1 + np.exp(-whole))
        return raw

    def contributions(self, side: str, seen: Float32) -> Float64:
        """Each column's part in the raw score, log odds: LightGBM's own SHAP values, to which the
        largest saving adds what the head begins with, relative to a window without any."""
        share = self.boosters[side].predict(seen, pred_contrib=True, num_threads=2)
        parts = np.asarray(share, np.float64)[:, :-1]
        places = _saved(self.columns, side)
        if len(places):
            largest = places[savings(self.columns, seen, side).argmax(axis=1)]
            least = float(_log_odds(np.array(EDGE)))
            parts[np.arange(len(seen)), largest] += beginning(self.columns, seen, side) - least
        return parts


class LightGBMFlagger:
    """Scores windows with the trees of a folder (``None``: the ones that ship).

    Raises ModelError where a file is missing or does not match the card.
    """

    def __init__(self, path: str | None = None) -> None:
        self.folder = Path(path) if path else SHIPPED
        self.card = read_card(self.folder)
        self.name = f"lightgbm {self.card['version']}"
        self.threshold: dict[str, float] = dict(self.card["threshold"])
        self._curves = curves_of(self.folder / "card.json", self.card)
        self._heads = Heads(self.card["columns"], {side: self._load(side) for side in SIDES})

    def _load(self, side: str) -> Trees:
        digest = self.card["sha256"].get(side)
        return read(self.folder / f"{side}.txt", digest, len(self.card["columns"]))

    def score(self, matrix: Float32) -> Scores:
        """See ``Flagger``."""
        seen = self._heads.seen(matrix)
        cpu, gpu = (calibration.apply(self._curves[s], self._heads.raw(s, seen)) for s in SIDES)
        return Scores(cpu.astype(np.float32), gpu.astype(np.float32))

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """Features by their contribution (LightGBM's own SHAP values), largest first."""
        if not len(matrix):
            return []
        share = self._heads.contributions(side, self._heads.seen(matrix))
        order = np.argsort(-share, axis=1)[:, :TOP]
        names = self._heads.columns
        return [tuple(names[j] for j in row if share[i, j] > 0) for i, row in enumerate(order)]


def read_card(folder: Path) -> dict[str, Any]:
    """A flagger's card, checked against this version's features.

    Raises ModelError.
    """
    file, card = folder / "card.json", trees.read_card(folder, CARD)
    if tuple(card["features"]) != COLUMNS:
        raise ModelError(f"{file}: made for other features than this version computes")
    if card["beginning"] != BEGINNING:
        raise ModelError(f"{file}: its heads begin with {str(card['beginning'])[:40]!r}")
    columns = card["columns"]
    if not isinstance(columns, list) or not set(COLUMNS).issuperset(map(str, columns)):
        raise ModelError(f"{file}: its trees use columns that are no features")
    return card


def curves_of(file: Path, card: dict[str, Any]) -> dict[str, calibration.Curve]:
    """The curve from raw scores to probabilities of each side. Raises ModelError."""
    by_side = card["calibration"]
    if not isinstance(by_side, dict) or by_side.keys() != set(SIDES):
        raise ModelError(f"{file}: calibration: one curve for each of {', '.join(SIDES)} wanted")
    curves = {}
    for side in SIDES:
        try:
            curves[side] = calibration.checked(by_side[side])
        except ValueError as error:
            raise ModelError(f"{file}: calibration of the {side} side: {error}") from error
    return curves


def save(folder: Path, heads: Heads, card: dict[str, Any]) -> int:
    """Write the heads' texts and, last, the card that vouches for them. Returns their size."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {head: heads.boosters[head].model_to_string() for head in SIDES}
    for head, text in texts.items():
        (folder / f"{head}.txt").write_text(text)
    full = {
        **card,
        "features": list(COLUMNS),
        "columns": list(heads.columns),
        "beginning": BEGINNING,
        "sha256": {head: sha256(text) for head, text in texts.items()},
    }
    (folder / "card.json").write_text(json.dumps(full, indent=1, sort_keys=True) + "\n")
    return sum(map(len, texts.values()))
