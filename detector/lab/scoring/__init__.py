"""The one way in which findings are scored, ours and those of any other tool.

``read_truths`` reads the labels of a built benchmark, ``predictions_of`` a report of ours and
``read_predictions`` files of any tool; ``finding_figures`` and ``paired_figures`` say how good the
findings are, ``tables`` says it as text. Nothing here is part of a scan.
"""

from detector.lab.scoring.files import read_predictions
from detector.lab.scoring.findings import (
    FindingFigures,
    figures_by_origin,
    finding_differences,
    finding_figures,
    masked_and_unmasked,
)
from detector.lab.scoring.paired import PairedFigures, paired_figures
from detector.lab.scoring.prediction import (
    Constant,
    Prediction,
    Predictions,
    constant,
    joined,
    predictions_of,
)
from detector.lab.scoring.truth import Problem, Truth, read_truths

__all__ = [
    "Constant",
    "FindingFigures",
    "PairedFigures",
    "Prediction",
    "Predictions",
    "Problem",
    "Truth",
    "constant",
    "figures_by_origin",
    "finding_differences",
    "finding_figures",
    "joined",
    "masked_and_unmasked",
    "paired_figures",
    "predictions_of",
    "read_predictions",
    "read_truths",
]
