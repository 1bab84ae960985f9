"""The page's plots: small PNGs of few colours, with figures alone in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from detector.comparison.figures import curves as curves_of
from detector.comparison.scored import Scored
from detector.flagger.training import SIDES
from detector.taxonomy import CLASSES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS: Final = (
    *("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#7f7f7f"),
)
DPI, SHADES = 80, 48  # of a picture; colours of its file


def curves(name: str, scored: Mapping[str, Scored], path: Path) -> None:
    """ROC and precision-recall of every flagger, a row for each side."""
    figure = _figure(9, 8)
    for row, side in enumerate(SIDES):
        roc, pr = (figure.add_subplot(2, 2, 2 * row + i) for i in (1, 2))
        for i, (flagger, one) in enumerate(scored.items()):
            if (found := curves_of(one, side)) is not None:
                style: dict[str, Any] = {
                    "color": COLOURS[i % len(COLOURS)],
                    "lw": 1.8 if i == 0 else 1.0,
                }
                ends = np.append(0, found.false_share), np.append(0, found.recall)
                roc.plot(*ends, label=flagger, **style)
                pr.plot(found.recall, found.precision, **style)
        roc.plot([0, 1], [0, 1], color="#bbbbbb", lw=0.7, ls="--")
        _axes(roc, f"{name}, {side} side", "false alarms / healthy windows", "recall")
        _axes(pr, "", "recall", "precision")
        if roc.get_legend_handles_labels()[0]:
            roc.legend(fontsize=7, frameon=False, loc="lower right")
    figure.tight_layout()
    save(figure, path)


def bars(tests: Mapping[str, Any], path: Path) -> None:
    """Window AUC-ROC of every flagger in every test with its interval, a panel for each side."""
    names = list(dict.fromkeys(f for test in tests.values() for f in test["flaggers"]))
    figure = _figure(11, 6)
    for row, side in enumerate(SIDES):
        axes = figure.add_subplot(2, 1, row + 1)
        for i, name in enumerate(names):
            for j, test in enumerate(tests.values()):
                value = test["flaggers"].get(name, {}).get("windows", {}).get(side, {}).get("AUC")
                if value is not None:
                    x = j + (i - (len(names) - 1) / 2) * 0.8 / len(names)
                    colour = COLOURS[i % len(COLOURS)]
                    axes.plot([x, x], [value.low, value.high], color=colour, lw=1.5)
                    axes.plot([x], [value.value], "o", color=colour, ms=4)
        axes.axhline(0.5, color="#bbbbbb", lw=0.7, ls="--")
        axes.set_xticks(range(len(tests)), list(tests), fontsize=8)
        axes.set_xlim(-0.6, len(tests) - 0.4)
        axes.set_ylabel(f"window AUC-ROC, {side} side", fontsize=8)
        axes.tick_params(axis="y", labelsize=7)
        _open(axes)
    for i, name in enumerate(names):
        colour = COLOURS[i % len(COLOURS)]
        figure.text(0.06 + 0.13 * i, 0.975, f"● {name}", color=colour, fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    save(figure, path)


def confusion(name: str, pairs: Sequence[Mapping[str, Any]], path: Path) -> bool:
    """Told classes by true class, each row's shares; False where there are none to draw."""
    if not pairs:
        return False
    rows = [c for c in CLASSES if any(p["true"] == c for p in pairs)]
    columns = [c for c in CLASSES if any(c in (p["told"], p["true"]) for p in pairs)]
    count = np.zeros((len(rows), len(columns)))
    for p in pairs:
        count[rows.index(p["true"]), columns.index(p["told"])] = p["count"]
    figure = _figure(3.2 + 0.24 * len(columns), 2.8 + 0.24 * len(rows))
    axes = figure.add_subplot()
    axes.imshow(count / count.sum(axis=1, keepdims=True), cmap="Blues", vmin=0, vmax=1)
    for i, j in np.argwhere(count > 0):
        dark = count[i, j] > count[i].sum() / 2
        text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6}
        axes.text(j, i, f"{count[i, j]:.0f}", color="white" if dark else "black", **text)
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.set_title(f"{name}: regions by true (rows) and told class", fontsize=8, loc="left")
    figure.tight_layout()
    save(figure, path)
    return True


def _axes(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.01)
    axes.tick_params(labelsize=7)
    _open(axes)


def _open(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI)


def save(figure: Figure, path: Path) -> Path:
    """As a PNG of few colours: a fifth of the size, and the same to the eye."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    with Image.open(path) as whole:
        few = whole.convert("RGB").quantize(SHADES)
    few.save(path, optimize=True)
    return path
