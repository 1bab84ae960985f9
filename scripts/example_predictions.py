"""Write the example predictions of ``dataset/examples/`` for a built benchmark.

    python -m dataset.build benchmark=smoke out=FOLDER
    python scripts/example_predictions.py FOLDER [--out dataset/examples] [key=value ...]

Two files, a prediction a line in the format of ``python -m dataset.score``: ``product.jsonl``, what
a scan with the models that ship (or those that key=value chooses) finds in the recorded traces of
the part ``test``, and ``constant.jsonl``, the same answer to each of them, chosen on the part
``train``. They show the format and run everywhere; a handful of traces is no measurement.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from detector.cli.output import complain  # noqa: E402
from detector.errors import DetectorError  # noqa: E402  the path first
from detector.lab.scoring import predictions_of, read_truths  # noqa: E402
from detector.lab.scoring.prediction import Prediction, constant  # noqa: E402
from scripts.scanned import Stages, cases  # noqa: E402

EXAMPLES = ROOT / "dataset" / "examples"
DIGITS = 3  # of a microsecond, and of a confidence


def lines(predictions: Mapping[str, Sequence[Prediction]]) -> Iterator[str]:
    """A line a prediction; a trace without one is a line of its own."""
    for trace, mine in sorted(predictions.items()):
        rows = [row(one) for one in mine] or [{"trace": trace}]
        yield from (json.dumps(found) for found in rows)


def row(one: Prediction) -> dict[str, object]:
    """A prediction as an object."""
    spans = [[round(start, DIGITS), round(end, DIGITS)] for start, end in one.spans_us]
    found: dict[str, object] = {
        "trace": one.trace,
        "pattern": one.pattern,
        "start_us": min(start for start, _ in spans),
        "end_us": max(end for _, end in spans),
        "confidence": round(one.confidence, DIGITS),
        "savings_us": round(one.savings_us, DIGITS),
    }
    return found | ({"occurrences": spans} if len(spans) > 1 else {})


def of_product(folder: Path, overrides: Sequence[str]) -> dict[str, list[Prediction]]:
    """What a scan finds in each recorded test trace. Raises DetectorError."""
    stages = Stages(overrides)
    chosen = cases(folder, lambda t: t["origin"] == "recorded" and t["split"] == "test")
    return {case.name: predictions_of(stages.scan(case.read()), case.name) for case in chosen}


def of_constant(folder: Path, traces: Sequence[str]) -> dict[str, list[Prediction]]:
    """The constant answer to these traces. Raises DetectorError."""
    truths = read_truths(folder)
    learned = read_truths(folder, ["train"]).values()
    return constant(learned).predict(truths[name] for name in traces)


def main(words: Sequence[str] | None = None) -> int:
    """Write both files; returns the exit code."""
    parser = argparse.ArgumentParser(description="Example predictions of a benchmark's traces.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a built benchmark")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--out", type=Path, default=EXAMPLES)
    given = parser.parse_intermixed_args(words)
    try:
        product = of_product(given.folder, given.overrides)
        found = {"product": product, "constant": of_constant(given.folder, list(product))}
    except DetectorError as error:
        return complain(error)
    given.out.mkdir(parents=True, exist_ok=True)
    for name, predictions in found.items():
        text = "".join(f"{line}\n" for line in lines(predictions))
        (given.out / f"{name}.jsonl").write_text(text, encoding="utf-8")
    print(f"{len(product)} traces -> {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
