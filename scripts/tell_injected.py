"""Can a model tell traces with an injected fault from untouched ones where there is no fault?

    python scripts/tell_injected.py FOLDER          # a built benchmark

It compares windows of injected traces that no fault covers with those of the same bases as they
are, written by the same writer. A model that tells them apart sees artefacts of the injection.
Trained on four fifths of the bases, measured on the others: an AUC-ROC of 0.5 is what should come
out. Only the features of the window itself are used: its context holds the fault, as it should.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from detector.comparison.benchmark import windows_of
from detector.features import COLUMNS
from detector.metrics import auc

FOLDS, ROUNDS, SHOWN = 5, 60, 8
OWN = [column for column in COLUMNS if "@" not in column]


def main(folder: Path) -> None:
    """Print the AUC-ROC, pooled and within each base, and what the model looked at."""
    import lightgbm

    windows, _ = windows_of(folder)
    free = windows[(windows["origin"] == "injected") & (windows["cpu"] + windows["gpu"] == 0)]
    free = free.reset_index(drop=True)
    truth = (free["quality"] == "bad").to_numpy()
    rows = free[OWN].to_numpy(np.float32)
    bases = np.random.default_rng(0).permutation(sorted(free["pair"].unique()))
    score, gain = np.zeros(len(free)), np.zeros(len(OWN))
    for held in np.array_split(bases, FOLDS):
        test = free["pair"].isin(held).to_numpy()
        mine = truth[~test]
        weight = np.where(mine, 1 / max(1, mine.sum()), 1 / max(1, (~mine).sum()))
        data = lightgbm.Dataset(rows[~test], mine, weight=weight * len(mine))
        settings = {"objective": "binary", "num_leaves": 15, "num_threads": 1, "verbose": -1}
        model = lightgbm.train(settings, data, ROUNDS)
        score[test] = model.predict(rows[test])
        gain += model.feature_importance("gain")
    within = [auc(truth[i], score[i]) for i in free.groupby("pair").indices.values()]
    low, middle, high = np.nanquantile(within, [0.25, 0.5, 0.75])
    print(f"{len(free)} windows without a fault, {len(bases)} bases, {truth.mean():.0%} injected")
    print(f"AUC-ROC pooled {auc(truth, score):.3f}")
    print(f"AUC-ROC within a base: median {middle:.3f}, quartiles {low:.3f} and {high:.3f}")
    top = np.argsort(-gain)[:SHOWN]
    print("looked at " + ", ".join(f"{OWN[i]} {gain[i] / gain.sum():.0%}" for i in top))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
