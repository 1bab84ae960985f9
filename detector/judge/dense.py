"""Evidence -> a vector of numbers in travelling units, beside the text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from detector.evidence import Evidence
from detector.evidence.measures import MEASURES
from detector.patterns import IDS

_PLACE: Final = ("log10_us", "steps", "of_judged", "device_side", "cpu_run", "rocm")
NAMES: Final[tuple[str, ...]] = (
    *(spec.key for spec in MEASURES),
    *(f"{spec.key}_excess" for spec in MEASURES),
    *_PLACE,
    *(f"claim_{pattern}" for pattern in IDS),
)
_SHARE: Final = np.array([spec.unit == "share" for spec in MEASURES])


def vector(evidence: Evidence) -> npt.NDArray[np.float32]:
    """[len(NAMES)]: each measure, its excess over the rest, the place of the region, and
    the root of the share of it that each pattern's fix could give back."""
    value = np.array([row.value for row in evidence.rows])
    rest = np.array([row.value if row.rest is None else row.rest for row in evidence.rows])
    value, rest = _scaled(value), _scaled(rest)
    place = evidence.place
    where = [
        np.log10(max(place.dur_us, 1e-3)),
        min(place.dur_us / place.step_us, 10.0) if place.step_us > 0 else 0.0,
        place.dur_us / max(place.judged_us, 1e-3),
        float(evidence.region.side == "gpu"),
        float(evidence.vendor == "cpu"),
        float(evidence.vendor == "rocm"),
    ]
    claims = [math.sqrt(evidence.claims.get(pattern, 0.0)) for pattern in IDS]
    return np.concatenate([value, value - rest, where, claims]).astype(np.float32)


def vectors(evidence: Sequence[Evidence]) -> npt.NDArray[np.float32]:
    """[n, len(NAMES)]."""
    return np.stack([vector(one) for one in evidence])


def _scaled(value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Shares as they are, anything else as the logarithm of one more."""
    finite = np.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)
    return np.where(_SHARE, finite, np.log1p(np.maximum(finite, 0.0)))
