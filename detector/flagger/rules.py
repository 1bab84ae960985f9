"""A baseline: thresholds that other tools publish, with the same interface as the model.

Each rule is a feature, the threshold from which its source calls it a problem, and the side it
accuses. A window's score is the worst rule's value against its threshold, 0.5 where they are
equal.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from detector.features import COLUMNS
from detector.flagger import Float32, Scores
from detector.taxonomy import Side

# (column, threshold, side, the pattern it names)
RULES: Final[tuple[tuple[str, float, Side, str], ...]] = (
    # The recommendations of the former TensorBoard plugin.
    ("loader@outer", 0.05, "cpu", "input-dataloader-sync"),
    ("comm_exposed@outer", 0.10, "gpu", "comm-exposed"),
    # TraceLens's system thresholds: idle, copies, exposed collectives, short kernels.
    ("idle_op", 0.15, "cpu", "host-launch-bound"),
    ("idle_python", 0.15, "cpu", "host-python-overhead"),
    ("idle_sync", 0.15, "cpu", "sync-explicit"),
    ("copy_exposed", 0.05, "cpu", "input-pageable-copy"),
    ("kernels_under_10us", 0.5, "cpu", "host-launch-bound"),
    # Holistic Trace Analysis: kernels that the host launched too late.
    ("starved", 0.5, "cpu", "host-launch-bound"),
    # torch's former pattern matcher; where it wants any occurrence, a small share stands for it.
    ("loop", 0.1, "cpu", "host-loop-indexing"),
    ("ops_factory", 0.1, "cpu", "input-cpu-tensor-to-device"),
    ("matrix_fp32", 0.5, "gpu", "compute-fp32-matmul"),
    ("matrix_misaligned", 0.1, "gpu", "compute-misaligned-gemm"),
    ("optimizer_single", 0.1, "gpu", "compute-single-tensor-optimizer"),
    ("zero_grad_fills", 0.05, "gpu", "memory-zero-grad-fill"),
    ("norm_after_bias", 0.1, "gpu", "compute-conv-bias-batchnorm"),
    # Public advice of vendors' expert rules: allocation in steady state.
    ("alloc_share", 0.01, "cpu", "memory-alloc-churn"),
)


class RuleFlagger:
    """Scores windows by ``RULES``; nothing is learned."""

    name = "rules"

    def __init__(self) -> None:
        self.threshold: dict[str, float] = {"cpu": 0.5, "gpu": 0.5}

    def _strength(self, matrix: Float32) -> Float32:
        """float32[windows, rules] in [0, 1): 0.5 at the threshold, 0 where undefined."""
        columns = [COLUMNS.index(column) for column, *_ in RULES]
        value = np.nan_to_num(np.maximum(matrix[:, columns], 0))
        limit = np.array([threshold for _, threshold, *_ in RULES], np.float32)
        return np.asarray(value / (value + limit), np.float32)

    def score(self, matrix: Float32) -> Scores:
        """See ``Flagger``."""
        strength = self._strength(matrix)
        sides: dict[str, Float32] = {}
        for side in ("cpu", "gpu"):
            mine = [i for i, rule in enumerate(RULES) if rule[2] == side]
            sides[side] = strength[:, mine].max(axis=1, initial=0.0)
        return Scores(sides["cpu"], sides["gpu"])

    def top_features(self, matrix: Float32, side: str) -> list[tuple[str, ...]]:
        """The columns of the rules that fired, strongest first."""
        strength = self._strength(matrix)
        mine = [i for i, rule in enumerate(RULES) if rule[2] == side]
        return [
            tuple(RULES[i][0] for i in sorted(mine, key=lambda i: -row[i]) if row[i] >= 0.5)[:3]
            for row in strength
        ]
