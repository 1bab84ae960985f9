"""Whether `trace-scan diff` tells a repair: faulty and healthy recordings of the same programs.

    python scripts/diff_pairs.py [--folder dataset/recorded/cpu] [--reports FOLDER] [key=value …]

Of each faulty trace in which the fault is a finding: whether it is gone in the healthy twin. Of two
healthy recordings: whether nothing is gone, new, better or worse. Of all recordings of a program:
whether what both show beside the fault has the same id. ``--reports`` keeps the scans.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from dataset import labels
from detector.config import compose
from detector.report import from_json, to_json
from detector.report_diff.difference import compare
from detector.scan_file import report_of, stages_of

CHANGED = ("gone", "new", "better", "worse")


def main() -> None:
    """Scan, compare, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("dataset/recorded/cpu"))
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--reports", type=Path, default=Path("outputs/diff_pairs"))
    arguments = parser.parse_intermixed_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments.reports.mkdir(parents=True, exist_ok=True)
    files = sorted(arguments.folder.glob("*.json.gz"))
    jobs = [(file, arguments.reports, arguments.overrides) for file in files]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.starmap(_scan, jobs, chunksize=8)
    pairs: dict[str, list[_Recording]] = defaultdict(list)
    for file in files:
        pairs[labels.read(labels.label_path(file)).pair].append(_Recording(file, arguments.reports))
    _print(pairs)


class _Recording:
    """A trace with its label and its report."""

    def __init__(self, file: Path, reports: Path) -> None:
        self.name = _stem(file)
        label = labels.read(labels.label_path(file))
        self.faults = {region.pattern for region in label.regions}
        self.report = from_json((reports / f"{self.name}.json").read_bytes())

    @property
    def seen(self) -> dict[str, str]:
        """Ids by pattern of what is found beside the planted fault."""
        found = (*self.report.findings, *self.report.leads)
        return {f.pattern: f.id for f in found if f.pattern not in self.faults}


def _stem(file: Path) -> str:
    return file.name.removesuffix(".json.gz")


def _scan(file: Path, reports: Path, overrides: list[str]) -> None:
    kept = reports / f"{_stem(file)}.json"
    if not kept.exists():
        stages = stages_of(compose("scan", overrides))
        kept.write_text(to_json(report_of(file, file.name, stages)))


def _print(pairs: dict[str, list[_Recording]]) -> None:
    repaired: Counter[str] = Counter()
    quiet: Counter[bool] = Counter()
    ids: Counter[bool] = Counter()
    for recordings in pairs.values():
        healthy = [one for one in recordings if not one.faults]
        for one in recordings:
            for status in _of_faults(one, healthy):
                repaired[status] += 1
        for a, b in combinations(healthy, 2):
            quiet[not compare(a.report, b.report).of(*CHANGED)] += 1  # type: ignore[arg-type]
        for a, b in combinations(recordings, 2):
            for pattern in a.seen.keys() & b.seen.keys() - a.faults - b.faults:
                ids[a.seen[pattern] == b.seen[pattern]] += 1
    print(f"repaired pattern: {json.dumps(repaired)}: gone in {_share(repaired, 'gone')}")
    print(f"healthy against healthy: nothing in {_share(quiet, True)}")
    print(f"the same id in another recording: {_share(ids, True)}")


def _of_faults(one: _Recording, healthy: list[_Recording]) -> Iterator[str]:
    """What came of each fault of a recording that is found in it, beside its first healthy twin."""
    found: set[str] = {finding.pattern for finding in one.report.findings}
    for pattern in sorted(one.faults & found if healthy else ()):
        difference = compare(one.report, healthy[0].report)
        status = [c.status for c in difference.findings if c.pattern == pattern]
        yield status[0] if status else "not comparable"


def _share(counts: Counter[str] | Counter[bool], what: object) -> str:
    total = sum(counts.values())
    share = counts[what] / total if total else 0.0  # type: ignore[index]
    return f"{share:.1%} of {total}"


if __name__ == "__main__":
    main()
