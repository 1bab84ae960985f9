"""``comparison.json`` as a page in Markdown: every figure with its interval, nothing left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from detector.comparison.markdown import interval, number, table

OURS: Final = "LightGBM"
SIDES: Final = ("cpu", "gpu")
SHOWN: Final = 12  # confusions of a test
Found = Mapping[str, Any]


def render(results: Found, extras: Sequence[str] = ()) -> str:
    """The whole page, with what else lies beside it (``extras.read``)."""
    parts = [
        "# Results",
        "Made by `python -m detector.evaluate experiment=comparison data=FOLDER`. "
        f"{results['traces']:,} traces, {results['windows']:,} windows. Intervals are 95 % "
        "bootstraps over whole traces. Windows of which nobody knows whether they are healthy "
        "count for nothing. Settings were chosen on train and validation (LOG.md).",
        *_overview(results["tests"]),
        *extras,
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
            over = f"{interval(margin.get('by'))} over {margin['over']}" if margin else "–"
            values = [interval(mine.get(key)) for key in ("AUC", "within", "AP")]
            rows.append([name, side, *values, over])
    yield "## Window scores of the flagger"
    yield (
        "Within traces: the mean of the AUC-ROC of each trace that has windows of both kinds. What "
        "merely tells traces apart gets a half there."
    )
    heads = ["test", "side", "AUC-ROC", "within traces", "average precision"]
    yield table([*heads, "AUC above best baseline"], rows)
    yield "![window AUC-ROC of every flagger in every test](results/tests.png)"
    yield "## Regions of the flagger"
    yield (
        "Neighbouring windows of one side and pattern are a region, told ones and labelled ones "
        "alike. Thresholds make at most 0.25 regions of a side in a healthy real trace that was "
        "learnt from, on average, scored by models that never saw its workload."
    )
    yield _regions(tests)
    yield (
        "Classes: the class head's likeliest of the side, of labelled regions matched at IoU 0.3. "
        "Where a place has "
        "several labels of one side, a told class counts as right if it is any of those that cover "
        "at least half of the time that the told and the labelled region share."
    )
    yield _classes(tests)


def _regions(tests: Found) -> str:
    rows = []
    for name, found in tests.items():
        r = found["flaggers"][OURS]["regions"]
        keys = [f"{what} {iou}" for what in ("recall", "precision") for iou in (0.3, 0.5)]
        alarms = interval(r["alarms per healthy trace"])
        quiet = f"{r['healthy traces without alarm']} of {r['healthy traces']}"
        rows.append([name, r["regions"], *(interval(r[key]) for key in keys), alarms, quiet])
    heads = ["test", "regions", "recall @0.3", "@0.5", "precision @0.3", "@0.5"]
    return table([*heads, "alarms per healthy trace", "healthy traces without alarm"], rows)


def _classes(tests: Found) -> str:
    rows = []
    for name, found in tests.items():
        r = found["flaggers"][OURS]["regions"]
        keys = ("class accuracy", "class top 3", "class macro F1")
        matched = f"{r['matched']} ({r['right by another label']})"
        rows.append([name, matched, *(interval(r[key]) for key in keys)])
    heads = ["test", "matched regions (right by a second label)"]
    return table([*heads, "class accuracy", "top 3", "macro F1"], rows)


def _test(found: Found) -> Iterator[str]:
    yield (
        f"Trained on {found['train traces']:,} traces, measured on {found['test traces']:,} with "
        f"{found['test windows']:,} windows."
    )
    yield _flaggers(found["flaggers"])
    shown = found.get("plots") or {}
    if "curves" in shown:
        yield f"![ROC and precision-recall]({shown['curves']})"
    ours = found["flaggers"][OURS]
    extents = [
        [side, *(number(ours["extent"][side].get(k)) for k in ("every step", "some steps"))]
        for side in SIDES
        if ours["extent"][side]
    ]
    if extents:
        yield "Window AUC by where in its trace a fault sits:"
        yield table(["side", "in every step", "in some steps"], extents)
    if ours["patterns"]:
        yield "Windows by main pattern, lowest AUC first:"
        yield _patterns(ours["patterns"])
    if confused := [p for p in ours["regions"]["confusion"] if p["true"] != p["told"]]:
        yield "Classes most often taken for each other, of matched regions:"
        rows = [[p["true"], p["told"], p["count"]] for p in confused[:SHOWN]]
        yield table(["true", "told", "regions"], rows)
    if "confusion" in shown:
        yield f"[All classes]({shown['confusion']})"
    if "ablations" in found:
        yield "Ablations, window AUC:"
        rows = [
            [name, *(interval(value[side]) for side in SIDES)]
            for name, value in found["ablations"].items()
        ]
        yield table(["trained with", "cpu", "gpu"], rows)


def _flaggers(flaggers: Found) -> str:
    rows = [
        [
            name,
            *(interval(f["windows"][s].get(k)) for s in SIDES for k in ("AUC", "within", "AP")),
            f"{f['fit_s']:.0f}",
            f"{f['us_per_window']:.1f}",
        ]
        for name, f in flaggers.items()
    ]
    heads = ["flagger", *(f"{side} {k}" for side in SIDES for k in ("AUC", "within", "AP"))]
    return table([*heads, "training s", "µs a window"], rows)


def _patterns(patterns: Found) -> str:
    ranked = sorted(patterns.items(), key=lambda item: item[1]["AUC"]["value"])
    rows = [
        [name, p["windows"], p["traces"], interval(p["AUC"]), number(p["AP"])] for name, p in ranked
    ]
    return table(["pattern", "windows", "traces", "AUC-ROC", "average precision"], rows)
