"""The pages in ``results/``: every figure with its interval, nothing left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from detector.lab.comparison.contenders import SHIPS
from detector.lab.comparison.findings import PRODUCT
from detector.lab.comparison.markdown import interval, number, quartiles, table
from detector.lab.comparison.tuning import OBJECTIVE

Found = Mapping[str, Any]
TRIVIAL: Final = 0.2  # what a constant flagger may reach of a figure of regions
WAYS: Final = ("masked", "unmasked")
FIGURES: Final = {
    "precision": "precision ≥ 5 %",
    "recall": "recall ≥ 5 %",
    "strict_recall": "recall with size",
    "wrong_per_healthy": "wrong per healthy trace",
    "sure_precision": "precision at ≥ 0.9",
    "ece": "ECE",
    "class_accuracy": "class accuracy",
    "macro_f1": "macro-F1",
    "within_2x": "savings within 2×",
}
WINDOWS: Final = tuple(
    f"{side} {name}" for side in ("cpu", "gpu") for name in ("AUC", "within", "AP")
)
REGIONS: Final = (
    *("recall 0.3", "recall 0.5", "precision 0.3", "precision 0.5"),
    "alarms per healthy trace",
)


def pages(results: Found) -> dict[str, str]:
    """By file name."""
    parts = {
        "findings.md": ["# Findings", *_findings(results["findings"])],
        "windows.md": ["# Windows and regions", *_windows(results["windows"], results["patterns"])],
        "ablations.md": ["# Ablations", *_ablations(results["ablations"])],
        "settings.md": ["# Settings and what they were chosen by", *_settings(results)],
    }
    about = results["about"]
    made = f"Made by `{about['command']}` at commit {about['commit']}, {about['date']} UTC."
    return {name: "\n\n".join([text[0], made, *text[1:]]) + "\n" for name, text in parts.items()}


def _findings(groups: Found) -> Iterator[str]:
    yield "![reliability](reliability.png)"
    for group, rows in groups.items():
        yield f"## {group[0].upper()}{group[1:]}"
        one = next(iter(rows.values()))["masked"]
        yield (
            f"{one['traces']} traces, {one['clusters']} clusters, {one['healthy']} healthy traces, "
            f"{one['problems']} problems of 5 % and more."
        )
        for way in WAYS:
            yield f"{way}:"
            yield table(
                ["", "findings", *FIGURES.values(), "savings error"],
                [
                    [name, of[way]["findings"]]
                    + [interval(of[way]["figures"][key]) for key in FIGURES]
                    + [quartiles(of[way]["savings_error"])]
                    for name, of in rows.items()
                ],
            )
        if margins := {n: of["product minus this"] for n, of in rows.items()}:
            yield f"{PRODUCT} minus this, on the same resamples, masked:"
            lines = [
                [name, *(interval(of["masked"][key]) for key in FIGURES)]
                for name, of in margins.items()
                if of
            ]
            yield table(["", *FIGURES.values()], lines)
        yield from _paired(rows)


def _paired(rows: Found) -> Iterator[str]:
    mine = {name: of["paired"] for name, of in rows.items() if of["paired"]}
    if not mine:
        return
    yield "Injected faults of 3 % and more beside their untouched base:"
    keys = ("named", "new", "within_2x")
    lines = [
        [name, p["all"]["faults"], *(interval(p["all"][k]) for k in keys), interval(p["alarms"])]
        for name, p in mine.items()
    ]
    yield table(["", "faults", "named", "new", "within 2×", "false alarms a trace"], lines)
    product = mine[PRODUCT]
    yield f"By pattern, {PRODUCT}:"
    lines = [
        [pattern, row["faults"], *(number(row[k]["value"]) for k in keys)]
        for pattern, row in {**product["families"], **product["patterns"]}.items()
    ]
    yield table(["", "faults", "named", "new", "within 2×"], lines)


def _windows(groups: Found, patterns: Found) -> Iterator[str]:
    for group, rows in groups.items():
        if not rows:
            continue
        yield f"## {group[0].upper()}{group[1:]}"
        for way in WAYS:
            yield f"{way}, windows:"
            yield _table(rows, "figures", way, WINDOWS)
            yield from _regions(rows, way)
        yield f"{SHIPS} minus this, on the same resamples, unmasked:"
        yield _table(rows, "flagger minus this", "unmasked", WINDOWS)
    if patterns:
        yield "## Windows by pattern, lowest AUC first"
        ranked = sorted(patterns.items(), key=lambda item: item[1]["AUC"])
        lines = [
            [name, p["windows"], p["traces"], number(p["AUC"]), number(p["AP"])]
            for name, p in ranked
        ]
        yield table(["", "windows", "traces", "AUC-ROC", "average precision"], lines)


def _regions(rows: Found, way: str) -> Iterator[str]:
    """Nothing but a sentence where a flagger that flags everything would be right too often."""
    constant = rows.get("constant", {}).get("figures", {}).get(way, {})
    reached = [(constant.get(k) or {}).get("value") or 0.0 for k in ("recall 0.3", "precision 0.3")]
    if max(reached) > TRIVIAL:
        yield (
            f"{way}, regions: left out. Labels here fill whole traces: a flagger that flags all of "
            f"a trace has a recall of {reached[0]:.2f} and a precision of {reached[1]:.2f} at an "
            "IoU of 0.3. Such figures say nothing of places."
        )
        return
    yield f"{way}, regions:"
    yield _table(rows, "figures", way, REGIONS)


def _table(rows: Found, what: str, way: str, keys: tuple[str, ...]) -> str:
    lines = [
        [name, *(interval(of[what].get(way, {}).get(key)) for key in keys)]
        for name, of in rows.items()
    ]
    return table(["", *keys], lines)


def _ablations(found: Found) -> Iterator[str]:
    if not found:
        yield "None were measured."
        return
    yield (
        "Window AUC-ROC, unmasked, mean of both sides, of LightGBM as it ships. Known "
        "programs: other traces of the same programs and bases were learned from (in "
        "distribution). Unseen: none of the program. The row without injected traces says what "
        "these do for real faults, those labeled by hand and recorded ones."
    )
    first = next(iter(found.values()))
    heads = [(where, group) for where, groups in first.items() for group in groups]
    lines = [
        [name, *(interval(of[where].get(group)) for where, group in heads)]
        for name, of in found.items()
    ]
    yield table(["", *(f"{where}: {group}" for where, group in heads)], lines)


def _settings(results: Found) -> Iterator[str]:
    yield f"By validation alone: {OBJECTIVE}. Best on it: {results['best']}."
    lines = []
    for name, of in results["tuning"].items():
        chosen = ", ".join(f"{k} {_short(v)}" for k, v in of["settings"].items())
        cells = [of["trials"], number(of["untuned"]), number(of["value"])]
        lines.append([name, *cells, chosen or "as they are"])
    yield table(["", "trials", "untuned", "best", "chosen"], lines)
    yield "Programs that were left out together:"
    yield "\n".join(f"- {', '.join(group)}" for group in results["folds"])
    seconds = ", ".join(f"{name} {s:.0f} s" for name, s in results["seconds"].items())
    yield f"Settings: {results['settings']}. It took: {seconds}."


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
