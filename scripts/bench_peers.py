"""A whole scan beside what other tools need to load the same trace: wall, CPU time and peak memory.

    python scripts/bench_peers.py TRACE ... --peers-python PATH [--repeat N]

Whole processes, start-up included, in turns, every second round in reverse order, so that other
load disturbs all alike. This tool reads the trace, analyzes it and prints its report; Holistic
Trace Analysis (HTA, with its default backend) and TraceLens only load it. They are no dependencies
of this project: give the interpreter of an environment that has them; what it lacks is left out.
The output is a Markdown table of medians, with how many times this tool's figure each is.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from bench_read import MODULES, READERS, ROOT, Figures, is_there, machine, measured, unpacked

OURS = "trace-scan"
RUNS = {
    OURS: (
        "import sys; from detector.scan import main;"
        "main([sys.argv[1], '--format', 'json']); sys.stdout.flush()"
    ),
    "HTA": (
        "import sys; from hta.trace_analysis import TraceAnalysis;"
        "TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir='')"
    ),
    "TraceLens": READERS["TraceLens"],
}
NEEDS = {"HTA": "hta", "TraceLens": MODULES["TraceLens"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE")
    parser.add_argument("--peers-python", required=True, metavar="PATH")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    tools = [OURS, *(name for name in NEEDS if is_there(NEEDS[name], args.peers_python))]
    print(machine(), end="\n\n")
    print(f"| trace | {' | '.join(tools)} |\n{'|---' * (len(tools) + 1)}|")
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
        for trace in args.traces:
            print(_row(unpacked(trace, Path(folder)), tools, args), flush=True)
    return 0


def _row(path: Path, tools: list[str], args: argparse.Namespace) -> str:
    seen: dict[str, list[Figures]] = {name: [] for name in tools}
    for turn in range(args.repeat):
        for name in tools if turn % 2 == 0 else tools[::-1]:
            python, folder = (
                (sys.executable, ROOT) if name == OURS else (args.peers_python, Path("/"))
            )
            seen[name].append(measured(RUNS[name], path, python, folder))
    middle = {
        name: Figures(*map(statistics.median, zip(*runs, strict=True)))
        for name, runs in seen.items()
    }
    cells = [_cell(middle[name], middle[OURS]) for name in tools]
    return f"| {path.name}, {path.stat().st_size / 1e6:.0f} MB | {' | '.join(cells)} |"


def _cell(mine: Figures, ours: Figures) -> str:
    text = f"wall {mine.wall:.2f} s, CPU {mine.cpu:.2f} s, {mine.peak:.0f} MB"
    if mine is ours:
        return text
    times = (f"{m / o:.1f}×" for m, o in zip(mine, ours, strict=True))
    return f"{text} ({', '.join(times)})"


if __name__ == "__main__":
    sys.exit(main())
