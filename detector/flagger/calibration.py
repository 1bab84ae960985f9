"""Raw scores -> probabilities, by a piecewise linear curve from the model's card."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Curve = tuple[tuple[float, float], ...]  # (raw score, probability), rising in both

IDENTITY: Final[Curve] = ((0.0, 0.0), (1.0, 1.0))


def apply(curve: Curve, score: npt.ArrayLike) -> Float64:
    """The probability at each raw score; constant beyond the curve's ends."""
    x, y = np.array(curve).T
    return np.asarray(np.interp(np.asarray(score, np.float64), x, y), np.float64)


def checked(value: Any) -> Curve:
    """A curve from a card. Raises ValueError where it is none."""
    try:
        points = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError("no list of (score, probability)") from error
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 2:
        raise ValueError("no list of (score, probability)")
    if not ((points >= 0) & (points <= 1)).all():
        raise ValueError("a number outside [0, 1]")
    if not (np.diff(points, axis=0) > 0).all():
        raise ValueError("it does not rise")
    return tuple((float(x), float(y)) for x, y in points)
