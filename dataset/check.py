"""Is a built benchmark what it says? ``python -m dataset.check FOLDER``

One line per fault and exit code 1; else the counts, and 0. Looked at: that every trace and label is
there and unchanged; labels inside their traces, with patterns of the taxonomy on its sides, each
with what it costs and how that is known; no mark, pattern id or recipe's name in any trace or
evidence text; times that can be, in injected traces judged by what their base has; tables and
splits that agree with the manifest.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.progress import track

from dataset import jobs, labels
from dataset.bases import read
from dataset.costs import cost_faults
from dataset.labels import UNKNOWN, Label
from dataset.publish import TABLES, file_of
from dataset.splits import MAIN, SCHEMES, groups
from detector import kineto
from detector.errors import DetectorError
from detector.patterns import BY_ID
from detector.trace import NS_PER_US, Trace

SLACK_US: Final = 1.0  # by which a region may stick out: the rounding of whole microseconds
MARKS: Final = ('"@@', "dataset/inject", "dataset/simulate", "dataset.inject", "dataset.simulate")
WORDS: Final = tuple(
    word.encode() for word in (*MARKS, *BY_ID, *(i.replace("-", "_") for i in BY_ID))
)
ODD: Final = ("negative durations", "device work before its launch", "overlaps on a stream")


@dataclass(frozen=True)
class Look:
    """What was seen in one trace file."""

    name: str
    faults: list[str] = field(default_factory=list)
    words: frozenset[str] = frozenset()  # that give something away
    odd: dict[str, int] = field(default_factory=dict)  # counts of ``ODD``


def check(folder: Path, workers: int = 1) -> list[str]:
    """Every fault of a built benchmark, one line each."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        return [f"{folder / 'manifest.json'}: no finished benchmark: {error}"]
    traces = manifest["traces"]
    looks = _all(traces, folder, workers)
    faults = [f"{one.name}: {fault}" for one in looks for fault in one.faults]
    faults += _strange(traces, looks)
    faults += _strays(folder, traces)
    faults += jobs.wrong(folder, manifest.get("jobs", ()))
    faults += _crossing(traces)
    return faults + list(_tables(folder, manifest))


def _all(traces: Sequence[dict[str, Any]], folder: Path, workers: int) -> list[Look]:
    hidden = not sys.stderr.isatty()
    if workers < 2:
        return [look(about, folder) for about in track(traces, "checking", disable=hidden)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        seen = pool.imap(partial(look, folder=folder), traces, chunksize=4)
        return list(track(seen, "checking", len(traces), disable=hidden))


# -- one trace -------------------------------------------------------------------------------------


def look(about: dict[str, Any], folder: Path) -> Look:
    """Look at one trace of the manifest."""
    name, file = about["name"], folder / about["file"]
    try:
        label = labels.read(labels.label_path(file))
        trace = kineto.read(file)
    except (labels.LabelError, DetectorError, OSError) as error:
        return Look(name, [str(error)])
    faults = [*_label_faults(label, about), *_region_faults(label, trace), *cost_faults(label)]
    if sha256(file.read_bytes()).hexdigest() != about["sha256"]:
        faults.append("another file than was built")
    text = read(file)
    words = frozenset(word.decode() for word in WORDS if word in text)
    return Look(name, faults, words, oddities(trace))


def _label_faults(label: Label, about: dict[str, Any]) -> Iterator[str]:
    for key in ("origin", "base", "workload", "device", "quality", "seed", "pair"):
        if getattr(label, key) != about[key]:
            yield f"{key} {getattr(label, key)!r} in the label, {about[key]!r} in the manifest"
    if list(label.patterns) != about["patterns"]:
        yield "other patterns in the label than in the manifest"


def _region_faults(label: Label, trace: Trace) -> Iterator[str]:
    """Regions that lie outside, or name what is no pattern."""
    if not len(trace):
        yield "no events"
        return
    first, last = int(trace.start.min()) / NS_PER_US, int(trace.end.max()) / NS_PER_US
    for region in label.regions:
        where = f"region {region.pattern} at {region.start_us:.3f}"
        if region.start_us < first - SLACK_US or region.end_us > last + SLACK_US:
            yield f"{where} lies outside the trace"
        if region.pattern == UNKNOWN:
            continue
        if region.pattern not in BY_ID:
            yield f"{where}: no such pattern"
        elif BY_ID[region.pattern].side != region.side:
            yield f"{where}: on the {region.side} side"


def oddities(trace: Trace) -> dict[str, int]:
    """How often a trace shows what cannot be; real ones do, by their clocks and overlapping
    launches."""
    work = np.flatnonzero(trace.is_device_work)
    launched = work[trace.launch[work] >= 0]
    early = trace.start[launched] < trace.start[trace.launch[launched]]
    order = work[np.lexsort((trace.end[work], trace.start[work], trace.track[work]))]
    same = trace.track[order[1:]] == trace.track[order[:-1]]
    over = same & (trace.start[order[1:]] < trace.end[order[:-1]])
    repaired = trace.coverage.repaired
    overlaps = int(over.sum()) + repaired.get("overlapping duration", 0)
    counts = (repaired.get("negative duration", 0), int(early.sum()), overlaps)
    return dict(zip(ODD, counts, strict=True))


# -- all traces ------------------------------------------------------------------------------------


def _strange(traces: Sequence[dict[str, Any]], looks: Sequence[Look]) -> Iterator[str]:
    """Injected traces with more oddities or telling words than the base they were made of;
    simulated ones with any; recorded ones with telling words."""
    bases = {
        about["base"]: one
        for about, one in zip(traces, looks, strict=True)
        if about["origin"] == "injected" and not about["patterns"]
    }
    for about, one in zip(traces, looks, strict=True):
        if about["origin"] == "natural" or one.faults:
            continue
        base = bases.get(about["base"], Look(""))
        for word in sorted(one.words - base.words):
            yield f"{one.name}: {word!r} in the trace"
        if about["origin"] == "injected" and about["base"] not in bases:
            yield f"{one.name}: its base {about['base']} is not there to compare with"
        elif about["origin"] != "recorded":
            for what, count in one.odd.items():
                if count > base.odd.get(what, 0):
                    yield f"{one.name}: {count - base.odd.get(what, 0)} new {what}"


def _strays(folder: Path, traces: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Files that the manifest does not know."""
    known = {about["file"] for about in traces}
    known |= {str(labels.label_path(name)) for name in known}
    for file in sorted((folder / "traces").rglob("*")):
        if file.is_file() and str(file.relative_to(folder)) not in known:
            yield f"{file}: not in the manifest"


def _crossing(traces: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Workloads, bases and pairs on two sides of a split."""
    for scheme in SCHEMES:
        for key in ("workload", "base", "pair"):
            sides = defaultdict(set)
            for about in traces:
                if about[key] and about[scheme] != "excluded":
                    part = about[scheme]
                    sides[about[key]].add("test" if part == "natural" else part)
            for name, parts in sides.items():
                if len(parts) > 1:
                    yield f"{scheme}: {key} {name} is in {' and '.join(sorted(parts))}"


def _tables(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    """Rows of traces that stand in another group, or in no manifest; telling words in texts."""
    import pandas as pd

    traces = manifest["traces"]
    found = groups({scheme: [about[scheme] for about in traces] for scheme in SCHEMES})
    where = {traces[i]["name"]: group.name for group in found for i in group.members}
    for name in TABLES:
        listed = manifest["tables"][name]
        known = {file_of(name, group): rows for group, rows in listed.items()}
        there = {str(f.relative_to(folder)) for f in (folder / "tables" / name).glob("*")}
        yield from (f"{folder / file}: not in the manifest" for file in sorted(there - {*known}))
        for group, wanted in listed.items():
            file = folder / file_of(name, group)
            if not file.is_file():
                yield f"{file}: missing"
                continue
            columns = ["trace", "text"] if name == "evidence" else ["trace"]
            frame = pd.read_parquet(file, columns=columns)
            if len(frame) != wanted:
                yield f"{file}: {len(frame)} rows, {wanted} in the manifest"
            for trace in frame["trace"].unique():
                if where.get(trace) != group:
                    yield f"{file}: rows of {trace}, which is in {where.get(trace, 'no manifest')}"
            for trace, text in zip(frame["trace"], frame.get("text", ()), strict=False):
                if leaked := [w for w in WORDS if w in text.encode()]:
                    yield f"{file}: {leaked[0].decode()!r} in the evidence of {trace}"


def summary(folder: Path) -> list[str]:
    """Counts by pattern, device and part, as lines."""
    traces = json.loads((folder / "manifest.json").read_text())["traces"]
    patterns = Counter(p for t in traces for p in t["patterns"] or ["none"])
    lines = [f"{len(traces)} traces, {sum(t['regions'] for t in traces)} regions: no fault"]
    for title, count in (
        ("pattern", patterns),
        ("device", Counter(t["device"] for t in traces)),
        ("part", Counter(t[MAIN] for t in traces)),
        ("origin", Counter(t["origin"] for t in traces)),
    ):
        lines.append(f"by {title}: " + ", ".join(f"{k} {n}" for k, n in sorted(count.items())))
    return lines


def main() -> None:
    """Entry point."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m dataset.check FOLDER")
    folder = Path(sys.argv[1])
    faults = check(folder, os.cpu_count() or 1)
    print("\n".join(faults or summary(folder)))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
