"""The worst errors in findings on programs never seen, as pictures and as a table.

    python scripts/worst_errors.py FOLDER OUT [--most 10] [--parts train validation]
                                    [--origins recorded injected natural]

FOLDER is a built benchmark. Every candidate is scored by a confidence that never saw its program
(`experiment=confidence`); findings of at least 0.5 are compared with the labels of the development
parts. An error costs what it misstates of the analyzed time, times how sure it was:

* wrong: a finding that no label confirms, its confidence times its savings;
* size: pattern and place are right, the savings are off by more than 2x; the confidence times the
  difference to the true gain;
* missed: a fault of 5 % and more that is no finding; its true gain times what is lacking in the
  confidence of its candidate.

The worst are kept, one of each program and pattern. OUT gets `errors.md` and for each recorded
trace a picture: where the time goes, what was stated and what is true, where the label and the
finding lie, and a step. Injected and hand-labeled traces come from others: of them the table has
words only. Simulated traces teach, and are no test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from detector.analysis import Analysis, analyze  # noqa: E402  the path first
from detector.config import compose  # noqa: E402
from detector.findings import USUAL  # noqa: E402
from detector.lab import confidence as training  # noqa: E402
from detector.lab.experiments.confidence import ConfidenceExperiment, findings  # noqa: E402
from detector.lab.scoring import Prediction, Truth, read_truths  # noqa: E402
from detector.lab.scoring.graded import GradedTrace, grade  # noqa: E402
from detector.lab.scoring.truth import Spans, intervals  # noqa: E402
from detector.ledger import BY_ID as CAUSES  # noqa: E402
from detector.patterns import BY_ID, Occurrences  # noqa: E402
from detector.units import rounded  # noqa: E402
from scripts.panels import FAULT, ROW, WIDTH, Step, bar, document, panel, text, typical_step  # noqa: E402
from scripts.scanned import Case, cases  # noqa: E402

DEVELOPMENT = ("train", "validation")
OWN = "recorded"  # the origin of which pictures may be published
ERRORS = ("wrong", "misplaced", "sized")
COLORS = {"busy": "#3f8f5f", "exposed": "#1f6fb2", "host": "#c8641b", "device": "#7a4dd8"}
REST, TRUE = "#8c939e", "#3f8f5f"
LEAST_PX = 30  # of a cause's bar
NAMES = 140  # px for what a row of spans or a bar is


@dataclass(frozen=True)
class Error:
    """One error. ``kind``: "wrong", "size" or "missed"; ``confidence``: of the finding, or of the
    missed fault's candidate, None without one; ``stated`` savings (the candidate's, if missed) and
    ``true`` gain as shares of the analyzed time; where each lies, us."""

    kind: str
    trace: str
    origin: str
    program: str
    pattern: str
    confidence: float | None
    stated: float
    true: float
    place_us: Spans
    label_us: Spans
    picture: str = ""

    @property
    def cost(self) -> float:
        """How bad it is: a share of the analyzed time."""
        sure = self.confidence or 0.0
        if self.kind == "missed":
            return (1 - sure) * self.true
        return sure * abs(self.stated - self.true)


# -- finding them ----------------------------------------------------------------------------------


def errors(
    truths: Mapping[str, Truth],
    found: Mapping[str, Sequence[Prediction]],
    candidates: Mapping[str, Sequence[Prediction]],
) -> Iterator[Error]:
    """Of these traces. ``candidates``: with the findings all those that are too unsure for one."""
    for one in grade(truths, found):
        yield from _stated(one)
        yield from _missed(one, candidates[one.truth.trace])


def _stated(one: GradedTrace) -> Iterator[Error]:
    for finding in one.findings:
        if finding.kind not in ERRORS:
            continue
        said, problem = finding.prediction, one.truth.by_pattern.get(finding.prediction.pattern)
        true = problem.cost / one.truth.analyzed_us if problem else 0.0
        label = problem.spans_us if problem else ()
        size = finding.kind == "sized"
        yield _error(
            "size" if size else "wrong",
            one.truth,
            said,
            finding.share,
            true if size else 0.0,
            label,
        )


def _missed(one: GradedTrace, candidates: Sequence[Prediction]) -> Iterator[Error]:
    leads = {c.pattern: c for c in candidates}
    for matched in one.problems:
        if matched.costly and matched.finding is None:
            problem = matched.problem
            lead = leads.get(problem.pattern)
            share = lead.savings_us / one.truth.analyzed_us if lead else 0.0
            none = Prediction(one.truth.trace, problem.pattern, (), 0.0, 0.0)
            made = _error("missed", one.truth, lead or none, share, matched.share, problem.spans_us)
            yield made if lead else replace(made, confidence=None)


def _error(
    kind: str, truth: Truth, said: Prediction, stated: float, true: float, label: Spans
) -> Error:
    return Error(
        kind,
        truth.trace,
        truth.origin,
        truth.program,
        said.pattern,
        said.confidence,
        stated,
        true,
        said.spans_us,
        label,
    )


def worst(found: Iterable[Error], most: int) -> list[Error]:
    """The costliest, one for each program and pattern."""
    kept: dict[tuple[str, str], Error] = {}
    for error in sorted(found, key=lambda e: (-e.cost, e.trace, e.pattern)):
        kept.setdefault((error.program, error.pattern), error)
    return list(kept.values())[:most]


def errors_of(data: Path, parts: Sequence[str], origins: Sequence[str]) -> list[Error]:
    """All errors in traces of these parts and origins, by a confidence that never saw the trace's
    program."""
    experiment = _experiment(data)
    rows = training.read(data, experiment.same)
    sure = training.strangers(rows, experiment.settings)
    truths = {n: t for n, t in read_truths(data, parts).items() if t.origin in origins}
    every = findings(rows, sure, truths, lead=0.0)
    return list(errors(truths, findings(rows, sure, truths, USUAL.lead), every))


def _experiment(data: Path) -> ConfidenceExperiment:
    """As the confidence that ships is trained."""
    made: ConfidenceExperiment = compose(
        "evaluate", ["experiment=confidence", f"data={data}"]
    ).build("experiment")
    return made


# -- showing them ----------------------------------------------------------------------------------


def draw(error: Error, analysis: Analysis, number: int) -> str:
    """The picture of an error."""
    lines, y = _title(error, number)
    for part in (_bars, _places, _step):
        more, y = part(error, analysis, y)
        lines += more
    return document(lines, y + 4)


def _title(error: Error, number: int) -> tuple[list[str], int]:
    head = f"{number}. {headline(error)}"
    return [text(2, 13, head, bold=True)], 22


def headline(error: Error) -> str:
    """What an error is, in one line."""
    if error.kind == "missed":
        lead = "no candidate" if error.confidence is None else f"a lead at {error.confidence:.2f}"
        return f"missed: {error.pattern}, true gain {rounded(error.true)}, {lead} ({error.program})"
    said = f"{error.pattern}, states {rounded(error.stated)} at {error.confidence:.2f}"
    if error.kind == "wrong":
        return f"wrong: {said}, no label ({error.program})"
    return f"size: {said}, true gain {rounded(error.true)} ({error.program})"


def _bars(error: Error, analysis: Analysis, y: int) -> tuple[list[str], int]:
    """The ledger, the stated savings and the true gain on one scale."""
    room = WIDTH - NAMES
    lines, x = [text(2, y + 11, "analyzed time")], float(NAMES)
    whole = analysis.ledger.end - analysis.ledger.start
    for cause, ns in analysis.ledger.total().items():
        width = room * ns / whole
        label = CAUSES[cause].label if width >= LEAST_PX else ""
        color = COLORS.get(CAUSES[cause].group, REST)
        lines += bar(x, y, max(width - 0.6, 0.2), color, label, "#fff")
        x += width
    stated = "stated savings" if error.kind != "missed" else "candidate says"
    for name, share, color in ((stated, error.stated, FAULT), ("true gain", error.true, TRUE)):
        y += ROW + 3
        lines.append(text(2, y + 11, f"{name} {rounded(share)}"))
        lines += bar(NAMES, y, room * min(share, 1.0), color)
    return lines, y + ROW + 8


def _places(error: Error, analysis: Analysis, y: int) -> tuple[list[str], int]:
    """Where the label and what was reported lie in the analyzed time, with the steps' edges."""
    analyzed, room, lines = analysis.analyzed, WIDTH - NAMES, list[str]()
    whole = analyzed.end - analyzed.start
    rows = (("place reported", error.place_us, FAULT), ("place labeled", error.label_us, TRUE))
    for name, spans, color in rows:
        lines.append(text(2, y + 11, name if spans else f"{name}: none"))
        shown = intervals(spans).clip(analyzed.start, analyzed.end)
        shown = shown.bridged(whole / room, np.empty(0, np.int64))
        for start, end in zip(shown.start.tolist(), shown.end.tolist(), strict=True):
            left = NAMES + room * (start - analyzed.start) / whole
            lines += bar(left, y, max(room * (end - start) / whole, 0.7), color)
        y += ROW + 3
    for step in analyzed.steps:
        left = NAMES + room * (step.start - analyzed.start) / whole
        lines.append(
            f'<path d="M{left:.1f} {y - 2 * ROW - 6}V{y - 3}" stroke="#1c1e21" stroke-width=".5"/>'
        )
    return lines, y + 5


def _step(error: Error, analysis: Analysis, y: int) -> tuple[list[str], int]:
    """A step of the label's, or of the finding's, place with the pattern's occurrences."""
    found = BY_ID[error.pattern].occurrences(analysis.signals)
    step = _shown_step(error, analysis, found)
    return panel("the main thread, occurrences red", analysis, step, found, step[1] - step[0], y)


def _shown_step(error: Error, analysis: Analysis, found: Occurrences) -> Step:
    """Of the steps that the label (else the finding) touches that of median length."""
    place = intervals(error.label_us or error.place_us)
    start = np.array([s.start for s in analysis.analyzed.steps], np.int64)
    end = np.array([s.end for s in analysis.analyzed.steps], np.int64)
    touched = np.flatnonzero(place.covered(start, end)) if len(place) else np.empty(0, np.int64)
    if len(touched):
        order = touched[np.argsort((end - start)[touched], kind="stable")]
        middle = int(order[len(order) // 2])
        return int(start[middle]), int(end[middle])
    whole = analysis.analyzed.start, analysis.analyzed.end
    return typical_step(analysis.analyzed, found) or typical_step(analysis.analyzed) or whole


def markdown(found: Sequence[Error]) -> str:
    """The table; with a picture for each that has one."""
    heads = ["", "error", "pattern", "trace", "confidence", "stated", "true", "cost"]
    rows = [heads, ["---"] * len(heads)]
    for number, e in enumerate(found, 1):
        sure = "no candidate" if e.confidence is None else f"{e.confidence:.2f}"
        name = f"{e.program} ({e.origin})" if e.origin != OWN else f"{e.trace} ({e.origin})"
        rows.append(
            [str(number), e.kind, f"`{e.pattern}`", name, sure]
            + [rounded(e.stated), rounded(e.true), f"{e.cost:.3f}"]
        )
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    pictures = [f"![{headline(e)}]({e.picture})" for e in found if e.picture]
    return "\n\n".join([table, *pictures]) + "\n"


def show(error: Error, case: Case, out: Path, number: int) -> Error:
    """Draw an error of a trace of our own; returns it with the picture's name."""
    name = f"{number:02d}-{error.kind}-{error.pattern}.svg"
    (out / name).write_text(draw(error, analyze(case.read()), number), "utf-8")
    return replace(error, picture=name)


def main(words: Sequence[str] | None = None) -> None:
    """Find, draw, and write them down."""
    parser = argparse.ArgumentParser(description="The worst errors in findings.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--most", type=int, default=10)
    parser.add_argument("--parts", nargs="+", default=list(DEVELOPMENT))
    parser.add_argument("--origins", nargs="+", default=list(training.REAL), choices=training.REAL)
    given = parser.parse_args(words)
    kept = worst(errors_of(given.folder, given.parts, given.origins), given.most)
    names = {e.trace for e in kept if e.origin == OWN}
    files = {c.name: c for c in cases(given.folder, lambda row: row["name"] in names)}
    given.out.mkdir(parents=True, exist_ok=True)
    shown = [
        show(e, files[e.trace], given.out, i) if e.trace in files else e
        for i, e in enumerate(kept, 1)
    ]
    (given.out / "errors.md").write_text(markdown(shown))
    print(markdown(shown), end="")


if __name__ == "__main__":
    main()
