"""Build a labeled benchmark: traces, labels, and the tables that models learn from.

    python -m dataset.build benchmark=full|smoke|first out=FOLDER [bases=FOLDER]

The folder gets ``traces/`` with labels beside them, ``tables/``, the data set's card ``README.md``,
``croissant.json``, and last ``manifest.json``: its presence says that the build finished. The same
seeds and bases give the same bytes. A build that was killed goes on where it stood when it is
started again, unless the benchmark, its bases or this project's code has changed since.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import hydra
import numpy as np
from omegaconf import DictConfig
from rich.progress import Progress

from dataset import bases as published
from dataset import card, croissant, jobs, labels, units
from dataset.bases import BaseError, Found
from dataset.labels import LabelError
from dataset.publish import Row, publish
from dataset.splits import ROLES, Member, schemes
from dataset.tables import Tables, tables
from dataset.trim import trim_long
from dataset.units import LeftOut, Unit
from detector.cli.output import exit_on_error
from detector.config import CONF_DIR, plain
from detector.lab.entry import checked

HERE = Path(__file__).resolve().parent
UNFINISHED = "unfinished"  # lies in the folder while a build runs
LEVEL = 6  # of gzip: a seventh larger than the best and five times as fast, on 10 MB of JSON


def plan_units(benchmark: dict[str, Any], out: Path, folder: Path | None) -> list[Unit]:
    """Every unit of a benchmark, in a fixed order. Fetches bases where no folder is given."""
    work: list[Unit] = [*units.recorded(benchmark["recorded"], benchmark["every"])]
    work += units.simulated(benchmark["simulated"])
    faults = benchmark.get("injected")
    found: list[Found] = []
    if benchmark.get("natural") or (faults and faults["published"]):
        found = published.in_folder(folder) if folder else published.fetch(out / "bases")
    if benchmark.get("natural"):
        work += units.natural(found)
    if faults:
        usable = [base for base in found if base.name not in faults["without"]]
        mine = [*units.own_bases(faults["files"]), *(usable if faults["published"] else [])]
        ready = trim_long(mine, int(faults["most_events"]), out / UNFINISHED / "bases")
        work += units.injected(faults, ready)
    units.check_names(work)
    return work


def build(
    benchmark: dict[str, Any], out: Path, workers: int, folder: Path | None = None
) -> dict[str, Any]:
    """Build everything into ``out``; returns the manifest. ``folder`` holds the bases.

    Raises FileNotFoundError, BaseError, LabelError (also for two traces of one name), TraceError.
    """
    _check_free(out)
    work = plan_units(benchmark, out, folder)
    _begin(benchmark, work, out)
    _run(work, out, workers)
    made = [(unit, _saved(unit, out)) for unit in work]
    rows = [row for _, row in made if isinstance(row, Row)]
    parts = schemes(Member(r.label.origin, r.label.workload, r.label.device) for r in rows)
    written = publish(rows, parts, out)
    manifest = {
        "benchmark": benchmark,
        "left_out": {unit.name: row for unit, row in made if isinstance(row, str)},
        "roles": ROLES,
        "tables": written,
        "traces": [_about(row) | {s: parts[s][i] for s in parts} for i, row in enumerate(rows)],
        "jobs": jobs.published(out) if benchmark.get("jobs") else [],
    }
    (out / "README.md").write_text(card.text(manifest), encoding="utf-8")
    _replace(out / "croissant.json", _json(croissant.metadata(manifest, out)))
    _replace(out / "manifest.json", _json(manifest))
    shutil.rmtree(out / UNFINISHED)
    return manifest


def _about(row: Row) -> dict[str, Any]:
    """A trace in the manifest."""
    about = {k: v for k, v in asdict(row.label).items() if k not in ("regions", "parameters")}
    about |= {"name": row.name, "file": row.file, "sha256": row.sha256, "licence": row.licence}
    about |= {"regions": len(row.label.regions), "windows": len(row.windows)}
    about |= {"analyzed_us": row.analyzed_us, "healthy": row.healthy}
    return about | {"patterns": list(row.label.patterns)}


# -- before ----------------------------------------------------------------------------------------


def _check_free(out: Path) -> None:
    """Nothing but a build's own is ever written over. Raises LabelError."""
    mine = (out / "manifest.json").is_file() or (out / UNFINISHED).is_dir()
    for name in ("traces", "tables", "README.md", "croissant.json"):
        if (out / name).exists() and not mine:
            raise LabelError(f"{out}: holds {name} that no build made; give another folder")


def _begin(benchmark: dict[str, Any], work: Sequence[Unit], out: Path) -> None:
    """Drop what lies in ``out`` unless a killed build of the same left it."""
    bases = {
        u.base.name: u.base.sha256 for u in work if isinstance(u, (units.Injected, units.Natural))
    }
    plan = json.dumps({"benchmark": benchmark, "bases": bases, "code": _code()}, sort_keys=True)
    file = out / UNFINISHED / "plan.json"
    if not file.is_file() or file.read_text() != plan:
        for stale in (out / "traces", out / "tables", _rows(out)):
            shutil.rmtree(stale, ignore_errors=True)
    (out / "manifest.json").unlink(missing_ok=True)
    _rows(out).mkdir(parents=True, exist_ok=True)
    _replace(file, plan.encode())


def _code() -> str:
    """All that decides what a trace and its rows hold: a change of it makes them anew."""
    found = [p for p in HERE.rglob("*") if p.suffix in (".py", ".json", ".yaml")]
    found += (HERE.parent / "detector").rglob("*.py")
    return sha256(b"".join(p.read_bytes() for p in sorted(found))).hexdigest()


# -- one unit after the other ----------------------------------------------------------------------


def _run(work: Sequence[Unit], out: Path, workers: int) -> None:
    left = [unit for unit in work if not _row_file(unit, out).is_file()]
    chunks = list(units.chunks(left))
    with (
        Progress(disable=not sys.stderr.isatty()) as progress,
        multiprocessing.get_context("spawn").Pool(workers) as pool,
    ):
        bar = progress.add_task("building", total=len(work), completed=len(work) - len(left))
        for count in pool.imap_unordered(partial(_make_all, out=out), chunks):
            progress.advance(bar, count)


def _make_all(chunk: Sequence[Unit], out: Path) -> int:
    for unit in chunk:
        make(unit, out)
    return len(chunk)


def make(unit: Unit, out: Path) -> None:
    """Make one trace, its label and its rows; the file with the rows comes last, and says that the
    others are there."""
    try:
        content, label = unit.make()
    except LeftOut as reason:
        _save(unit, out, {"left_out": str(reason)}, None)
        return
    trace = out / _place(unit)
    trace.parent.mkdir(parents=True, exist_ok=True)
    packed = content if content.startswith(published.GZIP) else _packed(content)
    trace.write_bytes(packed)
    label = replace(label, regions=tuple(sorted(label.regions, key=lambda r: r.start_us)))
    labels.write(label, labels.label_path(trace))
    found = tables(trace, label, unit.name)
    rows: dict[str, Any] = {"windows": found.windows, "candidates": found.candidates}
    rows["evidence"] = found.evidence
    rows["analyzed_us"] = found.analyzed_us
    _save(unit, out, {"sha256": sha256(packed).hexdigest(), **rows}, found)


def _packed(content: bytes) -> bytes:
    return gzip.compress(content, LEVEL, mtime=0)


def _place(unit: Unit) -> str:
    return f"traces/{unit.name}{labels.TRACE_SUFFIX}"


def _rows(out: Path) -> Path:
    return out / UNFINISHED / "rows"


def _row_file(unit: Unit, out: Path) -> Path:
    return _rows(out) / f"{unit.name.replace('/', '__')}.npz"


def _save(unit: Unit, out: Path, about: dict[str, Any], found: Tables | None) -> None:
    matrix = np.zeros((0, 0), np.float32) if found is None else found.matrix
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    file = _row_file(unit, out)
    part = file.with_suffix(".part")
    with part.open("wb") as stream:
        np.savez(stream, text=text, matrix=matrix)
    part.replace(file)


def _saved(unit: Unit, out: Path) -> Row | str:
    """What a unit made; why it made nothing."""
    with np.load(_row_file(unit, out)) as saved:
        about, matrix = json.loads(saved["text"].tobytes()), saved["matrix"]
    if "left_out" in about:
        return str(about["left_out"])
    label = labels.read(labels.label_path(out / _place(unit)))
    return Row(unit.name, label, _place(unit), licence=unit.licence, matrix=matrix, **about)


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def _replace(file: Path, content: bytes) -> None:
    """Write a file that takes its name only when it is whole."""
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(content)
    part.replace(file)


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="build")
def run(config: DictConfig) -> None:
    """Build what Hydra composed."""
    values = plain("build", config).values
    out, bases = (
        values[key] and Path(hydra.utils.to_absolute_path(str(values[key])))
        for key in ("out", "bases")
    )
    with exit_on_error(LabelError, BaseError):
        manifest = build(values["benchmark"], out, int(values["workers"]), bases)
    counts = Counter(t["quality"] for t in manifest["traces"])
    print(f"{len(manifest['traces'])} traces ({dict(counts)}) -> {out}")


def main() -> None:
    """Entry point; exits 2 with one line where a setting or a labeled trace does not fit."""
    with exit_on_error():
        checked("build", sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
