"""What the whole product says of labelled traces: findings held against labels.

    python scripts/end_to_end.py FOLDER [--out FILE] [--scheme split] [--parts test natural]
                                 [key=value ...]

FOLDER is a built benchmark; every trace of the chosen parts is scanned with the models that ship,
or those that key=value chooses (flagger.path=…, judge.path=…). The output says what these were
trained on: where the scanned parts are among it, the figures are not held out. Models without them
come from `python -m detector.train` on a folder with the manifest and the tables of the other parts
alone.

A finding is right where one of its places lies on a labelled region of its pattern. It is wrong
where none does, unless more than half of its time lies in windows of which nobody knows whether
they are healthy: such findings count for nothing. A labelled pattern is found where a finding is
right for it; those that the report lists as not checked are counted apart. `costly` ones are those
whose pattern claims enough in its labelled regions to be worth a finding at all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from dataset.labels import Label  # noqa: E402  the path first
from detector.activity import Activity  # noqa: E402
from detector.comparison.run import windows_of  # noqa: E402
from detector.flagger.training import INSIDE, SIDES  # noqa: E402
from detector.intervals import Intervals  # noqa: E402
from detector.metrics import Estimate, by_trace  # noqa: E402
from detector.report import Finding, Report, occurrences  # noqa: E402
from detector.taxonomy import UNCLEAR  # noqa: E402
from detector.trace import NS_PER_US  # noqa: E402
from detector.window import judge_time  # noqa: E402
from scripts.scanned import (  # noqa: E402
    Case,
    Stages,
    cases,
    claimed,
    each,
    intervals_of,
    spans_of,
    trained_on,
)

DOUBTED = 0.5  # of a finding's time: from here on its place is unknown
Unknown = Mapping[str, Intervals]  # by side


@dataclass(frozen=True)
class Outcome:
    """One trace's report beside its label: numbers of findings and of labelled patterns."""

    name: str
    origin: str
    healthy: bool
    labelled: tuple[str, ...]
    found: tuple[str, ...]
    not_checked: tuple[str, ...]
    wrong: tuple[str, ...]
    unknown: int
    unclear: int
    costly: tuple[str, ...] = ()  # labelled ones that claim enough for a finding

    @property
    def right(self) -> int:
        """Findings, one for each pattern at most."""
        return len(self.found)


def outcome(case: Case, stages: Stages, unknown: Mapping[str, Unknown]) -> Outcome:
    """Scan one trace."""
    label, trace = case.label, case.read()
    activity, judged = Activity(trace), judge_time(trace)
    least = stages.parts["settings"].min_share * (judged.end - judged.start) / NS_PER_US
    costly = {p for p in label.patterns if claimed(activity, judged, label.regions, p) >= least}
    found = held(case.name, label, stages.scan(trace), unknown.get(case.name, {}))
    return replace(found, costly=tuple(p for p in found.labelled if p in costly))


def held(name: str, label: Label, report: Report, unknown: Unknown) -> Outcome:
    """Hold a report against a label."""
    blind = {n.pattern for n in report.not_checked}
    named = [f for f in report.findings if f.pattern != UNCLEAR]
    right = [f for f in named if _on_label(f, label)]
    rest = [f for f in named if f not in right]
    wrong = [f for f in rest if not _doubted(f, unknown)]
    return Outcome(
        name,
        label.origin,
        label.quality == "good",
        tuple(p for p in label.patterns if p not in blind),
        tuple(f.pattern for f in right),
        tuple(p for p in label.patterns if p in blind),
        tuple(f.pattern for f in wrong),
        len(rest) - len(wrong),
        len(report.findings) - len(named),
    )


def _on_label(finding: Finding, label: Label) -> bool:
    spans = spans_of([r for r in label.regions if r.pattern == finding.pattern])
    return (spans & intervals_of(occurrences(finding))).measure > 0


def _doubted(finding: Finding, unknown: Unknown) -> bool:
    spans = intervals_of(occurrences(finding))
    doubt = unknown.get(finding.side)
    return doubt is not None and (spans & doubt).measure > DOUBTED * spans.measure


def unknown_places(folder: Path) -> dict[str, dict[str, Intervals]]:
    """By trace and side, the windows that count for nothing, as the benchmark's tables tell."""
    windows, _ = windows_of(folder)
    found: dict[str, dict[str, Intervals]] = {}
    for side in SIDES:
        dark = windows[windows[f"unknown_{side}"] >= INSIDE]
        for name, mine in dark.groupby("trace"):
            edges = list(zip(mine["start_us"], mine["end_us"], strict=True))
            found.setdefault(str(name), {})[side] = intervals_of(edges)
    return found


# -- summary ---------------------------------------------------------------------------------------


def summary(found: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Figures of all traces and of each origin."""
    groups = {"all origins": list(found)}
    for origin in sorted({o.origin for o in found}):
        groups[origin] = [o for o in found if o.origin == origin]
    return {name: figures(mine) for name, mine in groups.items()}


def figures(found: Sequence[Outcome]) -> dict[str, Any]:
    """Recall, precision and false findings, with 95 % bootstraps over whole traces."""
    healthy = [o for o in found if o.healthy]
    right = np.array([o.right for o in found], float)
    wrong = np.array([len(o.wrong) for o in found], float)
    labelled = np.array([len(o.labelled) for o in found], float)
    hit = np.array([len(set(o.found) & set(o.labelled)) for o in found], float)
    costly = np.array([len(o.costly) for o in found], float)
    hit_costly = np.array([len(set(o.found) & set(o.costly)) for o in found], float)
    alarms = np.array([len(o.wrong) for o in healthy], float)
    return {
        "traces": len(found),
        "healthy_traces": len(healthy),
        "labelled": int(labelled.sum()),
        "findings": int((right + wrong).sum()),
        "not_checked": sum(len(o.not_checked) for o in found),
        "unknown": sum(o.unknown for o in found),
        "unclear": sum(o.unclear for o in found),
        "recall": _ratio(hit, labelled),
        "costly": int(costly.sum()),
        "recall_costly": _ratio(hit_costly, costly),
        "precision": _ratio(right, right + wrong),
        "wrong_per_trace": _ratio(wrong, np.ones(len(found))),
        "findings_per_healthy_trace": _ratio(alarms, np.ones(len(healthy))),
    }


def _ratio(part: Any, whole: Any) -> dict[str, float | None]:
    """Sum over sum, by trace."""

    def ratio(rows: Any) -> float:
        total = whole[rows].sum()
        return float(part[rows].sum() / total) if total else float("nan")

    nothing = Estimate(*[float("nan")] * 3)
    told = by_trace(ratio, np.arange(len(part)).astype(object)) if len(part) else nothing
    return {k: None if np.isnan(v) else round(v, 5) for k, v in asdict(told).items()}


def by_pattern(found: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """Of each pattern: labelled in so many traces, found in, and told where it is not."""
    names = sorted({p for o in found for p in (*o.labelled, *o.wrong)})
    return {
        name: {
            "labelled": sum(name in o.labelled for o in found),
            "found": sum(name in o.found for o in found),
            "wrong": sum(name in o.wrong for o in found),
        }
        for name in names
    }


def show(told: Mapping[str, Any]) -> None:
    """Print the figures."""
    print(told["trained_on"])
    for name, group in told["groups"].items():
        print(name)
        for key, value in group.items():
            if isinstance(value, dict):
                value = Estimate(*(float("nan") if v is None else v for v in value.values()))
            print(f"  {key:28s} {value}")
    print(f"{'pattern':34s} labelled found wrong")
    for name, row in told["patterns"].items():
        print(f"{name:34s} {row['labelled']:8d} {row['found']:5d} {row['wrong']:5d}")


def main(words: Sequence[str] | None = None) -> None:
    """Scan, print, and write the figures."""
    parser = argparse.ArgumentParser(description="Findings held against labels.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--out", type=Path, help="a JSON file, for the comparison's page")
    parser.add_argument("--scheme", default="split")
    parser.add_argument("--parts", nargs="+", default=["test", "natural"])
    parser.add_argument("--origin", nargs="+", help="only traces of these origins")
    parser.add_argument("--every", type=int, default=1, help="one trace in so many")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_intermixed_args(words)

    def chosen(row: Mapping[str, Any]) -> bool:
        mine = given.origin is None or row["origin"] in given.origin
        return mine and row[given.scheme] in given.parts

    stages = Stages(given.overrides)
    mine = cases(given.folder, chosen)[:: given.every]
    work = partial(outcome, unknown=unknown_places(given.folder))
    found = list(each(work, mine, given.overrides, given.workers))
    told = {
        "scheme": given.scheme,
        "parts": given.parts,
        "flagger": stages.parts["flagger"].name,
        "judge": stages.parts["judge"].name,
        "trained_on": trained_on(given.folder, stages),
        "groups": summary(found),
        "patterns": by_pattern(found),
        "traces": [asdict(o) for o in found],
    }
    show(told)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
