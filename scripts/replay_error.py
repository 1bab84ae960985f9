"""How far the replay of real traces is from what was recorded, as a Markdown table.

    python scripts/replay_error.py [FOLDER or TRACE ...]

Nothing is edited. `exact` keeps each event's own gap, latency and delay: every time must come out
to the ns. `typical` keeps only the host's own times and gaps and the durations on the device, and
takes one latency, one gap between kernels and one delay after a wait for the whole trace: the error
of its makespan and of its steps is what the dependencies cannot explain. Threads that only watch,
and whose frames are as long as the recording, do not count. Traces without launches
have no dependencies between host and device; they are named and left out.

Exit 1 where a bar is missed: exact to the ns; typical makespan within 1 % in the median and within
5 % in nine of ten traces.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from detector.errors import TraceError  # noqa: E402  the path first
from detector.kineto import read  # noqa: E402
from detector.replay import Graph, Times  # noqa: E402
from detector.trace import Cat, Int64, Trace  # noqa: E402
from detector.window import analyzed_time  # noqa: E402

SHARED = ROOT.parent / "shared" / "traces"
MEDIAN_BAR, WIDE_BAR = 0.01, 0.05  # of the makespan: in the median, in nine of ten
HEAD = (
    "| trace | rows | exact, worst ns | makespan ms | typical | steps | median | worst "
    "| graph s | replay s |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


@dataclass(frozen=True)
class Errors:
    """Of one trace: the exact replay's in ns, the typical one's as shares; CPU seconds."""

    name: str
    rows: int
    exact_ns: int
    makespan_ns: int
    makespan: float
    steps: tuple[float, ...]
    graph_s: float
    replay_s: float

    def line(self) -> str:
        """A row of the table."""
        steps = f"{np.median(self.steps):.2%} | {max(self.steps):.2%}" if self.steps else "– | –"
        return (
            f"| {self.name} | {self.rows:,} | {self.exact_ns:,} | {self.makespan_ns / 1e6:,.1f} "
            f"| {self.makespan:+.2%} | {len(self.steps)} | {steps} "
            f"| {self.graph_s:.2f} | {self.replay_s:.2f} |"
        )


def errors_of(name: str, trace: Trace) -> Errors:
    """Replay a trace twice and compare."""
    before = time.process_time()
    graph = Graph(trace)
    built = time.process_time()
    exact = graph.solve()
    replayed = time.process_time()
    typical = Graph(trace, typical=True).solve()
    timed = graph.program
    recorded = _makespan(trace.start[timed], trace.end[timed])
    return Errors(
        name,
        len(trace),
        _worst(trace, exact),
        recorded,
        _makespan(typical.start[timed], typical.end[timed]) / recorded - 1,
        _step_errors(trace, typical),
        built - before,
        replayed - built,
    )


def _worst(trace: Trace, times: Times) -> int:
    at = times.timed
    off = np.abs(times.start - trace.start)[at], np.abs(times.end - trace.end)[at]
    return int(max(part.max(initial=0) for part in off))


def _makespan(start: Int64, end: Int64) -> int:
    return int(end.max() - start.min())


def _step_errors(trace: Trace, times: Times) -> tuple[float, ...]:
    """Of each analyzed step or burst, along the thread that marks it (else that launches)."""
    steps = analyzed_time(trace).steps
    edges = np.array([(step.start, step.end) for step in steps], np.int64).reshape(-1, 2)
    rows = np.flatnonzero(times.timed & (trace.track == _marked(trace, edges[:, 0])))
    at = np.concatenate([trace.start[rows], trace.end[rows]])
    shift = np.concatenate(
        [times.start[rows] - trace.start[rows], times.end[rows] - trace.end[rows]]
    )
    order = np.argsort(at, kind="stable")
    base = at[order[0]]  # small numbers interpolate to the ns
    moved = np.interp(edges - base, at[order] - base, shift[order].astype(float))
    return tuple(np.abs(np.diff(moved)[:, 0] / np.diff(edges)[:, 0]).tolist())


def _marked(trace: Trace, starts: Int64) -> int:
    rows = trace.rows(Cat.USER_ANNOTATION)
    rows = rows[np.isin(trace.start[rows], starts)]
    if not len(rows):
        launches = trace.launch[trace.is_device_work]
        rows = np.unique(launches[launches >= 0]).astype(np.int64)
    return int(np.argmax(np.bincount(trace.track[rows])))


def summary(found: Sequence[Errors], left_out: Sequence[str]) -> tuple[str, bool]:
    """What the table says, and whether it passes."""
    if not found:
        return "No trace with launches here.", False
    makespan = np.abs([e.makespan for e in found])
    steps = np.array([s for e in found for s in e.steps] or [0.0])
    median, wide = np.median(makespan), np.quantile(makespan, 0.9, method="higher")
    inexact = [e.name for e in found if e.exact_ns]
    beyond = [e.name for e in found if abs(e.makespan) > WIDE_BAR]
    lines = [
        f"{len(found)} traces. Exact to the ns: {len(found) - len(inexact)}"
        + (f"; not: {', '.join(inexact)}." if inexact else "."),
        f"Typical, makespan: median {median:.2%} (bar {MEDIAN_BAR:.0%}), "
        f"90th percentile {wide:.2%} (bar {WIDE_BAR:.0%}).",
        f"Typical, {len(steps)} steps: median {np.median(steps):.2%}, "
        f"90th percentile {np.quantile(steps, 0.9):.2%}.",
        f"Beyond {WIDE_BAR:.0%}: {', '.join(beyond) or 'none'}.",
    ]
    if left_out:
        lines.append(f"Without launches: {', '.join(left_out)}.")
    passed = not inexact and median <= MEDIAN_BAR and wide <= WIDE_BAR
    return "\n\n".join(lines), bool(passed)


def paths(words: Sequence[str]) -> list[Path]:
    """The files named, and those of the folders named."""
    given = [Path(word) for word in words] or [SHARED]
    return [p for g in given for p in (sorted(g.glob("*.json*")) if g.is_dir() else [g])]


def main(words: Sequence[str]) -> int:
    """Print the table; 0 where every bar is met, 2 where nothing could be read."""
    found: list[Errors] = []
    left_out: list[str] = []
    for path in paths(words):
        try:
            trace = read(path)
        except TraceError as error:
            print(error, file=sys.stderr)
            continue
        name = path.name.split(".json")[0]
        if not (trace.is_device_work & (trace.launch >= 0)).any():
            left_out.append(name)
            continue
        if not found:
            print(HEAD)
        found.append(errors_of(name, trace))
        print(found[-1].line(), flush=True)
    text, passed = summary(found, left_out)
    print(f"\n{text}")
    return 2 if not found else 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
