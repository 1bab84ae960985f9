"""The default judge: a small network of our own, run in numpy, offline, on any machine.

The network names the pattern, together with the flagger, whose candidates for the region it never
reads: both opinions are pooled. What the user reads is rendered from the taxonomy with the region's
own numbers and source lines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from detector.errors import ModelError
from detector.evidence import Evidence
from detector.judge import Answers, Verdict, dense, feedback, network, tokens
from detector.patterns import CLASSES
from detector.taxonomy import NONE

SHIPPED: Final = Path(__file__).resolve().parent.parent / "models" / "embedded_judge.safetensors"
KIND: Final = "embedded-judge-2"
MOST_CANDIDATES: Final = 5
LEAST_TOLD: Final = 0.002  # of a class that the flagger does not name
POOL: Final[Mapping[str, float]] = {"judge": 0.6, "flagger": 0.6}


@dataclass(frozen=True)
class Model:
    """Weights (float32) and their card."""

    weights: Mapping[str, npt.NDArray[np.float32]]
    card: Mapping[str, Any]

    @property
    def vocabulary(self) -> int:
        """Rows of the piece embedding."""
        return int(self.weights["embed.weight"].shape[0])

    def probabilities(
        self, ids: npt.NDArray[np.int32], numbers: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float64]:
        """[n, classes], calibrated by the card's temperature."""
        raw = network.logits(
            self.weights,
            ids,
            numbers,
            layers=int(self.card["layers"]),
            heads=int(self.card["heads"]),
        )
        return softmax(raw / float(self.card["temperature"]))


class EmbeddedJudge:
    """Judges with the model at ``path`` (safetensors, its card beside it), or the shipped one."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.model = load_model(Path(path) if path is not None else SHIPPED)
        self.name = f"embedded {str(self.model.card['sha256'])[:12]}"

    def judge(self, evidence: Sequence[Evidence]) -> Answers:
        """See ``Judge``. Patterns that the trace cannot show get no probability."""
        if not evidence:
            return Answers(())
        own = self.model.probabilities(*features(evidence, self.model.vocabulary))
        probability = pooled(own, told(evidence), visible(evidence), self.model.card["pool"])
        pairs = zip(evidence, probability, strict=True)
        return Answers(tuple(_verdict(one, row) for one, row in pairs))


def features(
    evidence: Sequence[Evidence], vocabulary: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """What the network reads: piece ids [n, lines, pieces] and numbers [n, m]."""
    texts = [text_of(one) for one in evidence]
    return tokens.encode_all(texts, vocabulary), dense.vectors(evidence)


def text_of(evidence: Evidence) -> str:
    """The text that the network learns from and judges by."""
    return evidence.text(tokens.BUDGET, user_names=False)


def visible(evidence: Sequence[Evidence]) -> npt.NDArray[np.bool_]:
    """[n, classes]: which classes each trace can show; "none" always."""
    return np.array([[c == NONE or c in one.visible for c in CLASSES] for one in evidence])


def told(evidence: Sequence[Evidence]) -> npt.NDArray[np.float64]:
    """[n, classes]: what the flagger holds of each region; zeros where it names no candidate."""
    found = np.zeros((len(evidence), len(CLASSES)))
    for row, one in zip(found, evidence, strict=True):
        for name, probability in one.region.candidates:
            row[CLASSES.index(name)] = probability
    return found


def pooled(
    own: npt.NDArray[np.float64],
    flagger: npt.NDArray[np.float64],
    shown: npt.NDArray[np.bool_],
    weight: Mapping[str, float],
) -> npt.NDArray[np.float64]:
    """Log-linear pool of two opinions [n, classes], among the classes shown; the judge's own where
    the flagger has none (Genest and Zidek 1986, "Combining probability distributions")."""
    flagger = np.maximum(flagger, LEAST_TOLD * flagger.any(axis=1, keepdims=True))
    silent = ~flagger.any(axis=1, keepdims=True)
    mine = np.where(silent, 1.0, weight["judge"]) * np.log(np.maximum(own, 1e-9))
    other = weight["flagger"] * np.log(np.where(silent, 1.0, flagger))
    return softmax(np.where(shown, mine + other, -np.inf))


def softmax(raw: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Rows of logits as probabilities."""
    shifted = np.exp(raw.astype(np.float64) - raw.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), np.float64)


def _verdict(evidence: Evidence, probability: npt.NDArray[np.float64]) -> Verdict:
    order = np.argsort(-probability, kind="stable")[:MOST_CANDIDATES]
    candidates = tuple((CLASSES[i], float(probability[i])) for i in order if probability[i] > 0)
    pattern, confidence = candidates[0]
    return feedback.verdict(evidence, pattern, confidence, candidates)


# -- files -----------------------------------------------------------------------------------------


def card_path(path: Path) -> Path:
    """The card that belongs to a model file."""
    return path.with_suffix(".json")


def load_model(path: Path) -> Model:
    """Read a model and its card. Raises ModelError when either is missing or they do not match."""
    try:
        data, card = path.read_bytes(), json.loads(card_path(path).read_text("utf-8"))
    except OSError as error:
        raise ModelError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise ModelError(f"{card_path(path)}: not a model card: {error}") from error
    _check_card(path, card, data)
    try:
        weights = {name: array.astype(np.float32) for name, array in load(data).items()}
    except SafetensorError as error:
        raise ModelError(f"{path}: not a safetensors file: {error}") from error
    _check_shapes(path, card, weights)
    return Model(weights, card)


def expected(vocabulary: int) -> dict[str, object]:
    """What a card must say for this version to read its model."""
    return {
        "kind": KIND,
        "classes": list(CLASSES),
        "numbers": list(dense.NAMES),
        "tokens": {
            "rule": tokens.RULE,
            "vocabulary": vocabulary,
            "lines": tokens.LINES,
            "pieces": tokens.PIECES,
            "budget": tokens.BUDGET,
        },
    }


def _check_card(path: Path, card: object, data: bytes) -> None:
    place = card_path(path)
    if not isinstance(card, dict) or not isinstance(card.get("tokens"), dict):
        raise ModelError(f"{place}: not a model card")
    for key, value in expected(card["tokens"].get("vocabulary")).items():
        if card.get(key) != value:
            raise ModelError(f"{place}: {key} does not match this version; train the judge again")
    if card.get("sha256") != hashlib.sha256(data).hexdigest():
        raise ModelError(f"{path}: not the file its card describes (sha256 differs)")
    for key in ("layers", "heads", "temperature"):
        value = card.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ModelError(f"{place}: {key} must be a number above zero")
    if not is_pool(card.get("pool")):
        raise ModelError(f"{place}: pool must hold the weights of {' and '.join(POOL)}")


def is_pool(weight: object) -> bool:
    """Whether these are weights of both opinions, neither below zero nor both zero."""
    if not isinstance(weight, Mapping) or weight.keys() != POOL.keys():
        return False
    values = list(weight.values())
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return numbers and min(values) >= 0 and 0 < sum(values) < np.inf


def _check_shapes(path: Path, card: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    wanted = {
        "embed.weight": card["tokens"]["vocabulary"],
        "out.bias": len(CLASSES),
        "dense.mean": len(dense.NAMES),
        "dense.scale": len(dense.NAMES),
    }
    for name, rows in wanted.items():
        if name not in weights or weights[name].shape[0] != rows:
            raise ModelError(f"{path}: {name} does not have the {rows} rows its card promises")
