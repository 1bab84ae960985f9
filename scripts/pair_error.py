"""How far the recoverable time of a pattern is from what its fix really gave back.

    python scripts/pair_error.py FOLDER [--out FILE] [--origin recorded] [key=value ...]

FOLDER is a built benchmark. Each faulty trace with one pattern and a healthy twin is a pair.
Realised: the time of its steps in which the fault acts less that of the twin's steps. Predicted,
per step in which the fault acts: (1) `claim`, what the cost model says of the labelled regions,
pattern and place being known; (2) `product`, the findings of that pattern in a scan with the models
that ship (or that key=value chooses), nothing where there are none. Errors are predicted less
realised, in shares of the faulty step. Pairs whose fault costs next to nothing are counted too;
`measurable` ones are told apart. Injected traces have the times of a replay, not measured ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from dataset.costs import healthy_steps  # noqa: E402  the path first
from dataset.labels import LabelRegion  # noqa: E402
from detector.activity import Activity  # noqa: E402
from detector.window import Judged, judge_time  # noqa: E402
from scripts.scanned import (  # noqa: E402
    Case,
    Stages,
    cases,
    claimed,
    each,
    manifest_of,
    spans_of,
    trained_on,
)

MEASURABLE = 0.05  # of the faulty step
HOW = {
    "recorded": "both runs measured",
    "injected": "both times by replay, nothing was run",
    "simulated": "both times from a model, nothing was run",
}


@dataclass(frozen=True)
class Pair:
    """A faulty trace beside its twin; times in µs of a step in which the fault acts."""

    name: str
    pattern: str
    step: float
    realised: float
    claim: float
    product: float
    found: bool

    def share(self, what: str) -> float:
        """One of the times, as a share of the faulty step."""
        return float(getattr(self, what)) / self.step


def pair_of(case: Case, stages: Stages, healthy: Mapping[str, float]) -> Pair | None:
    """None where a time is missing, or no judged step holds the fault."""
    label = case.label
    normal = label.healthy_step_us or healthy.get(label.pair)
    step = float(label.parameters.get("acting_step_us", label.step_us))
    trace = case.read()
    judged = judge_time(trace)
    steps = acting(judged, label.regions)
    if normal is None or not steps or step <= 0:
        return None
    (pattern,) = label.patterns
    findings = [f for f in stages.scan(trace).findings if f.pattern == pattern]
    return Pair(
        case.name,
        pattern,
        step,
        step - normal,
        claimed(Activity(trace), judged, label.regions, pattern) / steps,
        sum(f.recoverable_us for f in findings) / steps,
        bool(findings),
    )


def acting(judged: Judged, regions: Sequence[LabelRegion]) -> int:
    """How many judged steps a labelled region touches."""
    spans = spans_of(regions)
    start, end = (np.array([getattr(s, k) for s in judged.steps]) for k in ("start", "end"))
    return int((spans.covered(start, end) > 0).sum()) if judged.steps else 0


# -- summary ---------------------------------------------------------------------------------------


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Figures of all pairs, of the measurable ones, and of each pattern."""
    measurable = [p for p in pairs if p.share("realised") >= MEASURABLE]
    groups = {"all": list(pairs), "measurable": measurable}
    for pattern in sorted({p.pattern for p in pairs}):
        groups[pattern] = [p for p in pairs if p.pattern == pattern]
    return {name: figures(mine) for name, mine in groups.items() if mine}


def figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Quartiles of shares and errors, rank correlations, and the share with a finding."""
    share = {k: np.array([p.share(k) for p in pairs]) for k in ("realised", "claim", "product")}
    told: dict[str, Any] = {"pairs": len(pairs), "realised": quartiles(share["realised"])}
    for what in ("claim", "product"):
        told[f"{what}_error"] = quartiles(share[what] - share["realised"])
        told[f"{what}_rank"] = rank_correlation(share[what], share["realised"])
    return told | {"found": float(np.mean([p.found for p in pairs]))}


def quartiles(values: Any) -> list[float]:
    """[lower, median, upper]."""
    return [round(float(v), 4) for v in np.quantile(values, [0.25, 0.5, 0.75])]


def rank_correlation(a: Any, b: Any) -> float | None:
    """Spearman's, ties at their middle rank; None where it is not defined."""
    ranks = [_ranks(np.asarray(values)) for values in (a, b)]
    if len(ranks[0]) < 3 or min(np.ptp(r) for r in ranks) == 0:
        return None
    return round(float(np.corrcoef(*ranks)[0, 1]), 4)


def _ranks(values: Any) -> Any:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


HEAD = (
    f"{'pairs of':32s}    n  {'realised, % of step':22s}  {'claim error':22s}  rank  found "
    "product error           rank"
)


def line(name: str, g: Mapping[str, Any]) -> str:
    """A group as a row of the printed table."""
    errors = (
        f"{100 * g[k][1]:+6.1f} [{100 * g[k][0]:+6.1f}, {100 * g[k][2]:+6.1f}]"
        for k in ("realised", "claim_error", "product_error")
    )
    ranks = ("    –" if g[k] is None else f"{g[k]:+5.2f}" for k in ("claim_rank", "product_rank"))
    real, claim, product = errors
    first, second = ranks
    head = f"{name:32s} {g['pairs']:4d}  {real}"
    return f"{head}  {claim} {first}  {g['found']:4.0%} {product} {second}"


def main(words: Sequence[str] | None = None) -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(description="Recoverable time, predicted and realised.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--out", type=Path, help="a JSON file, for the comparison's page")
    parser.add_argument("--origin", nargs="+", default=["recorded"], choices=list(HOW))
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_intermixed_args(words)
    models = trained_on(given.folder, Stages(given.overrides))
    told: dict[str, Any] = {"measurable": MEASURABLE, "trained_on": models, "origins": {}}
    print(models)
    for origin in given.origin:
        pairs = measured(given.folder, origin, given.overrides, given.workers)
        if not pairs:
            continue
        groups = summary(pairs)
        print(f"{origin} ({HOW[origin]})\n{HEAD}")
        print("\n".join(line(name, group) for name, group in groups.items()))
        rows = [{k: getattr(p, k) for k in Pair.__dataclass_fields__} for p in pairs]
        told["origins"][origin] = {"how": HOW[origin], "groups": groups, "pairs": rows}
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(told, indent=1) + "\n")


def measured(folder: Path, origin: str, overrides: Sequence[str], workers: int) -> list[Pair]:
    """All pairs of an origin whose fault is one pattern alone."""
    mine = [row for row in manifest_of(folder)["traces"] if row["origin"] == origin]
    good = {row["name"] for row in mine if row["quality"] == "good"}
    bad = {row["name"] for row in mine if len(row["patterns"]) == 1}
    healthy = healthy_steps(case.label for case in cases(folder, lambda r: r["name"] in good))
    faulty = cases(folder, lambda r: r["name"] in bad)
    work = partial(pair_of, healthy=healthy)
    return [p for p in each(work, faulty, overrides, workers) if p is not None]


if __name__ == "__main__":
    main()
