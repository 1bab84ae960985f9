"""What is kept of a run: its settings, its data, its code, and what came out.

Each run of ``detector.train`` and ``detector.evaluate`` leaves ``VERB-EXPERIMENT.run.json`` in the
folder that its setting ``record`` names. ``detector.compare`` reads such files.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from detector import __version__
from detector.lab.metrics import Estimate, operating_points

SUFFIX: Final = ".run.json"
MOST_POINTS: Final = 200  # of a curve
HERE: Final = Path(__file__).resolve().parents[2]  # the package
Points = dict[str, list[float]]


class Outcome(list[str]):
    """The lines that a run prints, and what its record keeps beside them.

    ``headline``: the few figures that runs are compared by; ``metrics``: all figures by name;
    ``curves``: points by name; ``card``: the model's; ``fit_s``: seconds spent on fitting.
    """

    def __init__(
        self,
        lines: Iterable[str],
        *,
        headline: Mapping[str, Estimate] | None = None,
        metrics: Mapping[str, Estimate] | None = None,
        curves: Mapping[str, Points] | None = None,
        card: Mapping[str, Any] | None = None,
        fit_s: float | None = None,
    ) -> None:
        super().__init__(lines)
        self.headline, self.metrics = plain(headline or {}), plain(metrics or {})
        self.curves, self.card, self.fit_s = dict(curves or {}), dict(card or {}), fit_s


def plain(figures: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """Figures as JSON has them: undefined ones as null."""
    return {
        name: {key: None if np.isnan(v) else v for key, v in asdict(figure).items()}
        for name, figure in figures.items()
    }


def write_figures(file: Path, results: dict[str, Estimate]) -> Outcome:
    """Figures as JSON (undefined ones as null), and as lines to print."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(plain(results), indent=1) + "\n")
    width = max(map(len, results))
    lines = [f"{name:<{width}}  {value}" for name, value in results.items()]
    return Outcome([*lines, f"-> {file}"], metrics=results)


def write(folder: Path, name: str, outcome: list[str], about: Mapping[str, Any]) -> Path:
    """Write ``NAME.run.json``; returns it. ``about``: what the caller knows of the run."""
    if not isinstance(outcome, Outcome):
        outcome = Outcome(outcome)
    kept = {"name": name, **about, "code": code(), **vars(outcome)}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}{SUFFIX}"
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return file


class Job(Protocol):
    """What Hydra was asked for; ``folder``: the job's own, in a multirun."""

    @property
    def experiment(self) -> str: ...
    @property
    def overrides(self) -> tuple[str, ...]: ...
    @property
    def folder(self) -> Path | None: ...


def run_and_record(
    verb: str, act: Callable[[Path, Path], list[str]], job: Job, values: Mapping[str, Any]
) -> list[str]:
    """Carry out a verb of an experiment, (data, out) to lines, and leave the record of the run."""
    begun = time.perf_counter()
    out, kept = (job.folder or Path(values[key]) for key in ("out", "record"))
    data = Path(values["data"])
    outcome = act(data, out)
    about = {
        "experiment": job.experiment,
        "verb": verb,
        "overrides": job.overrides,
        "config": values,
        "data": data_of(data),
        "seconds": time.perf_counter() - begun,
    }
    write(kept, f"{verb}-{job.experiment}", outcome, about)
    return outcome


# -- what it ran on --------------------------------------------------------------------------------


def data_of(folder: Path) -> dict[str, Any]:
    """The hashes of a finished benchmark: of its manifest (which holds those of its traces) and of
    each table. ``windows``: how it was cut, where it says so. Empty without a manifest."""
    if not (folder / "manifest.json").is_file():  # a page may be written anew without its data
        return {}
    manifest = (folder / "manifest.json").read_bytes()
    tables = sorted((folder / "tables").rglob("*.parquet"))
    return {
        "manifest_sha256": _sha256(manifest),
        "tables_sha256": {
            f.relative_to(folder / "tables").as_posix(): _sha256(f.read_bytes()) for f in tables
        },
        "windows": json.loads(manifest).get("windows"),
    }


def code() -> dict[str, Any]:
    """The version, the hash of the package's modules, and the commit where this is a checkout."""
    modules = b"".join(file.read_bytes() for file in sorted(HERE.rglob("*.py")))
    return {"version": __version__, "sha256": _sha256(modules), "commit": _commit()}


def _commit() -> str | None:
    if not (HERE.parent / ".git").exists():
        return None
    words = ["git", "-C", str(HERE.parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return None
    return done.stdout.strip() or None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -- curves ----------------------------------------------------------------------------------------


def curves(truth: npt.NDArray[np.bool_], score: npt.NDArray[np.float64]) -> dict[str, Points]:
    """``roc`` (``false_positive``, ``true_positive``) and ``pr`` (``recall``, ``precision``), from
    the highest score on, at most ``MOST_POINTS``; nothing where one kind of window is missing."""
    if not truth.any() or truth.all():
        return {}
    false, recall, precision = operating_points(truth, score)
    return {
        "roc": {
            "false_positive": _thinned(np.append(0.0, false)),
            "true_positive": _thinned(np.append(0.0, recall)),
        },
        "pr": {"recall": _thinned(recall), "precision": _thinned(precision)},
    }


def _thinned(values: npt.NDArray[np.float64]) -> list[float]:
    """Evenly spaced points, the first and the last among them."""
    at = np.unique(np.linspace(0, len(values) - 1, min(MOST_POINTS, len(values))).round())
    return [round(float(v), 5) for v in values[at.astype(np.int64)]]
