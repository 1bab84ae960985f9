"""Findings of every contender on the traces that were held out, in one reading of each.

``PRODUCT`` is the whole product. ``CONSTANT`` says the same of every trace. All
others are flaggers alone: the pattern of a flagged window is the likeliest class of its side, and a
pattern's savings are what ``detector.cost`` claims for it in its windows; claims are disjoint, the
largest first, as in the product's own findings. There is no judge in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from detector import cost, kineto
from detector.activity import Activity
from detector.findings import Settings
from detector.flagger.lightgbm import LightGBMFlagger
from detector.intervals import EMPTY, Intervals
from detector.judge.embedded import EmbeddedJudge
from detector.lab.baselines.untrained import LEAST, claims_of
from detector.lab.comparison import product
from detector.lab.comparison.scored import Scored
from detector.lab.scoring import Prediction, predictions_of
from detector.lab.training import SIDES, matrix
from detector.patterns import CLASSES
from detector.pipeline import detect
from detector.region import OF_SIDE
from detector.trace import NS_PER_US
from detector.window import ByStep, Judged, judge_time

if TYPE_CHECKING:
    import pandas as pd

PRODUCT: Final = "product"
CLAIMS: Final = "claims only"
MIN_SHARE: Final = 0.01  # of the analyzed time; the least severity


@dataclass(frozen=True)
class Suspicion:
    """Where a flagger names a pattern: windows' edges in ns, and its highest score there."""

    pattern: str
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    confidence: float

    @property
    def spans(self) -> Intervals:
        """The windows as intervals."""
        return Intervals.union(self.start, self.end)


@dataclass(frozen=True)
class Job:
    """A trace to scan: its file, the folder of the models that never saw its program (None:
    without the product), and by contender what it suspects there."""

    trace: str
    file: Path
    models: Path | None
    suspicions: Mapping[str, Sequence[Suspicion]]


def suspicions(scored: Scored) -> dict[str, list[Suspicion]]:
    """By trace, what a flagger suspects in it; every trace of the frame has a row."""
    frame, found = scored.frame, {}
    start, end = (_ns(frame[key]) for key in ("start_us", "end_us"))
    for trace, rows in frame.groupby("trace", sort=False).indices.items():
        mine: list[Suspicion] = []
        for side in SIDES:
            at = rows[scored.flagged[side][rows]]
            named = np.where(OF_SIDE[side], scored.scores.classes[at], -1).argmax(axis=1)
            for k in np.unique(named):
                where = at[named == k]
                sure = float(scored.side(side)[where].max())
                mine.append(Suspicion(CLASSES[k], start[where], end[where], sure))
        found[str(trace)] = mine
    return found


def claims(frame: pd.DataFrame) -> dict[str, list[Suspicion]]:
    """By trace, the windows in which each pattern claims anything worth a finding: no flagger."""
    claimed, found = claims_of(matrix(frame)), {}
    start, end = (_ns(frame[key]) for key in ("start_us", "end_us"))
    for trace, rows in frame.groupby("trace", sort=False).indices.items():
        mine = []
        for k in np.flatnonzero(claimed[rows].max(axis=0) >= LEAST):
            where = rows[claimed[rows, k] >= LEAST]
            sure = float(claimed[where, k].max())
            mine.append(Suspicion(CLASSES[k], start[where], end[where], sure))
        found[str(trace)] = mine
    return found


def _ns(times_us: Any) -> npt.NDArray[np.int64]:
    return np.round(np.asarray(times_us, np.float64) * NS_PER_US).astype(np.int64)


# -- scanning --------------------------------------------------------------------------------------


def scan_one(job: Job) -> dict[str, list[Prediction]]:
    """Raises TraceError where the trace cannot be read."""
    trace = kineto.read(job.file)
    activity, judged = Activity(trace), judge_time(trace)
    found = {name: _priced(activity, judged, job.trace, of) for name, of in job.suspicions.items()}
    if job.models is not None:
        found[PRODUCT] = predictions_of(detect(trace, **_stages(job.models)), job.trace)
    return found


@cache
def _stages(models: Path) -> dict[str, Any]:
    """The parts of a scan as they are by default, with the models of a folder; once a process."""
    return {
        "windower": ByStep(),
        "flagger": LightGBMFlagger(str(models / product.FLAGGER)),
        "judge": EmbeddedJudge(models / product.JUDGE),
        "settings": Settings(),
    }


@dataclass(frozen=True)
class _Priced:
    """A suspicion with what its pattern claims there."""

    suspicion: Suspicion
    claim: cost.Claim


def _priced(
    activity: Activity, judged: Judged, name: str, found: Iterable[Suspicion]
) -> list[Prediction]:
    """Findings with disjoint claims, the largest first; what claims under 1 % is none."""
    wall = max(1, judged.end - judged.start)
    priced = [_Priced(s, cost.claim(activity, s.pattern).within(s.spans)) for s in found]
    predictions, taken = [], EMPTY
    for one in sorted(priced, key=lambda p: -p.claim.recoverable_ns):
        claim = one.claim.without(taken)
        if claim.recoverable_ns < MIN_SHARE * wall:
            continue
        taken = taken | claim.intervals
        predictions.append(_prediction(name, one.suspicion, claim))
    return predictions


def _prediction(name: str, suspicion: Suspicion, claim: cost.Claim) -> Prediction:
    """In the windows that pay for it."""
    paid = claim.intervals.covered(suspicion.start, suspicion.end) > 0
    spans = Intervals.union(suspicion.start[paid], suspicion.end[paid])
    edges = zip((spans.start / NS_PER_US).tolist(), (spans.end / NS_PER_US).tolist(), strict=True)
    savings = claim.recoverable_ns / NS_PER_US
    return Prediction(name, suspicion.pattern, tuple(edges), suspicion.confidence, savings)
