"""Hard negatives: candidates that a language model doubted, out of reports of earlier scans.

A report holds where and what, not the numbers that the confidence reads: these are taken from the
trace anew, so they fit the code of the day. What a model doubts may still be right: such a row
weighs little (``weights.doubted``), calibrates nothing and is never measured on. Of a trace that
the benchmark labels nothing is taken: its label knows better.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from detector import kineto, report
from detector.analysis import Analysis, analyze
from detector.errors import DetectorError
from detector.features import candidate
from detector.lab.confidence import Candidates
from detector.lab.scoring import Prediction

ORIGIN: Final = "doubted"


def with_doubted(
    rows: Candidates, reports: Iterable[str], labeled: Collection[str] = ()
) -> Candidates:
    """``rows``, and the candidates that these report.json files list as doubted, each once.
    ``labeled``: sha256 of traces to leave out. Raises DetectorError for what is no report, or
    whose trace is gone or another by now."""
    every = (one for name in reports for one in _of_report(Path(name), labeled))
    found = list({(place.trace, place.pattern): (n, place, s) for n, place, s in every}.values())
    if not found:
        return rows
    numbers, predictions, shares = zip(*found, strict=True)
    more = np.full(len(found), ORIGIN)
    traces = np.array([one.trace for one in predictions])
    return Candidates(
        np.concatenate([rows.matrix, np.array(numbers, np.float32)]),
        np.concatenate([rows.trace, traces]),
        np.concatenate([rows.origin, more]),
        np.concatenate([rows.program, traces]),
        np.concatenate([rows.kind, np.full(len(found), "wrong")]),
        np.concatenate([rows.share, np.array(shares)]),
        (*rows.finding, *predictions),
    )


def _of_report(
    file: Path, labeled: Collection[str]
) -> Iterator[tuple[list[float], Prediction, float]]:
    """Numbers, finding and share of each doubted candidate."""
    try:
        made = report.from_json(file.read_bytes())
    except OSError as error:
        raise DetectorError(f"{file}: {error.strerror}") from error
    except DetectorError as error:
        raise DetectorError(f"{file}: {error}") from error
    names = {one.pattern for one in made.judging.doubted}
    if not names or made.source.sha256 in labeled:
        return
    analysis = _analysis(file, made)
    for one, row in zip(analysis.candidates.found, candidate.matrix(analysis), strict=True):
        if one.pattern.id in names:
            place = Prediction(made.source.sha256, one.pattern.id, (), 0.0, one.best_ns / 1e3)
            yield row.tolist(), place, one.share


def _analysis(file: Path, made: report.Report) -> Analysis:
    try:
        trace = kineto.read(made.source.path)
    except (DetectorError, OSError) as error:
        raise DetectorError(f"{file}: its trace cannot be read: {error}") from error
    if trace.source.sha256 != made.source.sha256:
        raise DetectorError(f"{file}: {made.source.path} is another trace by now")
    return analyze(trace)
