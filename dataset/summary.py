"""Recorded traces as a Markdown table: ``python -m dataset.summary FOLDER``."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from dataset.labels import Label, labeled

Row = tuple[str, str, str, str, str, str]


def rows(found: Iterable[Label]) -> Iterator[Row]:
    """Pattern, workload, fixed and faulty step, share of the faulty step in regions, steps."""
    found = list(found)
    twins = {x.pair: x for x in found if x.quality == "good" and "extra" not in x.parameters}
    bad = sorted((x for x in found if x.regions), key=lambda x: (x.patterns, x.workload))
    for label in bad:
        acting = label.parameters["acting_steps"]
        step_us = label.parameters["acting_step_us"]
        marked = sum(r.end_us - r.start_us for r in label.regions) / max(1, sum(acting))
        fixed = f"{twins[label.pair].step_us / 1e3:.1f}" if label.pair in twins else "-"
        yield (
            ", ".join(label.patterns),
            label.workload,
            fixed,
            f"{step_us / 1e3:.1f}",
            f"{100 * min(1.0, marked / _mean(label, acting)):.0f} %",
            f"{sum(acting)} of {len(acting)}",
        )


def _mean(label: Label, acting: list[bool]) -> float:
    """Mean wall time of the steps in which a fault acts, µs."""
    times = label.parameters["step_times_us"]
    return statistics.fmean(t for t, on in zip(times, acting, strict=True) if on)


def main() -> None:
    """Entry point."""
    head: Row = ("pattern", "workload", "fixed ms", "faulty ms", "in regions", "steps")
    print("| " + " | ".join(head) + " |")
    print("|---" * len(head) + "|")
    for row in rows(label for _, label in labeled(Path(sys.argv[1]))):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
