"""Other ways to score windows, behind the flagger's contract: what the shipped model has to beat.

Each is ``fit(frame, seed, **settings) -> Flagger`` over a table of windows. They are trained and
measured in ``detector.evaluate`` alone and do not ship. A flagger gets all windows of one trace at
a time, in order, which those that look at neighbors rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from detector.flagger import Flagger

if TYPE_CHECKING:
    import pandas as pd


class Fit(Protocol):
    """How a baseline is trained; ``settings`` are keywords of its own."""

    def __call__(self, frame: pd.DataFrame, seed: int, **settings: Any) -> Flagger: ...


@dataclass(frozen=True)
class Range:
    """Values of a setting that may be tried: integers where both ends are."""

    low: float
    high: float
    log: bool = False


Choice = Range | tuple[Any, ...]
Space = Mapping[str, Choice]

_LEARNING: Final[Space] = {"epochs": Range(4, 24), "rate": Range(3e-4, 5e-3, log=True)}

# name -> module, function, and what may be tuned. Unsupervised: no label is read. Weak: one label
# for a whole trace. Untrained: nothing is read but the window's own features.
_WHERE: Final[dict[str, tuple[str, str, Space]]] = {
    "constant": ("untrained", "fit_constant", {}),
    "largest saving": ("untrained", "fit_largest_saving", {}),
    "rules": ("untrained", "fit_rules", {}),
    "isolation forest": (
        "unsupervised",
        "fit_forest",
        {"trees": Range(50, 300), "samples": Range(64, 2048, log=True), "share": Range(0.1, 1.0)},
    ),
    "autoencoder": (
        "unsupervised",
        "fit_autoencoder",
        {**_LEARNING, "hidden": Range(32, 256, log=True), "code": Range(4, 64, log=True)},
    ),
    "multiple instances": (
        "instances",
        "fit",
        {**_LEARNING, "hidden": Range(16, 128, log=True), "dropout": Range(0.0, 0.5)},
    ),
    "convolution": (
        "convolution",
        "fit",
        {
            **_LEARNING,
            "width": Range(16, 128, log=True),
            "layers": Range(1, 4),
            "dropout": Range(0.0, 0.5),
            "unknown_weight": (0.0, 0.03, 0.1, 0.3, 1.0),
        },
    ),
}
NAMES: Final = tuple(_WHERE)


def baseline(name: str) -> Fit:
    """The way to train a baseline. Raises KeyError."""
    module, function, _ = _WHERE[name]
    fit: Fit = getattr(import_module(f"detector.lab.baselines.{module}"), function)
    return fit


def space(name: str) -> Space:
    """What may be tuned of a baseline; nothing where nothing is learned. Raises KeyError."""
    return _WHERE[name][2]
