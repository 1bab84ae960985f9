"""How findings bear traces that are recorded otherwise: `dataset.perturb` on labeled traces.

    python scripts/perturb_rates.py TRACES LABELS.json [--kinds KIND…] [--every N] [--show]

LABELS: a list of {trace, abstain, problems: [{patterns, share: [low, high], optional}], allowed,
never}. Of each kind of perturbation, over the traces that it changes, before and after: findings of
5 % and more, how many are right (pattern, and size within half and twice the bracket), problems
named, traces without a wrong finding that should have none; then findings kept and new ones.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from scanned import Stages  # noqa: E402

from dataset.perturb import KINDS, cut, perturb  # noqa: E402
from detector.errors import DetectorError  # noqa: E402
from detector.kineto import read  # noqa: E402
from detector.window import analyzed_time  # noqa: E402

LEAST = 0.05
PARTS = ("first-half", "second-half", "one-step")
Found = dict[str, float]  # pattern -> share


@dataclass
class Score:
    """What an expert's labels say of findings."""

    findings: int = 0
    right: int = 0
    wrong: int = 0
    problems: int = 0
    named: int = 0
    healthy: int = 0
    quiet: int = 0

    def add(self, found: Found, label: Mapping[str, Any]) -> None:
        """The findings of one trace."""
        kinds = [verdict_on(p, share, label) for p, share in found.items() if share >= LEAST]
        self.findings += len(kinds)
        self.right += kinds.count("right")
        self.wrong += kinds.count("wrong")
        if label["abstain"]:
            self.healthy += 1
            self.quiet += "wrong" not in kinds
            return
        for problem in label["problems"]:
            if not problem.get("optional"):
                self.problems += 1
                least = problem["share"][0] / 2
                self.named += any(found.get(p, -1) >= least for p in problem["patterns"])


@dataclass
class Rates:
    """Counts over traces, before and after one kind of perturbation."""

    traces: int = 0
    before: Score = field(default_factory=Score)
    after: Score = field(default_factory=Score)
    kept: int = 0
    new: int = 0


def verdict_on(pattern: str, share: float, label: Mapping[str, Any]) -> str:
    """``right``, ``sized`` (the size is off), ``debatable``, ``unlisted`` or ``wrong``."""
    brackets = [p["share"] for p in label["problems"] if pattern in p["patterns"]]
    if brackets and not label["abstain"]:
        fits = any(low / 2 <= share <= 2 * high for low, high in brackets)
        return "right" if fits else "sized"
    if pattern in label["allowed"]:
        return "debatable"
    return "wrong" if label["abstain"] or pattern in label["never"] else "unlisted"


def main() -> None:
    """Perturb, scan, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--kinds", nargs="*", default=[*KINDS, *PARTS])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="each difference, a line")
    asked = parser.parse_args()
    stages = Stages()
    rates: dict[str, Rates] = defaultdict(Rates)
    for label in json.loads(asked.labels.read_text())[:: asked.every]:
        document = document_of(asked.traces / label["trace"])
        before = findings_of(document, stages)
        for kind in asked.kinds:
            other = part(document, kind) if kind in PARTS else perturb(document, kind)
            if other is None:
                continue
            after = findings_of(other, stages)
            count(rates[kind], before, after, label)
            if asked.show:
                show(label, kind, before, after)
    print_table(asked.kinds, rates)


def document_of(path: Path) -> dict[str, Any]:
    """The parsed file, its times exact."""
    document = msgspec.json.Decoder(float_hook=Decimal).decode(gzip.decompress(path.read_bytes()))
    return document if isinstance(document, dict) else {"traceEvents": document}


def findings_of(document: Mapping[str, Any], stages: Stages) -> Found:
    """The share of each finding; of a trace that cannot be read, none."""
    try:
        return {f.pattern: f.share for f in stages.scan(trace_of(document)).findings}
    except DetectorError:
        return {}


def trace_of(document: Mapping[str, Any]) -> Any:
    """As the product reads it."""
    encoded = msgspec.json.Encoder(decimal_format="number").encode(document)
    return read(io.BytesIO(encoded))


def part(document: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """Half of the iterations, or the middle one; None of fewer than four."""
    analyzed = analyzed_time(trace_of(document))
    steps = analyzed.steps
    if len(steps) < 4 or analyzed.how not in ("markers", "updates"):
        return None
    middle = len(steps) // 2
    edges = [step.start for step in steps] + [analyzed.end]
    first, last = {"first-half": (0, middle), "second-half": (middle, -1)}.get(
        kind, (middle, middle + 1)
    )
    return cut(document, Decimal(edges[first]) / 1000, Decimal(edges[last]) / 1000)


def count(rates: Rates, before: Found, after: Found, label: Mapping[str, Any]) -> None:
    """Add one trace."""
    rates.traces += 1
    rates.before.add(before, label)
    rates.after.add(after, label)
    rates.kept += sum(similar(after.get(p, 0), s) for p, s in before.items() if s >= LEAST)
    rates.new += sum(s >= LEAST and not before.get(p) for p, s in after.items())


def similar(one: float, other: float) -> bool:
    """Within a factor of two."""
    return other / 2 <= one <= 2 * other


def show(label: Mapping[str, Any], kind: str, before: Found, after: Found) -> None:
    """A line for each finding that changes by more than a fifth."""
    for pattern in sorted(before.keys() | after.keys()):
        one, other = before.get(pattern, 0), after.get(pattern, 0)
        if max(one, other) >= LEAST and abs(one - other) > max(one, other) / 5:
            kinds = [verdict_on(pattern, s, label) if s >= LEAST else "-" for s in (one, other)]
            print(
                f"{kind:22} {label['trace'].split('.')[0]:34} {pattern:32} "
                f"{one:6.1%} -> {other:6.1%}  {kinds[0]} -> {kinds[1]}",
                flush=True,
            )


def print_table(kinds: Sequence[str], rates: Mapping[str, Rates]) -> None:
    """A row for each kind."""
    print("| perturbed | traces | strict | named | silent | kept | new |")
    print("|---|---|---|---|---|---|---|")
    for kind in kinds:
        if kind not in rates:
            continue
        r = rates[kind]
        b, a = r.before, r.after
        print(
            f"| {kind} | {r.traces} | {b.right} of {b.findings} → {a.right} of {a.findings}"
            f" ({a.wrong} wrong) | {b.named} → {a.named} of {a.problems}"
            f" | {b.quiet} → {a.quiet} of {a.healthy} | {r.kept} of {b.findings} | {r.new} |"
        )


if __name__ == "__main__":
    main()
