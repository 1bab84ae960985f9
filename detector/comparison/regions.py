"""What is measured of the regions that a flagger tells: found or not, named rightly or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector.comparison.scored import Run, Scored, matches
from detector.flagger.training import SIDES
from detector.metrics import Estimate, by_cluster
from detector.region import OF_SIDE
from detector.taxonomy import CLASSES

LOOSE, TIGHT = 0.3, 0.5  # IoU
HALF: Final = 0.5  # of a span: the least that another label of it must cover to count as well
ROUNDS: Final = 300
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Named:
    """A labelled region that was found: its main pattern, all that count as right there, and the
    likeliest three that the flagger tells (of ``CLASSES``)."""

    trace: str
    main: int
    right: frozenset[int]
    told: tuple[int, ...]

    @property
    def truth(self) -> int:
        """The label that the told class is held against: itself where it is one of them."""
        return self.told[0] if self.told[0] in self.right else self.main


def region_figures(scored: Scored, limits: dict[str, float]) -> dict[str, Any]:
    """Recall and precision of regions, classes of the matched ones, alarms in healthy traces."""
    trace = scored.frame["trace"].to_numpy()
    true = {side: scored.true_runs(side) for side in SIDES}
    told = {side: scored.told_runs(side, limits[side]) for side in SIDES}
    found = [(s, *match) for s in SIDES for match in matches(true[s], told[s], trace)]
    met = [match for s in SIDES for match in matches(told[s], true[s], trace)]
    named = [
        name
        for side, run, best, iou in found
        if best is not None and iou >= LOOSE and (name := _named(scored, side, run, best))
    ]
    return {
        "regions": len(found),
        **_shares("recall", [(trace[run.first], iou) for _, run, _, iou in found]),
        **_shares("precision", [(trace[run.first], iou) for run, _, iou in met]),
        **_alarms(scored, [run for runs in told.values() for run in runs]),
        **class_figures(named),
        "confusion": confusion(named),
    }


def _shares(what: str, fits: Sequence[tuple[str, float]]) -> dict[str, Estimate]:
    """How many of these regions fit one of the other kind, for each limit of IoU."""
    trace = np.array([name for name, _ in fits], object)
    iou = np.array([value for _, value in fits])
    return {f"{what} {x}": _estimate(lambda i, x=x: _mean(iou[i] >= x), trace) for x in _LIMITS}  # type: ignore[misc]


_LIMITS: Final = (LOOSE, TIGHT)


def _alarms(scored: Scored, told: Sequence[Run]) -> dict[str, Any]:
    """Told regions in traces without a fault."""
    healthy = (scored.frame["quality"] == "good").to_numpy()
    names = scored.frame["trace"].to_numpy()
    traces = np.unique(names[healthy])
    count = Counter(names[run.first] for run in told)
    alarms = np.array([count[name] for name in traces], float)
    return {
        "alarms per healthy trace": _estimate(lambda i: _mean(alarms[i]), traces),
        "healthy traces": len(traces),
        "healthy traces without alarm": int((alarms == 0).sum()),
    }


# -- classes ---------------------------------------------------------------------------------------


def _named(scored: Scored, side: str, run: Run, best: Run) -> Named | None:
    """None where no label of that side is known."""
    if run.pattern < 0:
        return None
    shared = max(run.first, best.first), min(run.last, best.last)
    also = {k for k, share in scored.shares(side, *shared).items() if share >= HALF}
    right = frozenset({run.pattern, *also})
    return Named(scored.trace_of(run), run.pattern, right, _order(scored, side, best))


def _order(scored: Scored, side: str, told: Run) -> tuple[int, ...]:
    """The three likeliest patterns of its side, by the mean over a told region's windows."""
    mean = scored.scores.classes[told.first : told.last + 1].mean(axis=0)
    mean = np.where(OF_SIDE[side], mean, -1)
    return tuple(int(k) for k in np.argsort(-mean, kind="stable")[:3])


def class_figures(named: Sequence[Named]) -> dict[str, Any]:
    """Accuracy, top 3 and macro F1 of the classes; a told class counts as right where it is any
    label of that side over half of the shared span."""
    trace = np.array([n.trace for n in named], object)
    truth = np.array([n.truth for n in named], np.int64)
    told = np.array([n.told[0] for n in named], np.int64)
    near = np.array([bool(n.right.intersection(n.told)) for n in named])
    return {
        "matched": len(named),
        "right by another label": int((told != [n.main for n in named])[told == truth].sum())
        if named
        else 0,
        "class accuracy": _estimate(lambda i: _mean(told[i] == truth[i]), trace),
        "class top 3": _estimate(lambda i: _mean(near[i]), trace),
        "class macro F1": _estimate(lambda i: _macro_f1(truth[i], told[i]), trace),
    }


def confusion(named: Sequence[Named]) -> list[dict[str, Any]]:
    """How often which class was told of which, the most frequent first."""
    count = Counter((CLASSES[n.truth], CLASSES[n.told[0]]) for n in named)
    ranked = sorted(count.items(), key=lambda item: (-item[1], item[0]))
    return [{"true": true, "told": told, "count": n} for (true, told), n in ranked]


def _macro_f1(truth: Rows, told: Rows) -> float:
    """Mean F1 over the patterns that occur."""
    values = []
    for k in np.unique(truth):
        hit = int(((truth == k) & (told == k)).sum())
        values.append(2 * hit / (int((truth == k).sum()) + int((told == k).sum())))
    return _mean(np.array(values))


def _estimate(metric: Callable[[Rows], float], trace: npt.NDArray[Any]) -> Estimate:
    if not len(trace):
        return Estimate(*[float("nan")] * 3)
    return by_cluster(metric, trace, rounds=ROUNDS)


def _mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")
