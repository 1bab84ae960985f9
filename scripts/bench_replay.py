"""How long a graph and a replay of it take, as a Markdown table.

    python scripts/bench_replay.py [--pure] [FOLDER or TRACE ...]

`graph` builds the program of a trace with the order in which to compute. `replay` is the saving of
a repair that caps every host event's own time and takes a hundred rows out, with the compiled
loops; `pure` the same in Python (asked for, as it is slow). Each is the best of five, in ms of the
processor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not

from detector.errors import TraceError  # noqa: E402  the path first
from detector.kineto import read  # noqa: E402
from detector.replay import Graph, Repair, solve  # noqa: E402
from detector.trace import Trace  # noqa: E402

SHARED = ROOT.parent / "shared" / "traces"
REPEATS = 5
HEAD = "| trace | rows | graph ms | replay ms | pure ms |\n|---|--:|--:|--:|--:|"


def best(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The shortest of several runs, ms of the processor."""
    found = []
    for _ in range(repeats):
        before = time.process_time()
        work()
        found.append(time.process_time() - before)
    return 1_000 * min(found)


def a_repair(graph: Graph) -> Repair:
    """One that changes much: what a whole trace costs."""
    host = np.flatnonzero(graph.is_host)
    return Repair(remove=host[:: max(1, len(host) // 100)], own=(host, graph.trace.dur[host] // 2))


def line(name: str, trace: Trace, pure: bool) -> str:
    """A row of the table."""
    graph = Graph(trace)
    repair = a_repair(graph)
    graph.saved(repair)  # what is computed once
    figures = [best(lambda: Graph(trace)), best(lambda: graph.saved(repair))]
    slow = f"{_pure(graph, repair):,.1f}" if pure else "–"
    return f"| {name} | {len(trace):,} | {figures[0]:,.1f} | {figures[1]:,.1f} | {slow} |"


def _pure(graph: Graph, repair: Repair) -> float:
    compiled, solve.LOOPS = solve.LOOPS, None
    try:
        return best(lambda: graph.saved(repair), 1)
    finally:
        solve.LOOPS = compiled


def main(words: Sequence[str]) -> int:
    """Print the table; 2 where nothing could be read."""
    pure = "--pure" in words
    given = [Path(word) for word in words if word != "--pure"] or [SHARED]
    print(HEAD)
    shown = 0
    for path in (p for g in given for p in (sorted(g.glob("*.json*")) if g.is_dir() else [g])):
        try:
            trace = read(path)
        except TraceError as error:
            print(error, file=sys.stderr)
            continue
        print(line(path.name.split(".json")[0], trace, pure), flush=True)
        shown += 1
    return 0 if shown else 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
