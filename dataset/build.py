"""Build a labelled benchmark: traces, labels, and the tables that models learn from.

    python -m dataset.build benchmark=first out=FOLDER

The folder gets ``traces/`` (the simulated ones; recorded ones stay where they are),
``windows.parquet``, ``evidence.parquet``, and last ``manifest.json``: its presence says that the
build finished. The same seed gives the same rows. A build that was killed goes on where it stood
when it is started again, unless the benchmark or the simulator has changed since.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import hydra
import numpy as np
from omegaconf import DictConfig
from rich.progress import track

from dataset import labels
from dataset.tables import Tables, tables
from detector.config import CONF_DIR, checked, plain
from detector.features import COLUMNS
from detector.output import told

HERE = Path(__file__).resolve().parent
UNFINISHED = "unfinished.json"  # lies in the folder while a build runs


@dataclass(frozen=True)
class Unit:
    """One trace to make or read: the unit of work, free of shared state."""

    name: str
    folder: str  # where its trace lies, or goes
    recipe: tuple[str | None, str, str, int] | None  # simulated: pattern, workload, device, seed


def units(benchmark: dict[str, Any], out: Path) -> Iterator[Unit]:
    """Every unit of a benchmark, in a fixed order."""
    for folder in benchmark["recorded"]:
        root = HERE.parent / folder
        if not root.is_dir():
            raise FileNotFoundError(f"{root}: no recorded traces")
        for trace, _ in labels.labelled(root):
            name = str(trace.relative_to(root))[: -len(labels.TRACE_SUFFIX)]
            yield Unit(f"recorded/{name}", str(trace.parent), None)
    yield from _simulated(benchmark["simulated"], out / "traces")


def _simulated(plan: dict[str, Any], folder: Path) -> Iterator[Unit]:
    """``per_pattern`` traces of each pattern and ``healthy`` ones, over workloads and devices."""
    from dataset.simulate import DEVICES, FAULTS, WORKLOADS, workloads_for

    random = np.random.default_rng(plan["seed"])
    wanted: list[str | None] = [p for p in FAULTS for _ in range(plan["per_pattern"])]
    wanted += [None] * plan["healthy"]
    for i, pattern in enumerate(wanted):
        workloads = workloads_for(pattern) if pattern else tuple(WORKLOADS)
        workload = workloads[int(random.integers(len(workloads)))]
        device = list(DEVICES)[int(random.integers(len(DEVICES)))]
        seed = int(random.integers(2**31))
        yield Unit(f"simulated/{i:05d}", str(folder), (pattern, workload, device, seed))


def trace_of(unit: Unit) -> Path:
    """Where a unit's trace lies, or goes."""
    return Path(unit.folder) / f"{unit.name.split('/')[-1]}{labels.TRACE_SUFFIX}"


Built = tuple[str, Tables, dict[str, Any]]


def build_unit(unit: Unit) -> Built | None:
    """Make (if need be) and read one trace; None where the fault would cost next to nothing."""
    from dataset.simulate import TooFaint

    trace = trace_of(unit)
    if unit.recipe is not None and not labels.label_path(trace).is_file():
        try:
            _simulate(unit.recipe, trace)
        except TooFaint:
            return None
    label = labels.read(labels.label_path(trace))
    about = asdict(label) | {
        "name": unit.name,
        "sha256": sha256(trace.read_bytes()).hexdigest(),
    }
    return unit.name, tables(trace, label, unit.name), about


def _simulate(recipe: tuple[str | None, str, str, int], trace: Path) -> None:
    from dataset.simulate import simulate

    content, label = simulate(*recipe)
    text = json.dumps(content, separators=(",", ":")).encode()
    trace.write_bytes(gzip.compress(text, 5, mtime=0))
    # The label comes last and whole: it says that the trace is there, should the build be killed.
    labels.write(label, trace.with_suffix(".draft")).replace(labels.label_path(trace))


def build(benchmark: dict[str, Any], out: Path, workers: int) -> dict[str, Any]:
    """Build everything into ``out``; returns the manifest.

    Raises FileNotFoundError, LabelError (also for two traces of one name), TraceError.
    """
    work = list(units(benchmark, out))
    _check_names(work)
    (out / "traces").mkdir(parents=True, exist_ok=True)
    (out / "manifest.json").unlink(missing_ok=True)
    _begin(benchmark, work, out)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        done = pool.imap(build_unit, work, chunksize=4)
        seen = track(done, "building", len(work), disable=not sys.stderr.isatty())
        made = [built for built in seen if built is not None]
    _write_tables(made, out)
    manifest = {
        "benchmark": benchmark,
        "too_faint": len(work) - len(made),
        "traces": [about for _, _, about in made],
        "patterns": dict(
            Counter(p for _, _, a in made for p in {r["pattern"] for r in a["regions"]})
        ),
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    (out / UNFINISHED).unlink()
    return manifest


def _check_names(work: list[Unit]) -> None:
    """Tables tell traces apart by their names."""
    if not work:
        raise labels.LabelError("a benchmark without traces")
    name, count = Counter(unit.name for unit in work).most_common(1)[0]
    if count > 1:
        raise labels.LabelError(f"{count} recorded traces are called {name}")


def _begin(benchmark: dict[str, Any], work: list[Unit], out: Path) -> None:
    """Drop the simulated traces in ``out`` unless a killed build of the same left them."""
    sources = sorted((HERE / "simulate").glob("*.py"))
    code = sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    plan = json.dumps({"benchmark": benchmark, "simulator": code}, sort_keys=True)
    file = out / UNFINISHED
    if not file.is_file() or file.read_text() != plan:
        for unit in work:
            if unit.recipe is not None:
                labels.label_path(trace_of(unit)).unlink(missing_ok=True)
    file.write_text(plan)


def _write_tables(made: list[Built], out: Path) -> None:
    import pandas as pd
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    windows = pd.DataFrame([row for _, t, _ in made for row in t.windows])
    matrix = np.concatenate([t.matrix for _, t, _ in made if len(t.windows)])
    features = pd.DataFrame(matrix, columns=list(COLUMNS))
    frame = pd.concat([windows, features], axis=1)
    Dataset.from_pandas(frame, preserve_index=False).to_parquet(str(out / "windows.parquet"))
    evidence = pd.DataFrame([row for _, t, _ in made for row in t.evidence])
    Dataset.from_pandas(evidence, preserve_index=False).to_parquet(str(out / "evidence.parquet"))


@hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name="build")
def run(config: DictConfig) -> None:
    """Build what Hydra composed."""
    values = plain("build", config).values
    out = Path(hydra.utils.to_absolute_path(str(values["out"])))
    with told(labels.LabelError):
        manifest = build(values["benchmark"], out, int(values["workers"]))
    counts = Counter(t["quality"] for t in manifest["traces"])
    print(f"{len(manifest['traces'])} traces ({dict(counts)}) -> {out}")


def main() -> None:
    """Entry point; exits 2 with one line where a setting or a labelled trace does not fit."""
    with told():
        checked("build", sys.argv[1:])
    run()


if __name__ == "__main__":
    main()
