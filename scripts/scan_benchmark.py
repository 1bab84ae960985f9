"""Scan traces of a built benchmark with the whole product, for ``python -m dataset.score``.

    python scripts/scan_benchmark.py FOLDER OUT [--scheme split] [--parts test natural]
                                     [--origin …] [--every N] [--workers 2] [key=value ...]
    python -m dataset.score OUT FOLDER

FOLDER is a built benchmark; every trace of the chosen parts is scanned with the models that ship,
or those that key=value chooses (flagger.path=…, confidence.path=…). OUT gets its report at its
name: ``OUT/injected/BASE/001.json``. The last line says what the models were trained on: where the
scanned parts are among it, no score of the reports is held out. Models without them come from
``python -m detector.train`` on a folder with the manifest and the tables of the other parts alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from detector.cli.output import complain  # noqa: E402
from detector.errors import DetectorError  # noqa: E402  the path first
from detector.report import to_json  # noqa: E402
from scripts.scanned import Case, Stages, cases, each, trained_on  # noqa: E402


def write_report(case: Case, stages: Stages, out: Path) -> str:
    """Scan one trace and write its report at the trace's name; returns why there is none."""
    file = out / f"{case.name}.json"
    try:
        report = stages.scan(case.read())
    except DetectorError as error:
        return f"{case.name}: not scanned: {error}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(to_json(report), encoding="utf-8")
    return ""


def scan(found: Sequence[Case], out: Path, overrides: Sequence[str], workers: int) -> Iterator[str]:
    """Write the reports; for each trace why it has none, mostly nothing. Raises DetectorError
    without traces, or where OUT holds something: reports of another scan would be scored, too."""
    if out.exists() and any(out.iterdir()):
        raise DetectorError(f"{out}: not empty; give another folder")
    if not found:
        raise DetectorError("no traces of these parts and origins")
    yield from each(partial(write_report, out=out), found, overrides, workers)


def main(words: Sequence[str] | None = None) -> int:
    """Scan; returns the exit code."""
    parser = argparse.ArgumentParser(description="Reports of a benchmark's traces.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--scheme", default="split")
    parser.add_argument("--parts", nargs="+", default=["test", "natural"])
    parser.add_argument("--origin", nargs="+", help="only traces of these origins")
    parser.add_argument("--every", type=int, default=1, help="one trace in so many")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_intermixed_args(words)

    def chosen(row: Mapping[str, Any]) -> bool:
        mine = given.origin is None or row["origin"] in given.origin
        return mine and row.get(given.scheme) in given.parts

    try:
        found = cases(given.folder, chosen)[:: given.every]
        reasons = list(scan(found, given.out, given.overrides, given.workers))
        print("".join(f"{reason}\n" for reason in reasons if reason), end="", file=sys.stderr)
        print(f"{reasons.count('')} reports -> {given.out}")
        print(trained_on(given.folder, Stages(given.overrides)))
    except DetectorError as error:
        return complain(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
