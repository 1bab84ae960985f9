"""``results/strangers.json`` as pages: one page of what matters, details beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from detector.errors import DetectorError
from detector.lab.comparison import details, looks, plots
from detector.lab.comparison.benchmark import BY_HAND, CPU, DEVICE
from detector.lab.comparison.contenders import SHIPS
from detector.lab.comparison.findings import BOTH, CONSTANT, CORE, PRODUCT
from detector.lab.comparison.markdown import interval, number, table

LOOKS: Final = "results/looks.md"
EARLIER: Final = "product-*.json"  # in results/
SAVING: Final = "largest saving"  # the untrained row that the flagger has to beat
SHOWN: Final = (DEVICE, CPU, BY_HAND)
WORST: Final = 6  # patterns that are named least ...
OFTEN: Final = 5  # ... of those with so many faults
Found = Mapping[str, Any]


def write(results: Found, out: Path) -> list[str]:
    """All pages and plots; returns the lines of the first."""
    folder = out / "results"
    folder.mkdir(parents=True, exist_ok=True)
    results = _with_earlier(results, sorted(folder.glob(EARLIER)))
    plots.findings(results["findings"], folder / "strangers.png")
    shown = {name: rows for name, rows in results["findings"].items() if name in SHOWN}
    plots.reliability(shown, PRODUCT, folder / "reliability.png")
    for name, text in details.pages(results).items():
        (folder / name).write_text(text, "utf-8")
    text = render(results, looks.count(out / LOOKS))
    (out / "RESULTS.md").write_text(text, "utf-8")
    return text.splitlines()


def _with_earlier(results: Found, files: list[Path]) -> Found:
    """The same with a row for each earlier product whose figures were kept: those of its own run,
    oldest first."""
    groups = results["findings"]
    for earlier in sorted(map(kept, files), key=lambda one: str(one["date"])):
        row = f"product before ({earlier['commit'][:7]})"
        groups = {
            group: {**rows, row: earlier["findings"][group]}
            if group in earlier["findings"]
            else rows
            for group, rows in groups.items()
        }
    return {**results, "findings": groups}


def log_look(about: Found, out: Path) -> int:
    """A line in the log of looks; returns how many it holds."""
    parts = ("train", "validation", "test", "natural")
    about = {key: str(about[key]) for key in ("date", "commit", "command")}
    return looks.add(out / LOOKS, about["date"], about["commit"], about["command"], parts)


def render(results: Found, looked: int) -> str:
    """The first page."""
    parts = ["# Results", *_head(results), *_findings(results["findings"])]
    parts += [*_stated(results["findings"]), *_windows(results["windows"].get(DEVICE, {}))]
    parts += [*_flagger(results["windows"]), *_fails(results["findings"].get(DEVICE, {}))]
    return "\n\n".join([*parts, *_how(results, looked)]) + "\n"


def _head(results: Found) -> Iterator[str]:
    about, traces = results["about"], results["traces"]
    count = ", ".join(f"{n:,} {origin}" for origin, n in traces.items())
    programs = sum(map(len, results["folds"]))
    yield (
        f"{about['date']} UTC, commit {about['commit']}: `{about['command']}`. {count} traces. "
        f"Every real trace is scored once, by models that never saw its program ({programs} "
        f"programs, left out in {len(results['folds'])} groups by the flaggers, in "
        f"{results['settings']['confidence_folds']} by the confidence, with everything made from "
        "them). 95 % intervals by bootstrap over bases and workloads. Faults are labeled with "
        "what they cost; of a real base nobody knows what else is wrong."
    )


# -- findings --------------------------------------------------------------------------------------


def _findings(groups: Found) -> Iterator[str]:
    yield "## Findings: what a user with an unknown trace sees"
    yield (
        "Right: the pattern, the place (IoU ≥ 0.3, or half of the label) and the savings (within "
        "2×) of the label, in an injected trace less what the row reports of the untouched base by "
        "the same pattern. Precision and recall: findings and problems of 5 % and more. Masked: "
        "findings where nobody knows what is wrong are left out: most of a real base's time, and "
        "what a row reports of the untouched base as well, where it rises by less than 3 % of the "
        "trace or 30 % of itself. Named, new: injected faults beside their untouched base. ECE: of "
        "the stated confidence. All rows choose among the "
        f"same candidates. *{CORE}*: every one; *{PRODUCT}*: the product, those of 0.5 and more; "
        "a flagger's row: those in whose places it flags a window of their side, as sure as its "
        f"highest score there; *{BOTH}*: those that both keep."
    )
    for group in SHOWN:
        if group in groups:
            yield f"**{group[0].upper()}{group[1:]}**"
            if group == BY_HAND:
                yield (
                    "A development set: costs and patterns were defined by it. The confidence "
                    "learns from the hand labels of *other* programs, and is held out by program; "
                    "the flaggers learn from none."
                )
            yield _finding_table(groups[group])
    yield "![precision and recall with intervals](results/strangers.png)"


def _finding_table(rows: Found) -> str:
    paired = any(of["paired"] for of in rows.values())
    heads = ["", "findings", "precision", "unmasked", "product − this", "recall"]
    heads += ["wrong / healthy trace", "of ≥ 0.9", "right", "ECE"]
    heads += ["named", "new", "within 2×"] if paired else []
    lines = []
    for name, of in rows.items():
        figures = of["masked"]["figures"]
        margin = (of["product minus this"].get("masked") or {}).get("precision")
        cells = [of["masked"]["findings"], interval(figures["precision"])]
        cells += [interval(of["unmasked"]["figures"]["precision"]), interval(margin)]
        cells += [interval(figures["recall"]), number(figures["wrong_per_healthy"]["value"])]
        cells += [_sure(of["masked"]["reliability"]), interval(figures["sure_precision"])]
        cells += [number(figures["ece"]["value"])]
        if paired:
            whole = (of["paired"] or {}).get("all") or {}
            cells += [interval(whole.get(key)) for key in ("named", "new", "within_2x")]
        lines.append([name, *cells])
    return table(heads, lines)


def _sure(bins: Any) -> str:
    """How many findings state 0.9 and more; a dash where no bins were kept."""
    return f"{bins[-1]['count']:.0f}" if bins else "–"


def _stated(groups: Found) -> Iterator[str]:
    """What is right of the product's findings by what they state."""
    shown = {group: groups[group][PRODUCT]["masked"] for group in SHOWN if group in groups}
    if not shown:
        return
    yield "## Stated confidence"
    yield (
        f"Findings of *{PRODUCT}* of 5 % and more, masked: how many state so much, what they state "
        "on average, and which share is right."
    )
    bins = zip(*(of["reliability"] for of in shown.values()), strict=True)
    lines = [
        [f"{row[0]['low']:.1f} to {row[0]['high']:.1f}", *map(_bin, row)]
        for row in bins
        if any(b["count"] for b in row)
    ]
    lines += [["ECE", *(interval(of["figures"]["ece"]) for of in shown.values())]]
    yield table(["stated", *shown], lines)
    yield "![reliability](results/reliability.png)"


def _bin(one: Found) -> str:
    if not one["count"]:
        return "–"
    return f"{one['count']:.0f}: {one['stated']:.2f} stated, {one['right']:.2f} right"


# -- windows ---------------------------------------------------------------------------------------


def _windows(rows: Found) -> Iterator[str]:
    if not rows:
        return
    yield "## Windows and regions of the same injected traces"
    yield (
        "AUC-ROC within traces, unmasked: windows that nobody knows count as healthy. Regions: "
        "IoU ≥ 0.3."
    )
    lines = []
    for name, of in rows.items():
        masked, unmasked = (of["figures"][way] for way in ("masked", "unmasked"))
        cells = [interval(unmasked.get(f"{side} within")) for side in ("cpu", "gpu")]
        cells += [interval(masked.get(key)) for key in ("recall 0.3", "precision 0.3")]
        lines.append([name, *cells, interval(unmasked.get("precision 0.3"))])
    heads = ["", "cpu within", "gpu within", "region recall", "region precision", "unmasked"]
    yield table(heads, lines)


def _flagger(groups: Found) -> Iterator[str]:
    """Whether what is learned of windows beats the core's own savings there."""
    keys = [f"{side} {name}" for side in ("cpu", "gpu") for name in ("AUC", "AP", "within")]
    lines, margins = [], []
    for group in SHOWN:
        of = groups.get(group, {}).get(SAVING)
        for way in ("masked", "unmasked") if of else ():
            mine = [of["flagger minus this"][way].get(key) for key in keys]
            margins += [m for m in mine if m and m["low"] is not None]
            lines.append([f"{group}, {way}", *map(interval, mine)])
    if not lines:
        return
    ahead, behind = sum(m["low"] > 0 for m in margins), sum(m["high"] < 0 for m in margins)
    yield "## Does the flagger beat the largest saving of a window?"
    yield (
        f"*{SHIPS}* minus *{SAVING}* (nothing learned: what repairing the largest candidate of the "
        "side saves of the window), on the same resamples: AUC-ROC over all windows, average "
        f"precision, AUC-ROC within traces. Of {len(margins)} differences {ahead} lie above 0 with "
        f"their interval, {behind} below."
    )
    yield table(["", *keys], lines)


# -- the rest --------------------------------------------------------------------------------------


def _fails(rows: Found) -> Iterator[str]:
    if PRODUCT not in rows:
        return
    of = rows[PRODUCT]
    yield "## What fails"
    kinds = of["masked"]["kinds"]
    counts = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items(), key=lambda k: -k[1]))
    yield (
        f"Findings of *{PRODUCT}* of 5 % and more on injected traces: {counts or 'none'}. The "
        "worst, with pictures, and what was tried: [errors](docs/errors.md)."
    )
    paired = of["paired"]
    if paired:
        patterns = [item for item in paired["patterns"].items() if item[1]["faults"] >= OFTEN]
        worst = sorted(patterns, key=lambda item: (item[1]["named"]["value"], item[0]))[:WORST]
        least = ", ".join(map(_named, worst))
        yield (
            f"Faults named least, of patterns with {OFTEN} and more: {least or '–'}. Other "
            f"patterns that rise by 3 % and more: {interval(paired['alarms'])} a trace."
        )


def _named(item: tuple[str, Found]) -> str:
    pattern, row = item
    return f"{pattern} {round(row['named']['value'] * row['faults'])}/{row['faults']}"


def _how(results: Found, looked: int) -> Iterator[str]:
    settings = results["settings"]
    yield "## How to read it"
    yield (
        f"Flaggers with settings got {settings['trials']} trials each on the validation part, "
        "whose programs are in the tables, too ([without them](results/findings.md)). By "
        f"validation alone {results['best']} scores windows best. {SHIPS}: settings, thresholds "
        f"and calibration of what ships. Flaggers learn from {settings['train_windows']:,} windows "
        f"at most. *{CONSTANT}*: the most frequent costly pattern, over the whole trace. Products "
        "before: figures of their own runs, with half of the injected traces scanned and a judge "
        "trained on less than the one that shipped; what the untouched base has as well counted as "
        "wrong."
    )
    yield (
        f"The test data were looked at {looked} times ([log](results/looks.md)). Details: "
        "[findings](results/findings.md), [windows and regions](results/windows.md), "
        "[ablations](results/ablations.md), [settings](results/settings.md). How each figure may "
        "still flatter: [card](dataset/card.md#how-the-figures-may-flatter)."
    )


# -- files -----------------------------------------------------------------------------------------


def keep(results: Found, file: Path) -> None:
    """Write what was measured."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(plain(results)) + "\n", "utf-8")


def kept(file: Path) -> dict[str, Any]:
    """What was measured before. Raises DetectorError."""
    try:
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DetectorError(f"{file}: nothing measured to write a page of ({error})") from error
    return found


def plain(value: Any) -> Any:
    """For JSON: dataclasses as objects, undefined numbers as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else round(float(value), 5)
    return value.item() if isinstance(value, np.generic) else value
