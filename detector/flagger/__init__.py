"""Windows' matrix -> scores in [0, 1]; high means suspicious, for every flagger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Scores:
    """One row per window.

    ``cpu`` and ``gpu``, float32[n]: the probability that the host delays the device there, and that
    the device does needless or slow work there.
    """

    cpu: Float32
    gpu: Float32


class Flagger(Protocol):
    """What every detector and every baseline offers."""

    name: str
    threshold: dict[str, float]  # by side: the score from which a window is suspicious

    def score(self, matrix: Float32) -> Scores:
        """Score windows; ``matrix`` is float32[n, len(features.COLUMNS)]."""
        ...

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """For each window the names of the features that added most to its score."""
        ...
