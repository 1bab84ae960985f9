"""``comparison.json`` as a page in Markdown: every figure with its interval, nothing left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

OURS: Final = "LightGBM"
SIDES: Final = ("cpu", "gpu")
Found = Mapping[str, Any]


def render(results: Found) -> str:
    """The whole page."""
    parts = [
        "# Results",
        "Made by `python -m detector.evaluate experiment=comparison data=FOLDER`. "
        f"{results['traces']:,} traces, {results['windows']:,} windows. Intervals are 95 % "
        "bootstraps over whole traces. Windows of which nobody knows whether they are healthy "
        "count for nothing; nothing here was tuned on a test part.",
        *_overview(results["tests"]),
    ]
    for name, found in results["tests"].items():
        parts += [f"## {name[0].upper()}{name[1:]}", *_test(found)]
    return "\n\n".join(parts) + "\n"


def _overview(tests: Found) -> Iterator[str]:
    rows = []
    for name, found in tests.items():
        for side in SIDES:
            mine = found["flaggers"][OURS]["windows"][side]
            margin = (found.get("margin") or {}).get(side) or {}
            over = f"{_interval(margin.get('by'))} over {margin['over']}" if margin else "–"
            rows.append([name, side, _interval(mine.get("AUC")), _interval(mine.get("AP")), over])
    yield "## Window scores of the flagger"
    yield _table(["test", "side", "AUC-ROC", "average precision", "AUC above best baseline"], rows)
    rows = []
    for name, found in tests.items():
        r = found["flaggers"][OURS]["regions"]
        rows.append(
            [
                name,
                r["regions"],
                *(_number(r[key]) for key in ("recall 0.3", "recall 0.5")),
                *(_number(r[key]) for key in ("precision 0.3", "precision 0.5")),
                f"{_number(r['alarms per healthy trace'])} ({r['healthy traces']})",
                *(_number(r[key]) for key in ("class accuracy", "class top 3", "class macro F1")),
            ]
        )
    yield "## Regions of the flagger"
    yield (
        "Neighbouring windows of one side and pattern are a region, told ones and labelled ones "
        "alike. Thresholds are the lowest with 0.25 alarms per side in a healthy validation trace. "
        "Classes: the class head's, of regions matched at IoU 0.3."
    )
    yield _table(
        ["test", "regions", "recall @0.3", "@0.5", "precision @0.3", "@0.5"]
        + ["alarms per healthy trace (traces)", "class accuracy", "top 3", "macro F1"],
        rows,
    )


def _test(found: Found) -> Iterator[str]:
    yield (
        f"Trained on {found['train traces']:,} traces, measured on {found['test traces']:,} with "
        f"{found['test windows']:,} windows."
    )
    rows = [
        [
            name,
            *(_interval(f["windows"][s].get(k)) for s in SIDES for k in ("AUC", "AP")),
            f"{f['fit_s']:.0f}",
            f"{f['us_per_window']:.1f}",
        ]
        for name, f in found["flaggers"].items()
    ]
    heads = ["flagger", "cpu AUC", "cpu AP", "gpu AUC", "gpu AP", "training s", "µs a window"]
    yield _table(heads, rows)
    ours = found["flaggers"][OURS]
    extents = [
        [side, *(_number(ours["extent"][side].get(k)) for k in ("every step", "some steps"))]
        for side in SIDES
        if ours["extent"][side]
    ]
    if extents:
        yield "Window AUC by where in its trace a fault sits:"
        yield _table(["side", "in every step", "in some steps"], extents)
    if ours["patterns"]:
        yield "Window AUC by pattern, lowest first (windows):"
        ranked = sorted(ours["patterns"].items(), key=lambda item: item[1][0])
        yield ", ".join(f"{name} {_number(value)} ({count})" for name, (value, count) in ranked)
    if "ablations" in found:
        yield "Ablations, window AUC:"
        rows = [
            [name, *(_interval(value[side]) for side in SIDES)]
            for name, value in found["ablations"].items()
        ]
        yield _table(["trained with", "cpu", "gpu"], rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _interval(value: Any) -> str:
    if not value or value["value"] is None:
        return "–"
    low, high = (_number(value[k]) for k in ("low", "high"))
    return f"{_number(value['value'])} [{low}, {high}]"


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}"
