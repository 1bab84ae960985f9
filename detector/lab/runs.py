"""Runs of train and evaluate in a table and a plot."""

from __future__ import annotations

import argparse
import glob
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from detector.cli.exit_codes import exit_code
from detector.errors import DetectorError

SUFFIX: Final = ".run.json"
Run = Mapping[str, Any]  # what a record holds
Figure = Mapping[str, float | None]


def main(argv: Sequence[str] | None, say: Callable[[str], object]) -> int:
    """Compare, and ``say`` the table; the exit code: 0 done, 2 for a run that cannot be read."""
    arguments = _parser().parse_args(argv)
    return exit_code(lambda: _compare(arguments.run, arguments.out, say))


def _compare(words: Sequence[str], out: Path | None, say: Callable[[str], object]) -> int:
    found = [(file, _run(file)) for file in _files(words)]
    rows = list(_rows(found))
    for line in _table(rows):
        say(line)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "compare.json").write_text(json.dumps(rows, indent=1) + "\n")
        _plot(rows, [run for _, run in found], out / "compare.png")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m detector.compare", description=__doc__)
    parser.add_argument(
        "run", nargs="+", metavar="RUN", help=f"a record (*{SUFFIX}), a folder of some, or a glob"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="also write compare.json and compare.png there"
    )
    return parser


# -- reading ---------------------------------------------------------------------------------------


def _files(words: Sequence[str]) -> list[Path]:
    """The records that the words name, each once, in order. Raises DetectorError."""
    found: dict[Path, None] = {}
    for word in words:
        places = [Path(word)] if Path(word).exists() else _matching(word)
        files = [f for p in places for f in (sorted(p.rglob(f"*{SUFFIX}")) if p.is_dir() else [p])]
        if not files:
            raise DetectorError(f"{word}: no run here (a file *{SUFFIX})")
        found |= dict.fromkeys(files)
    return list(found)


def _matching(pattern: str) -> list[Path]:
    """Folders and records; whatever else lies beside them is none of them."""
    names = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (absolute patterns)
    return [path for path in map(Path, names) if path.is_dir() or path.name.endswith(SUFFIX)]


def _run(file: Path) -> Run:
    """Raises DetectorError for a file that is no record."""
    try:
        run = json.loads(file.read_text(encoding="utf-8"))
        assert isinstance(run["headline"], dict)
        assert isinstance(run["config"], dict)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise DetectorError(f"{file}: no record of a run") from error
    return dict(run)


def _rows(found: Sequence[tuple[Path, Run]]) -> Iterator[dict[str, Any]]:
    """What a line of the table shows: of the overrides only those that not all runs share."""
    given = [[str(word) for word in run.get("overrides", ())] for _, run in found]
    shared = set.intersection(*map(set, given)) if len(found) > 1 else set()
    for (file, run), words in zip(found, given, strict=True):
        yield {
            "run": str(file),
            "name": run["name"],
            "differs": [word for word in words if word not in shared],
            "data": str(run.get("data", {}).get("manifest_sha256", ""))[:8],
            "windows": (run.get("data", {}).get("windows") or {}).get("parts"),
            "figures": run["headline"] or run.get("metrics", {}),
            "fit_s": run.get("fit_s"),
            "seconds": run.get("seconds"),
        }


# -- showing ---------------------------------------------------------------------------------------


def _figures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the figures that any run has."""
    return list(dict.fromkeys(name for row in rows for name in row["figures"]))


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line per run, its columns as wide as need be."""
    names = _figures(rows)
    lines = [["run", "differs", "data", *names, "fit s"]]
    for row in rows:
        figures = [_with_interval(row["figures"].get(name)) for name in names]
        fit = "–" if row["fit_s"] is None else f"{row['fit_s']:.1f}"
        lines.append([row["name"], _label(row), row["data"] or "–", *figures, fit])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip()


def _label(row: Mapping[str, Any]) -> str:
    return " ".join(row["differs"]) or "–"


def _with_interval(figure: Figure | None) -> str:
    if figure is None or figure["value"] is None:
        return "–"
    return f"{figure['value']:.3f} [{figure['low'] or 0:.3f}, {figure['high'] or 0:.3f}]"


def _plot(rows: Sequence[Mapping[str, Any]], runs: Sequence[Run], path: Path) -> None:
    """The figures with their intervals, and the runs' ROC curves."""
    from matplotlib.figure import Figure as Page

    names = _figures(rows)
    curves = sorted({n for run in runs for n in run.get("curves", {}) if n.startswith("roc")})
    wide = 1 + len(curves)
    page = Page(figsize=(4.5 * wide, 1.5 + 0.35 * max(8, len(rows))), layout="constrained")
    first, *others = page.subplots(1, wide, squeeze=False)[0]
    for k, name in enumerate(names):
        _intervals(first, rows, name, k / (2 * max(1, len(names))))
    first.set_yticks(range(len(rows)), [_short(row) for row in rows])
    first.set_ylim(len(rows) - 0.2, -0.5)
    first.legend(fontsize="small") if names else None
    for axes, name in zip(others, curves, strict=True):
        axes.set(title=name.upper(), xlabel="false positives", ylabel="true positives")
        for row, run in zip(rows, runs, strict=True):
            if points := run.get("curves", {}).get(name):
                label = _short(row)
                axes.plot(points["false_positive"], points["true_positive"], label=label, lw=1.2)
        axes.legend(fontsize="x-small")
    page.savefig(path, dpi=110)


def _intervals(axes: Any, rows: Sequence[Mapping[str, Any]], name: str, below: float) -> None:
    at = [(i + below, row["figures"].get(name)) for i, row in enumerate(rows)]
    there = [(y, f) for y, f in at if f and f["value"] is not None]
    x = [f["value"] for _, f in there]
    left = [max(0.0, f["value"] - f["low"]) for _, f in there]
    right = [max(0.0, f["high"] - f["value"]) for _, f in there]
    axes.errorbar(x, [y for y, _ in there], xerr=[left, right], fmt="o", ms=4, label=name)


def _short(row: Mapping[str, Any]) -> str:
    words = [word.rpartition(".")[2] for word in row["differs"]]
    return " ".join(words) or str(row["name"])
