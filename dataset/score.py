"""Score the findings of any tool on a built benchmark.

    python -m dataset.score REPORTS FOLDER [--parts test natural] [--json FILE]

REPORTS: a folder with a JSON file for each scanned trace at the trace's name in the benchmark
(``injected/BASE/001.json``), either a ``report.json`` of this product or a list of predictions; or
one JSON Lines file with a prediction a line. A prediction is an object with ``trace`` (in a folder
the file's name says it), ``pattern``, ``start_us``, ``end_us``, optional ``occurrences`` (a list of
[start_us, end_us] pairs), ``confidence`` in [0, 1] and ``savings_us``. An empty list, or a line
with nothing but its ``trace``, says that the trace was scanned and nothing was found; traces that
are not there at all were not scanned, are counted, and stand in no figure.

FOLDER: a built benchmark; of it only ``manifest.json`` and ``tables/`` are read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dataset.splits import MAIN
from detector.cli.output import complain
from detector.errors import DetectorError
from detector.lab.scoring import (
    Truth,
    constant,
    figures_by_origin,
    masked_and_unmasked,
    paired_figures,
    read_predictions,
    read_truths,
)
from detector.lab.scoring.table import page, plain

PARTS = ("test", "natural")


def scores(reports: Path, folder: Path, parts: Sequence[str], scheme: str) -> dict[str, Any]:
    """All figures: ``groups`` and ``paired``, and ``notes`` on them. Raises DetectorError."""
    predictions = read_predictions(reports, read_truths(folder))
    truths = read_truths(folder, parts, scheme)
    scanned = {name: truth for name, truth in truths.items() if name in predictions}
    if not scanned:
        raise DetectorError(f"{reports}: no prediction of a trace in {', '.join(parts)}")
    floor, note = constant_answer(folder, scanned, scheme)
    return {
        "notes": [
            f"{len(predictions.keys() - truths.keys())} predicted traces lie outside "
            f"{', '.join(parts)}.",
            note,
        ],
        "groups": figures_by_origin(truths, predictions) | floor,
        "paired": paired_figures(truths, predictions),
    }


def constant_answer(
    folder: Path, scanned: Mapping[str, Truth], scheme: str
) -> tuple[dict[str, Any], str]:
    """What an answer that sees nothing gets on the same traces, as a group, and a line about it:
    the most frequent costly pattern of the training part, over all of the analyzed time."""
    try:
        answer = constant(read_truths(folder, ("train",), scheme).values())
        predicted = answer.predict(scanned.values())
    except DetectorError as error:
        return {}, f"No row of a constant answer: {error}."
    note = f"The constant answer: {answer.pattern} saves {answer.share:.0%} of every trace."
    return {"constant answer": masked_and_unmasked(scanned, predicted)}, note


def main(words: Sequence[str] | None = None) -> int:
    """Print the tables; returns the exit code: 0 done, 2 with one line where something is amiss."""
    parser = argparse.ArgumentParser(
        prog="python -m dataset.score",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("reports", type=Path, metavar="REPORTS")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--scheme", default=MAIN, help="of the split (default: %(default)s)")
    parser.add_argument(
        "--parts", nargs="+", default=list(PARTS), help="of it (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    given = parser.parse_args(words)
    try:
        found = scores(given.reports, given.folder, given.parts, given.scheme)
    except DetectorError as error:
        return complain(error)
    print("\n\n".join(page(found["groups"], found["paired"])))
    print("", *found["notes"], sep="\n")
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(plain(found), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
