"""Labeled traces of a built benchmark, scanned as a user would: what several scripts share."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dataset import labels
from dataset.labels import Label
from dataset.splits import MAIN, PARTS
from detector import kineto
from detector.config import compose
from detector.errors import DetectorError
from detector.pipeline import detect
from detector.report import Report
from detector.trace import Trace

Done = TypeVar("Done")
Work = Callable[["Case", "Stages"], Done]
WORKERS = 2


@dataclass(frozen=True)
class Case:
    """A labeled trace, by its name in the benchmark."""

    name: str
    file: Path

    @property
    def label(self) -> Label:
        """What is known of it. Raises LabelError."""
        return labels.read(labels.label_path(self.file))

    def read(self) -> Trace:
        """The trace. Raises TraceError."""
        return kineto.read(self.file)


class Stages:
    """The parts of a scan as ``conf/scan.yaml`` and some overrides choose them."""

    def __init__(self, overrides: Sequence[str] = ()) -> None:
        config = compose("scan", overrides)
        self.parts = {key: config.build(key) for key in ("flagger", "confidence", "judge")}
        self.parts |= {"windower": config.build("window"), "settings": config.build("report")}

    def scan(self, trace: Trace) -> Report:
        """The whole product on one trace."""
        return detect(trace, **self.parts)


def manifest_of(folder: Path) -> dict[str, Any]:
    """What a finished build says of itself. Raises DetectorError."""
    try:
        found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise DetectorError(f"{folder}: no finished benchmark ({error})") from error
    return found


def cases(folder: Path, chosen: Callable[[Mapping[str, Any]], bool]) -> list[Case]:
    """The traces whose row of the manifest is chosen, in its order."""
    rows = [row for row in manifest_of(folder)["traces"] if chosen(row)]
    return [Case(row["name"], folder / row["file"]) for row in rows]


def each(
    work: Work[Done], found: Sequence[Case], overrides: Sequence[str] = (), workers: int = WORKERS
) -> Iterator[Done]:
    """``work`` done on every case, in order; ``work`` lies at the top of a module. One worker: in
    this process."""
    if workers == 1:
        yield from map(partial(_here, Stages(overrides), work), found)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by the workers when they start
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _begin, (tuple(overrides),)) as pool:
        yield from pool.imap(partial(_there, work), found)


_STAGES: list[Stages] = []  # of a worker


def _begin(overrides: Sequence[str]) -> None:
    _STAGES.append(Stages(overrides))


def _there(work: Work[Done], case: Case) -> Done:
    return work(case, _STAGES[0])


def _here(stages: Stages, work: Work[Done], case: Case) -> Done:
    return work(case, stages)


def models_of(stages: Stages) -> dict[str, dict[str, Any]]:
    """What each trained model's card says of its training data."""
    cards = {name: getattr(stages.parts[name], "card", {}) for name in ("flagger", "confidence")}
    keys = ("data_sha256", "traces_by_origin")
    return {name: {k: card[k] for k in keys if k in card} for name, card in cards.items()}


def trained_on(folder: Path, stages: Stages) -> str:
    """Whether the models have seen the traces of this benchmark, as their cards tell."""
    return " ".join(history(folder, *item) for item in models_of(stages).items())


def history(folder: Path, name: str, card: Mapping[str, Any]) -> str:
    """What one card says of this benchmark."""
    count = card.get("traces_by_origin")
    if not count:
        return f"The {name}'s card names no training data."
    traces = ", ".join(f"{n:,} {origin}" for origin, n in count.items())
    sentence = f"The {name} was trained on {traces} traces"
    if card["data_sha256"] != hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest():
        return f"{sentence} of another build: many of both may be the same."
    rows = manifest_of(folder)["traces"]
    for parts in (PARTS[:3], PARTS[:2], PARTS[:1]):
        mine = Counter(row["origin"] for row in rows if row[MAIN] in parts and row["windows"])
        if mine == Counter(count):
            return f"{sentence}: the parts {', '.join(parts)} of this build."
    return f"{sentence} of this build."
