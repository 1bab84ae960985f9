"""The page's plots: small PNGs of few colors, with figures alone in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detector.lab.comparison.benchmark import CPU, DEVICE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS: Final = (
    *("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#7f7f7f"),
)
DPI, SHADES = 80, 48  # of a picture; colors of its file


def findings(groups: Mapping[str, Any], path: Path) -> None:
    """Precision and recall of every contender's findings with their intervals, a panel each."""
    figure = _figure(10, 4)
    shown = [(group, groups[group]) for group in (DEVICE, CPU) if group in groups]
    for i, (group, rows) in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), i + 1)
        for j, key in enumerate(("precision", "recall")):
            _points(axes, rows, key, j)
        axes.set_yticks(range(len(rows)), list(rows), fontsize=7)
        axes.set_title(group, fontsize=8, loc="left")
        axes.set_xlim(-0.02, 1.02)
        axes.invert_yaxis()
        _open(axes)
    if shown:
        figure.axes[0].legend(fontsize=7, frameon=False, loc="upper right")
        figure.tight_layout()
    save(figure, path)


def _points(axes: Any, rows: Mapping[str, Any], key: str, j: int) -> None:
    """A figure of every row, masked, beside the other one."""
    named = False
    for y, of in enumerate(rows.values()):
        value = of["masked"]["figures"][key]
        if value["value"] is None:
            continue
        at = y + 0.3 * j - 0.15
        label, named = (None if named else f"{key}, 5 % and more"), True
        axes.plot([value["low"], value["high"]], [at, at], color=COLORS[j], lw=1.5)
        axes.plot([value["value"]], [at], "o", color=COLORS[j], ms=4, label=label)


def reliability(groups: Mapping[str, Any], row: str, path: Path) -> None:
    """How many of a row's findings of 5 % and more are right by what they state, by group; the size
    of a point is how many there are."""
    figure = _figure(5, 4)
    axes = figure.add_subplot()
    for color, (name, rows) in zip(COLORS, groups.items(), strict=False):
        bins = [b for b in rows[row]["masked"]["reliability"] if b["count"]]
        stated, right = ([b[key] for b in bins] for key in ("stated", "right"))
        axes.plot(stated, right, "-", lw=1, color=color, label=name)
        axes.scatter(stated, right, s=[4 + b["count"] for b in bins], color=color)
    axes.plot([0, 1], [0, 1], color="#bbbbbb", lw=0.7, ls="--")
    _axes(axes, f"{row}, masked", "stated confidence", "right")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=6, frameon=False, loc="upper left")
    figure.tight_layout()
    save(figure, path)


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
    """As a PNG of few colors: a fifth of the size, and the same to the eye."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    with Image.open(path) as whole:
        few = whole.convert("RGB").quantize(SHADES)
    few.save(path, optimize=True)
    return path
