"""The flagger that ships: gradient-boosted trees, one head per side and one for the classes.

Model files are LightGBM's own text beside a JSON card. The card holds the feature names, the
classes, the curves that make probabilities of raw scores, the thresholds and the hash of each text;
a model that does not match its card, or this version's feature table, is refused.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.errors import ModelError
from detector.features import COLUMNS
from detector.flagger import Float32, Scores, calibration
from detector.taxonomy import CLASSES

if TYPE_CHECKING:
    import lightgbm

SIDES: Final = ("cpu", "gpu")
HEADS: Final = (*SIDES, "classes")
SHIPPED: Final = Path(__file__).resolve().parent.parent / "models" / "flagger"
DRIVERS: Final = 3
CARD: Final = {"version", "features", "classes", "threshold", "sha256"}  # what it must hold


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
        self._boosters = {head: self._load(head) for head in HEADS}

    def _load(self, head: str) -> lightgbm.Booster:
        import lightgbm  # half a second: only when a scan reaches the model

        file = self.folder / f"{head}.txt"
        try:
            text = file.read_text()
        except OSError as error:
            raise ModelError(f"{file}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ModelError(f"{file}: not a text ({error.reason})") from error
        if sha256(text) != self.card["sha256"].get(head):
            raise ModelError(f"{file}: does not match the hash in its card")
        return lightgbm.Booster(model_str=text)

    def score(self, matrix: Float32) -> Scores:
        """See ``Flagger``."""
        if not len(matrix):
            none = np.zeros(0, np.float32)
            return Scores(none, none, np.zeros((0, len(CLASSES)), np.float32))
        raw = {head: self._boosters[head].predict(matrix, num_threads=2) for head in HEADS}
        cpu, gpu = (calibration.apply(self._curves[side], raw[side]) for side in SIDES)
        return Scores(
            cpu.astype(np.float32),
            gpu.astype(np.float32),
            np.asarray(raw["classes"], np.float32),
        )

    def drivers(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """Features by their contribution (LightGBM's own SHAP values), largest first."""
        if not len(matrix):
            return []
        booster = self._boosters[side]
        share = np.asarray(booster.predict(matrix, pred_contrib=True, num_threads=2))[:, :-1]
        order = np.argsort(-share, axis=1)[:, :DRIVERS]
        return [tuple(COLUMNS[j] for j in row if share[i, j] > 0) for i, row in enumerate(order)]


def sha256(text: str) -> str:
    """The hash that a card holds."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_card(folder: Path) -> dict[str, Any]:
    """A flagger's card, checked against this version's features and classes.

    Raises ModelError.
    """
    file = folder / "card.json"
    try:
        card: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: no readable model card ({error})") from error
    if not isinstance(card, dict) or not card.keys() >= CARD:
        raise ModelError(f"{file}: not a model card (it needs {', '.join(sorted(CARD))})")
    if tuple(card["features"]) != COLUMNS:
        raise ModelError(f"{file}: made for other features than this version computes")
    if tuple(card["classes"]) != CLASSES:
        raise ModelError(f"{file}: made for another taxonomy")
    return card


def curves_of(file: Path, card: dict[str, Any]) -> dict[str, calibration.Curve]:
    """By side, the curve from raw scores to probabilities; a card without any keeps raw scores.

    Raises ModelError.
    """
    if "calibration" not in card:
        return dict.fromkeys(SIDES, calibration.IDENTITY)
    told = card["calibration"]
    if not isinstance(told, dict) or told.keys() != set(SIDES):
        raise ModelError(f"{file}: calibration: one curve for each of {', '.join(SIDES)} wanted")
    curves = {}
    for side in SIDES:
        try:
            curves[side] = calibration.checked(told[side])
        except ValueError as error:
            raise ModelError(f"{file}: calibration of the {side} side: {error}") from error
    return curves


def save(folder: Path, texts: dict[str, str], card: dict[str, Any]) -> None:
    """Write the heads' texts and, last, the card that vouches for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for head in HEADS:
        (folder / f"{head}.txt").write_text(texts[head])
    full = {
        **card,
        "features": list(COLUMNS),
        "classes": list(CLASSES),
        "sha256": {head: sha256(texts[head]) for head in HEADS},
    }
    (folder / "card.json").write_text(json.dumps(full, indent=1, sort_keys=True) + "\n")
