"""The judge on the regions that a flagger hands it, neither having seen the test's traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from detector import kineto
from detector.activity import Activity
from detector.comparison.regions import LOOSE, Named, class_figures
from detector.comparison.run import EVERYTHING, TESTS, Trees, labels_of, scored_by, windows_of
from detector.comparison.scored import Run, Scored, matches
from detector.errors import DetectorError
from detector.evidence import Evidence, gather
from detector.experiment.judge import JudgeExperiment
from detector.experiment.tables import table, written
from detector.flagger.training import SIDES, Training, limits_of
from detector.judge import embedded
from detector.metrics import Estimate, by_cluster
from detector.region import Region, candidates
from detector.taxonomy import CLASSES, NONE, Side
from detector.trace import NS_PER_US
from detector.window import judge_time

if TYPE_CHECKING:
    import pandas as pd

Probability = npt.NDArray[np.float64]  # [regions, classes]

OPINIONS: Final = ("flagger alone", "judge alone", "pooled")
HALF: Final = 0.5  # of a told region: the least that another label must cover to count as right
GRID: Final = tuple(round(0.1 * i, 1) for i in range(11))
NO: Final = CLASSES.index(NONE)


@dataclass(frozen=True)
class Handed:
    """A told region, and what is labelled there: nothing for a false alarm."""

    trace: str
    side: str
    run: Run
    main: int = NO
    right: frozenset[int] = frozenset({NO})


@dataclass(frozen=True, eq=False)
class Told:
    """Regions with their evidence and both opinions of each."""

    regions: list[Handed]
    judge: Probability
    flagger: Probability
    shown: npt.NDArray[np.bool_]

    def opinion(self, name: str, pool: dict[str, float]) -> Probability:
        """Probabilities by one of ``OPINIONS``; the flagger alone never says "none"."""
        if name == "flagger alone":
            return np.where(np.arange(len(CLASSES)) == NO, 0.0, self.flagger)
        if name == "judge alone":
            return self.judge * self.shown
        return embedded.pooled(self.judge, self.flagger, self.shown, pool)


@dataclass(frozen=True)
class JudgedRegions(JudgeExperiment):
    """``flagger``: how the flagger that hands the regions is trained; ``tests``: names of
    ``comparison.run.TESTS``."""

    flagger: Training = field(default_factory=Training)
    tests: tuple[str, ...] = ("in distribution", "unseen device", "unseen workload", "natural")

    def evaluate(self, data: Path, out: Path) -> list[str]:
        """Accuracy, top 3 and macro F1 on told regions that fit a labelled one (IoU 0.3), and how
        many false alarms are told "none"; by flagger, judge, and both.

        The pool's weights are the experiment's. Those that would suit the validation part best are
        printed, never used.
        """
        windows, parts = windows_of(data)
        files = dict(table(data, "traces", EVERYTHING)[["trace", "file"]].to_numpy())
        texts, found, notes = table(data, "evidence", EVERYTHING), {}, []
        for name, scheme, part in TESTS:
            if name not in self.tests or scheme not in parts:
                continue
            split = windows["trace"].map(parts[scheme])
            if not {"train", part} <= set(split):
                continue
            learnt = texts[texts["trace"].map(parts[scheme]) == "train"]
            valid, test = self._told(data, files, windows, split, part, learnt)
            for key, figure in _figures(test, dict(self.pool)).items():
                found[f"{name}: {key}"] = figure
            notes.append(f"{name}: on the validation part the best pool is {fitted(valid)}")
        if not found:
            raise DetectorError(f"{data}: none of the tests {', '.join(self.tests)} has traces")
        lines = written(out / "judged_regions.json", found)
        lines.extend(notes)
        return lines

    def _told(
        self,
        data: Path,
        files: dict[str, str],
        windows: pd.DataFrame,
        split: pd.Series[str],
        part: str,
        learnt: pd.DataFrame,
    ) -> tuple[Told, Told]:
        """The regions of the validation part and of the test, by models of the training part."""
        flagger, labels = Trees(windows[split == "train"], self.flagger), labels_of(data)
        valid, test = (
            scored_by(flagger, windows[split == p], labels) for p in ("validation", part)
        )
        limits, model = limits_of(windows[split == "train"], self.flagger), self.model(learnt)
        return told(valid, limits, model, data, files), told(test, limits, model, data, files)


def told(
    scored: Scored,
    limits: dict[str, float],
    model: embedded.Model,
    data: Path,
    files: dict[str, str],
) -> Told:
    """What both say of the regions that were handed on and can be held against labels."""
    regions = sorted(handed(scored, limits), key=lambda r: r.trace)
    evidence = list(_evidence(scored, regions, data, files))
    if not evidence:
        nothing = np.zeros((0, len(CLASSES)))
        return Told([], nothing, nothing, nothing > 0)
    own = model.probabilities(*embedded.features(evidence, model.vocabulary))
    return Told(regions, own, embedded.told(evidence), embedded.visible(evidence))


def handed(scored: Scored, limits: dict[str, float]) -> Iterator[Handed]:
    """Told regions that fit a labelled one, once for each, and those where nothing is labelled."""
    trace = scored.frame["trace"].to_numpy()
    columns = [*SIDES, *(f"unknown_{side}" for side in SIDES)]
    healthy = (scored.frame[columns].sum(axis=1) == 0).to_numpy()
    for side in SIDES:
        runs = scored.told_runs(side, limits[side])
        for true, best, iou in matches(scored.true_runs(side), runs, trace):
            if best is not None and iou >= LOOSE and true.pattern >= 0:
                first, last = max(true.first, best.first), min(true.last, best.last)
                also = {k for k, s in scored.shares(side, first, last).items() if s >= HALF}
                right = frozenset({true.pattern, *also})
                yield Handed(str(trace[best.first]), side, best, true.pattern, right)
        for run in runs:
            if healthy[run.first : run.last + 1].all():
                yield Handed(str(trace[run.first]), side, run)


def _evidence(
    scored: Scored, regions: Sequence[Handed], data: Path, files: dict[str, str]
) -> Iterator[Evidence]:
    """Of regions sorted by trace: each trace is read once."""
    name, activity, judged = "", None, None
    for one in regions:
        if one.trace != name or activity is None or judged is None:
            trace = kineto.read(data / files[one.trace])
            name, activity, judged = one.trace, Activity(trace), judge_time(trace)
        yield gather(activity, judged, _region(scored, one))


def _region(scored: Scored, one: Handed) -> Region:
    """As a scan would hand it on, its edges not sharpened."""
    rows = slice(one.run.first, one.run.last + 1)
    start, end = (round(us * NS_PER_US) for us in (one.run.start, one.run.end))
    side: Side = "cpu" if one.side == "cpu" else "gpu"
    score = float(scored.side(side)[rows].mean())
    named = candidates(scored.scores.classes[rows].mean(axis=0), side, score)
    return Region(start, end, 1.0, side, candidates=named)


# -- figures ---------------------------------------------------------------------------------------


def _figures(told: Told, pool: dict[str, float]) -> dict[str, Estimate]:
    found = {}
    alarm = np.array([r.main == NO for r in told.regions], np.bool_)
    trace = np.array([r.trace for r in told.regions], object)
    for name in OPINIONS:
        order = np.argsort(-told.opinion(name, pool), axis=1, kind="stable")[:, :3]
        pairs = zip(told.regions, order.tolist(), strict=True)
        named = [Named(r.trace, r.main, r.right, tuple(o)) for r, o in pairs if r.main != NO]
        of_class = class_figures(named)
        for key in ("class accuracy", "class top 3", "class macro F1"):
            found[f"{key}, {name} ({len(named)})"] = of_class[key]
        silent, where = order[alarm, 0] == NO, trace[alarm]
        found[f'false alarms told "none", {name} ({len(where)})'] = _share(silent, where)
    return found


def _share(hit: npt.NDArray[np.bool_], trace: npt.NDArray[np.object_]) -> Estimate:
    if not len(hit):
        return Estimate(*[float("nan")] * 3)
    return by_cluster(lambda i: float(hit[i].mean()), trace, rounds=300)


def fitted(told: Told) -> str:
    """The pool that makes the labels likeliest, each class counting the same, in words."""
    if not told.regions:
        return "not known: no region fits"
    main = np.array([r.main for r in told.regions])
    weight = 1 / np.bincount(main)[main]
    right = np.array([[k in r.right for k in range(len(CLASSES))] for r in told.regions])

    def loss(pool: dict[str, float]) -> float:
        likely = (told.opinion("pooled", pool) * right).sum(axis=1)
        return float(-(np.log(np.maximum(likely, 1e-9)) * weight).sum() / weight.sum())

    pools: Iterable[dict[str, float]] = (
        {"judge": a, "flagger": b} for a in GRID for b in GRID if a + b > 0
    )
    best = min(pools, key=loss)
    return ", ".join(f"{name} {weight}" for name, weight in best.items())
