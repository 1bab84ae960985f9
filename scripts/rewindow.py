"""The window tables of a built benchmark made anew, from its traces and labels as they are.

    python scripts/rewindow.py FOLDER OUT [--parts 4] [--evidence] [--workers 2]

For features that changed since the build, or to cut each step into another number of windows. OUT
is a finished benchmark like FOLDER, whose traces it links to; OUT may be FOLDER itself. Evidence
depends on the windows too: unless ``--evidence`` is given it stays what FOLDER has.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the checkout, dataset/ with it

from dataset import card, croissant, labels  # noqa: E402  the path first
from dataset.labels import LabelError  # noqa: E402
from dataset.publish import Row, publish  # noqa: E402
from dataset.splits import SCHEMES  # noqa: E402
from dataset.tables import tables  # noqa: E402
from detector.cli.output import exit_on_error  # noqa: E402
from detector.errors import DetectorError  # noqa: E402
from detector.window import ByStep  # noqa: E402


def rewindow(
    folder: Path, out: Path, windower: ByStep, *, with_evidence: bool = False, workers: int = 2
) -> dict[str, Any]:
    """Write OUT; returns its manifest. Raises DetectorError, LabelError, TraceError, OSError."""
    manifest = _manifest(folder)
    if out.exists() and not out.samefile(folder) and not (out / "manifest.json").is_file():
        raise DetectorError(f"{out}: is there, and no finished benchmark; give another folder")
    traces = manifest["traces"]
    make = partial(_row, folder=folder, windower=windower, with_evidence=with_evidence)
    rows = list(_each(make, traces, workers))
    parts = {scheme: [trace[scheme] for trace in traces] for scheme in SCHEMES}
    _link(folder, out)
    written = publish(rows, parts, out)
    if not with_evidence:
        written["evidence"] = _kept(folder, out, manifest)
    manifest |= {
        "tables": written,
        "traces": [t | {"windows": len(r.windows)} for t, r in zip(traces, rows, strict=True)],
        "windows": {"parts": windower.parts, "fallback": windower.fallback},
    }
    (out / "README.md").write_text(card.text(manifest), encoding="utf-8")
    about = croissant.metadata(manifest, out)
    (out / "croissant.json").write_text(json.dumps(about, indent=1, sort_keys=True) + "\n")
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    return manifest


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise DetectorError(f"{folder}: no finished benchmark") from error
    return found


def _each(make: partial[Row], traces: Sequence[dict[str, Any]], workers: int) -> Iterator[Row]:
    """The rows of every trace, in order."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by the workers when they start
    with (
        Progress(disable=not sys.stderr.isatty()) as progress,
        multiprocessing.get_context("spawn").Pool(workers) as pool,
    ):
        yield from progress.track(pool.imap(make, traces, chunksize=8), total=len(traces))


def _row(about: dict[str, Any], folder: Path, windower: ByStep, with_evidence: bool) -> Row:
    """One trace of the manifest, read again."""
    file, name = folder / about["file"], about["name"]
    label = labels.read(labels.label_path(file))
    found = tables(file, label, name, windower, with_evidence=with_evidence)
    same = {key: about[key] for key in ("name", "file", "sha256", "licence")}
    return Row(label=label, **vars(found), **same)


def _link(folder: Path, out: Path) -> None:
    """Traces are not written again, nor copied. OUT is not finished until its manifest is."""
    out.mkdir(parents=True, exist_ok=True)
    if out.samefile(folder):
        return
    (out / "manifest.json").unlink(missing_ok=True)
    if not (out / "traces").exists():
        (out / "traces").symlink_to((folder / "traces").resolve(), target_is_directory=True)


def _kept(folder: Path, out: Path, manifest: dict[str, Any]) -> dict[str, int]:
    """The evidence of FOLDER, in OUT."""
    mine, other = folder / "tables" / "evidence", out / "tables" / "evidence"
    if not out.samefile(folder) and mine.is_dir():
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(mine, other)
    rows: dict[str, int] = manifest["tables"]["evidence"]
    return rows


def main(words: Sequence[str] | None = None) -> None:
    """Entry point; exits 2 with one line where the benchmark or a setting does not fit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a built benchmark")
    parser.add_argument("out", type=Path, help="where the new one goes; may be the same")
    parser.add_argument("--parts", type=int, default=8, help="windows per step (default: 8)")
    parser.add_argument("--evidence", action="store_true", help="gather the evidence anew, too")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    given = parser.parse_args(words)
    with exit_on_error(LabelError, ValueError):
        made = rewindow(
            given.folder,
            given.out,
            ByStep(given.parts),
            with_evidence=given.evidence,
            workers=given.workers,
        )
    print(f"{sum(t['windows'] for t in made['traces']):,} windows -> {given.out}")


if __name__ == "__main__":
    main()
