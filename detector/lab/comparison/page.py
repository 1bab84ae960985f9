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
from detector.lab.comparison.contenders import OURS, TODAY
from detector.lab.comparison.markdown import interval, number, table
from detector.lab.comparison.scans import CLAIMS, PRODUCT

LOOKS: Final = "results/looks.md"
EARLIER: Final = "product-before.json"  # in results/
WORST: Final = 6  # patterns that are named least ...
OFTEN: Final = 5  # ... of those with so many faults
Found = Mapping[str, Any]


def write(results: Found, out: Path) -> list[str]:
    """All pages and plots; returns the lines of the first."""
    folder = out / "results"
    folder.mkdir(parents=True, exist_ok=True)
    results = _with_before(results, folder / EARLIER)
    plots.findings(results["findings"], folder / "strangers.png")
    plots.reliability(results["findings"], folder / "reliability.png")
    for name, text in details.pages(results).items():
        (folder / name).write_text(text, "utf-8")
    text = render(results, looks.count(out / LOOKS))
    (out / "RESULTS.md").write_text(text, "utf-8")
    return text.splitlines()


def _with_before(results: Found, file: Path) -> Found:
    """The same with a row of an earlier product, where its figures were kept in ``file``: those of
    its own run, with the same command on the same data."""
    if not file.is_file():
        return results
    earlier = kept(file)
    row = f"{PRODUCT} before ({earlier['commit'][:7]})"
    joined = {
        group: {**rows, row: earlier["findings"][group]} if group in earlier["findings"] else rows
        for group, rows in results["findings"].items()
    }
    return {**results, "findings": joined}


def log_look(about: Found, out: Path) -> int:
    """A line in the log of looks; returns how many it holds."""
    parts = ("train", "validation", "test", "natural")
    about = {key: str(about[key]) for key in ("date", "commit", "command")}
    return looks.add(out / LOOKS, about["date"], about["commit"], about["command"], parts)


def render(results: Found, looked: int) -> str:
    """The first page."""
    parts = ["# Results", *_head(results), *_findings(results), *_windows(results)]
    parts += [*_fails(results), *_how(results, looked)]
    return "\n\n".join(parts) + "\n"


def _head(results: Found) -> Iterator[str]:
    about, traces = results["about"], results["traces"]
    count = ", ".join(f"{n:,} {origin}" for origin, n in traces.items())
    programs = sum(map(len, results["folds"]))
    yield (
        f"{about['date']} UTC, commit {about['commit']}: `{about['command']}`. {count} traces. "
        f"Every real trace is scored once, by models that never saw its program ({programs} "
        f"programs, left out in {len(results['folds'])} groups, with everything made from them). "
        "95 % intervals by bootstrap over bases and workloads. Faults are labelled with what they "
        "cost; of a real base nobody knows what else is wrong."
    )


def _findings(results: Found) -> Iterator[str]:
    yield "## Findings: what a user with an unknown trace sees"
    yield (
        "Right: the pattern, the place (IoU ≥ 0.3, or half of the label) and the savings (within "
        "2×) of the label. Precision and recall: findings and problems of 5 % and more. Masked: "
        "findings where nobody knows what is wrong are left out. Named, new: injected faults "
        "beside their untouched base. ECE: of the stated confidence."
    )
    for group in (DEVICE, CPU):
        if group in results["findings"]:
            yield f"**{group[0].upper()}{group[1:]}**"
            yield _finding_table(results["findings"][group])
    yield "![precision and recall with intervals](results/strangers.png)"


def _finding_table(rows: Found) -> str:
    paired = any(of["paired"] for of in rows.values())
    heads = ["", "precision", "unmasked", f"{PRODUCT} − this", "recall", "wrong / healthy trace"]
    heads += ["ECE", "named", "new", "within 2×"] if paired else ["ECE"]
    lines = []
    for name, of in rows.items():
        figures = of["masked"]["figures"]
        margin = (of["product minus this"].get("masked") or {}).get("precision")
        cells = [interval(figures["precision"]), interval(of["unmasked"]["figures"]["precision"])]
        cells += [interval(margin), interval(figures["recall"])]
        cells += [number(figures["wrong_per_healthy"]["value"]), number(figures["ece"]["value"])]
        if paired:
            whole = (of["paired"] or {}).get("all") or {}
            cells += [interval(whole.get(key)) for key in ("named", "new", "within_2x")]
        lines.append([name, *cells])
    return table(heads, lines)


def _windows(results: Found) -> Iterator[str]:
    rows = results["windows"].get(DEVICE)
    if not rows:
        return
    yield "## Windows and regions of the same injected traces"
    yield (
        "AUC-ROC within traces, unmasked: windows that nobody knows count as healthy. Regions: "
        f"IoU ≥ 0.3. Last column: average precision of {OURS} (tuned) minus this, both sides."
    )
    lines = []
    for name, of in rows.items():
        cells = [
            interval(of["figures"]["unmasked"].get(f"{side} within")) for side in ("cpu", "gpu")
        ]
        for key in ("recall 0.3", "precision 0.3"):
            cells += [interval(of["figures"]["masked"].get(key))]
        cells += [interval(of["figures"]["unmasked"].get("precision 0.3"))]
        margin = of["ours minus this"].get("unmasked", {})
        cells += [" / ".join(interval(margin.get(f"{side} AP")) for side in ("cpu", "gpu"))]
        lines.append([name, *cells])
    heads = ["", "cpu within", "gpu within", "region recall", "region precision", "unmasked"]
    yield table([*heads, "AP cpu / gpu"], lines)


def _fails(results: Found) -> Iterator[str]:
    rows = results["findings"].get(DEVICE, {})
    of = rows.get(PRODUCT) or rows.get(OURS)
    if not of:
        return
    name = PRODUCT if PRODUCT in rows else OURS
    yield "## What fails"
    kinds = of["masked"]["kinds"]
    counts = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items(), key=lambda k: -k[1]))
    yield (
        f"Findings of {name} of 5 % and more on injected traces, by kind: {counts or 'none'}. With "
        "a stated confidence of 0.9 and more "
        f"{interval(of['masked']['figures']['sure_precision'])} are right."
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
    yield from _by_hand(results["findings"].get(BY_HAND, {}), name)


def _by_hand(rows: Found, name: str) -> Iterator[str]:
    """The development set in one sentence, beside the claims alone."""
    said = [
        f"{row} {interval(of['precision'])} right, recall {interval(of['recall'])}"
        for row in (name, CLAIMS)
        if row in rows and (of := rows[row]["masked"]["figures"])
    ]
    if said:
        yield (
            "On the traces labelled by hand, a development set by which costs were defined: "
            f"{'; '.join(said)}."
        )


def _named(item: tuple[str, Found]) -> str:
    pattern, row = item
    return f"{pattern} {round(row['named']['value'] * row['faults'])}/{row['faults']}"


def _how(results: Found, looked: int) -> Iterator[str]:
    settings = results["settings"]
    yield "## How to read it"
    yield (
        f"Rows with settings got {settings['trials']} trials each on the validation part, whose "
        "programs are in the tables, too ([without them](results/findings.md)). By validation "
        f"alone {results['ships']} scores windows best. {TODAY}: thresholds and calibration of "
        f"what ships. The judge of {PRODUCT} learnt from {settings['judge_texts']:,} texts for "
        f"{settings['judge_epochs']} epochs, less than the one that ships, and models from "
        f"{settings['train_windows']:,} windows at most. {100 * settings['scanned']:.0f} % of the "
        "injected traces were scanned, and all bases. Rows beside it have no judge: a flagged "
        "window's likeliest pattern, priced by its claim."
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
