"""Other ways to score windows, behind the flagger's contract: what the shipped model has to beat.

Each is ``fit(frame, seed) -> Flagger`` over a table of windows. They are trained and measured in
``detector.evaluate`` alone and do not ship. A flagger gets all windows of one trace at a time, in
order, which those that look at neighbours rely on.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from detector.flagger import Flagger

if TYPE_CHECKING:
    import pandas as pd

Fit = Callable[["pd.DataFrame", int], Flagger]

# name -> module and function. Unsupervised: no label is read. Weak: one label for a whole trace.
_WHERE: Final = {
    "rules": ("rules", "fit"),
    "k-means": ("unsupervised", "fit_kmeans"),
    "isolation forest": ("unsupervised", "fit_forest"),
    "autoencoder": ("unsupervised", "fit_autoencoder"),
    "multiple instances": ("instances", "fit"),
    "convolution": ("convolution", "fit"),
}
NAMES: Final = tuple(_WHERE)
BASELINES: Final = ("rules", "k-means", "isolation forest", "autoencoder")


def rival(name: str) -> Fit:
    """The way to train a rival. Raises KeyError."""
    module, function = _WHERE[name]
    fit: Fit = getattr(import_module(f"detector.flagger.rivals.{module}"), function)
    return fit
