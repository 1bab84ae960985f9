"""Are injected faults like real ones? ``python -m dataset.realism FOLDER [--workers 2]``

For each pattern that was recorded: a model is asked to tell windows of recorded faults from windows
of injected ones, by the features of the window itself. An AUC-ROC of 0.5 says that it cannot.

- *same programs*: the fault of each recorded trace is put into its healthy twin, so program,
  device, sizes and profiler settings are equal. What is left: two runs differ, the strength of the
  fault differs, and injection leaves artifacts.
- *floor*: the same question about windows without a fault, of the faulty recorded traces and of
  their healthy twins: two real runs, nothing injected. What two runs of one program differ by.
- *this benchmark*: its injected traces as they are. Recorded ones ran on a CPU, nearly all bases on
  a GPU, so a model need only see the device; this column says nothing about injection alone.
- *signature*: whether the injected faults of this benchmark move the features of their base the way
  the recorded ones move those of their twin (`dataset.signature`), as a cosine, and which place the
  same pattern takes among all injected ones by it.
- *where no fault is*: windows of injected traces against those of their untouched bases, and of
  these bases against healthy recorded traces.

Claims of this project's cost model are not among the features. A model is trained on four fifths of
the programs (or bases) and asked about the others; intervals are of a bootstrap over these. The
table goes into the benchmark's card.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from dataset import card
from dataset.bases import Found
from dataset.signature import Float64, alike, place, signatures
from dataset.tables import tables
from dataset.units import OWN as OWN_LICENCE
from dataset.units import Injected, LeftOut
from detector.cli.output import complain
from detector.errors import DetectorError
from detector.features import COLUMNS
from detector.lab.metrics import Estimate, auc, by_cluster
from detector.lab.tables import table

if TYPE_CHECKING:
    import pandas as pd

# Of the window itself, not of its surroundings, and no claim of this project's cost model.
OWN: Final = tuple(c for c in COLUMNS if "@" not in c and not c.startswith("claim_"))
ABOUT: Final = ("trace", "origin", "workload", "pair", "quality", "pattern", "cpu", "gpu")
PARTS: Final = ("train", "validation", "test")
FOLDS: Final = 5
LEAST: Final = 20  # windows of either kind; fewer say nothing
PROGRAMS: Final = 3  # as few are no sample of programs
SHOWN: Final = 3  # features that differ most
SETTINGS: Final = {
    "objective": "binary",
    "num_leaves": 7,
    "min_data_in_leaf": 5,
    "num_threads": 1,
    "deterministic": True,
    "seed": 0,
    "verbose": -1,
}
ROUNDS: Final = 60
NOTHING: Final = np.full(len(OWN), np.nan)  # the signature of a pattern that is not there
UNKNOWN: Final = Estimate(float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Likeness:
    """How like injected faults of one pattern are to recorded ones. Pairs: recorded, injected."""

    pattern: str
    programs: int
    traces: tuple[int, int]
    windows: tuple[int, int]
    cost: tuple[float, float]  # median share of an acting step that the fault costs
    same: Estimate  # AUC-ROC
    floor: Estimate
    benchmark: Estimate
    cosine: float
    place: tuple[int, int]
    differ: tuple[tuple[str, float], ...]  # features and their Kolmogorov-Smirnov distance


# -- telling two kinds of windows apart ------------------------------------------------------------


def separation(first: pd.DataFrame, second: pd.DataFrame, cluster: str) -> Estimate:
    """AUC-ROC of a model that tells rows of the second kind from rows of the first, on clusters
    that it was not trained on. Undefined (NaN) where there are too few rows or clusters."""
    import pandas as pd

    if min(len(first), len(second)) < LEAST:
        return UNKNOWN
    both = pd.concat([first, second], ignore_index=True)
    truth = np.arange(len(both)) >= len(first)
    names = both[cluster].to_numpy(object)
    if len(set(names)) < PROGRAMS:
        return UNKNOWN
    score = _out_of_fold(both[list(OWN)].to_numpy(np.float32), truth, names)
    known = np.isfinite(score)
    truth, score, names = truth[known], score[known], names[known]
    return by_cluster(lambda rows: auc(truth[rows], score[rows]), names)


def _out_of_fold(
    rows: npt.NDArray[np.float32], truth: npt.NDArray[np.bool_], names: npt.NDArray[np.object_]
) -> npt.NDArray[np.float64]:
    """Scores by models that never saw the row's cluster, both kinds weighing the same; NaN where
    the other clusters have but one kind."""
    import lightgbm

    score = np.full(len(truth), np.nan)
    clusters = np.random.default_rng(0).permutation(sorted(set(names)))
    for fold in np.array_split(clusters, min(FOLDS, len(clusters))):
        out = np.isin(names, fold)
        mine = truth[~out]
        if mine.all() or not mine.any():
            continue
        weight = np.where(mine, (~mine).sum(), mine.sum()) / len(mine)
        data = lightgbm.Dataset(rows[~out], mine, weight=weight)
        score[out] = lightgbm.train(SETTINGS, data, ROUNDS).predict(rows[out])
    return score


def distances(first: pd.DataFrame, second: pd.DataFrame) -> tuple[tuple[str, float], ...]:
    """The features that differ most, with the Kolmogorov-Smirnov distance of their distributions
    (the largest difference of the two cumulative shares); unknown values are left out."""
    found = [(name, _distance(first[name].to_numpy(), second[name].to_numpy())) for name in OWN]
    return tuple(sorted(found, key=lambda pair: (-pair[1], pair[0]))[:SHOWN])


def _distance(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float:
    first, second = (np.sort(values[np.isfinite(values)]) for values in (first, second))
    if not len(first) or not len(second):
        return 0.0
    at = np.concatenate([first, second])
    shares = [np.searchsorted(v, at, "right") / len(v) for v in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


# -- the same fault in the healthy twin ------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A recorded trace with one fault, and its healthy twin."""

    trace: str
    pattern: str
    twin: Path
    workload: str
    device: str
    extent: str
    seed: int


def jobs(folder: Path, traces: pd.DataFrame) -> list[Job]:
    """One for each recorded trace with one pattern and a plain healthy twin."""
    recorded = traces[traces["origin"] == "recorded"]
    plain = np.array([not json.loads(text).get("extra") for text in recorded["parameters"]], bool)
    good = recorded[plain & (recorded["quality"] == "good").to_numpy()]
    twin = dict(zip(good["pair"], good["file"], strict=True))
    return [
        Job(
            row["trace"],
            row["patterns"][0],
            folder / twin[row["pair"]],
            row["workload"],
            row["device"],
            row["extent"],
            int(row["seed"]),
        )
        for row in recorded.to_dict("records")
        if len(row["patterns"]) == 1 and row["pair"] in twin
    ]


def into_twin(job: Job) -> tuple[pd.DataFrame, dict[str, float]] | None:
    """The windows of the twin with the job's fault put in, and what it costs by pattern; None where
    it cannot be put in, or costs too little."""
    import pandas as pd

    base = Found(job.trace, job.twin, job.workload, job.device, OWN_LICENCE, "", recorded=True)
    extent: Any = job.extent
    try:
        content, label = Injected(job.trace, base, (job.pattern,), job.seed, extent).make()
    except LeftOut:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "trace.json"
        file.write_bytes(content)
        found = tables(file, label, job.trace, with_evidence=False)
    frame = pd.DataFrame(found.windows)[list(ABOUT)]
    features = pd.DataFrame(found.matrix, columns=list(COLUMNS))[list(OWN)]
    return pd.concat([frame, features], axis=1), shares(label.parameters)


def shares(parameters: Any) -> dict[str, float]:
    """By pattern the share of an acting step that the fault costs, of a label's parameters."""
    return {
        pattern: figures["total_us"] / (figures["steps"] * figures["step_us"])
        for pattern, figures in parameters.get("costs", {}).items()
        if figures["steps"] * figures["step_us"] > 0
    }


# -- all patterns ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Material:
    """All that is compared. ``put_in``: windows of recorded faults' twins with the fault put in;
    ``cost``: by origin and pattern the costs, as shares of an acting step."""

    windows: pd.DataFrame
    put_in: pd.DataFrame
    cost: dict[tuple[str, str], list[float]]


def material(folder: Path, workers: int) -> Material:
    """Read a benchmark, and put the recorded faults into the twins. Raises DetectorError."""
    import pandas as pd

    windows = table(folder, "windows", PARTS, (*ABOUT, *OWN))
    windows = windows[windows["origin"].isin(("recorded", "injected"))]
    traces = table(folder, "traces", PARTS)
    cost: dict[tuple[str, str], list[float]] = {}
    for text in traces[traces["origin"] == "recorded"]["parameters"]:
        _add(cost, "recorded", shares(json.loads(text)))
    frames = [windows.iloc[:0]]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for made in pool.imap(into_twin, jobs(folder, traces)):
            if made is not None:
                frames.append(made[0])
                _add(cost, "injected", made[1])
    return Material(windows, pd.concat(frames, ignore_index=True), cost)


def _add(cost: dict[tuple[str, str], list[float]], origin: str, found: dict[str, float]) -> None:
    for pattern, share in found.items():
        cost.setdefault((origin, pattern), []).append(share)


def likeness(of: Material) -> list[Likeness]:
    """One for each pattern that was recorded, in the order of their names."""
    recorded, injected = (of.windows[of.windows["origin"] == o] for o in ("recorded", "injected"))
    real, put_in = signatures(recorded, OWN), signatures(injected, OWN)
    return [_likeness(of, recorded, injected, pattern, real, put_in) for pattern in sorted(real)]


def _likeness(
    of: Material,
    recorded: pd.DataFrame,
    injected: pd.DataFrame,
    pattern: str,
    of_recorded: Mapping[str, Float64],
    of_injected: Mapping[str, Float64],
) -> Likeness:
    real = recorded[recorded["pattern"] == pattern]
    put_in = of.put_in[of.put_in["pattern"] == pattern]
    injected = injected[injected["pattern"] == pattern]
    mine = recorded[recorded["pair"].isin(real["pair"])]
    free = mine[mine["cpu"] + mine["gpu"] == 0]
    without = free[free["trace"].isin(real["trace"])]
    twins = free[free["quality"] == "good"]
    both = [real["workload"], put_in["workload"]]
    return Likeness(
        pattern,
        len(set(both[0]) & set(both[1])),
        (real["trace"].nunique(), put_in["trace"].nunique()),
        (len(real), len(put_in)),
        (_median(of.cost, "recorded", pattern), _median(of.cost, "injected", pattern)),
        separation(real, put_in, "workload"),
        separation(without, twins, "workload"),
        separation(real, injected, "pair"),
        alike(of_recorded[pattern], of_injected.get(pattern, NOTHING)),
        place(of_recorded[pattern], pattern, of_injected),
        distances(real, put_in) if min(len(real), len(put_in)) >= LEAST else (),
    )


def _median(cost: dict[tuple[str, str], list[float]], origin: str, pattern: str) -> float:
    values = cost.get((origin, pattern))
    return median(values) if values else float("nan")


@dataclass(frozen=True)
class Control:
    """AUC-ROC where no fault is: ``beside``, injected traces against their untouched bases;
    ``device``, those bases against healthy recorded traces."""

    beside: Estimate
    device: Estimate


def control(windows: pd.DataFrame) -> Control:
    """What of a model's AUC has nothing to do with the faults."""
    free = windows[windows["cpu"] + windows["gpu"] == 0]
    injected = free[free["origin"] == "injected"]
    good = injected["quality"] == "good"
    twins = free[(free["origin"] == "recorded") & (free["quality"] == "good")]
    return Control(
        separation(injected[good], injected[~good], "pair"),
        separation(twins, injected[good], "pair"),
    )


# -- as text ---------------------------------------------------------------------------------------

HEADS: Final = (
    "pattern",
    "programs",
    "traces",
    "windows",
    "costs of a step",
    "AUC, same programs",
    "floor",
    "AUC, this benchmark",
    "signature",
    "differ most (distance)",
)


def text(found: Iterable[Likeness], without: Control) -> str:
    """The table, and the controls. Pairs are recorded / injected."""
    rows = [HEADS, ("---",) * len(HEADS), *(_cells(one) for one in found)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    said = (
        f"Where no fault is: injected traces against their untouched bases, AUC"
        f" {_auc(without.beside)}; those bases against healthy recorded traces, AUC"
        f" {_auc(without.device)}."
    )
    return "\n".join([*lines, "", said])


def _cells(one: Likeness) -> tuple[str, ...]:
    differ = ", ".join(f"`{name}` {distance:.2f}" for name, distance in one.differ)
    return (
        one.pattern,
        str(one.programs),
        " / ".join(map(str, one.traces)),
        " / ".join(map(str, one.windows)),
        " / ".join(_per_cent(share) for share in one.cost),
        _auc(one.same),
        _auc(one.floor),
        _auc(one.benchmark),
        f"{one.cosine:.2f}, {one.place[0]} of {one.place[1]}" if one.place[0] else "–",
        differ or "–",
    )


def _per_cent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.1f} %"


def _auc(value: Estimate) -> str:
    if np.isnan(value.value):
        return "–"
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def main(words: Sequence[str] | None = None) -> int:
    """Print the table and write it into the card; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dataset.realism",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a built benchmark")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    given = parser.parse_args(words)
    try:
        of = material(given.folder, given.workers)
    except DetectorError as error:
        return complain(error)
    said = text(likeness(of), control(of.windows))
    manifest = json.loads((given.folder / "manifest.json").read_text(encoding="utf-8"))
    (given.folder / "README.md").write_text(card.text(manifest, said), encoding="utf-8")
    print(said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
