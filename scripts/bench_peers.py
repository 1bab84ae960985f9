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
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_read import MODULES, READERS, ROOT, is_there, machine, unpacked

OURS = "trace-scan"
LOADS = {
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
    tools = [OURS, *(name for name in LOADS if is_there(NEEDS[name], args.peers_python))]
    print(machine(), end="\n\n")
    print(f"| trace | {' | '.join(tools)} |\n{'|---' * (len(tools) + 1)}|")
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
        for trace in args.traces:
            print(_row(unpacked(trace, Path(folder)), tools, args), flush=True)
    return 0


def _row(path: Path, tools: list[str], args: argparse.Namespace) -> str:
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in tools}
    for turn in range(args.repeat):
        for name in tools if turn % 2 == 0 else tools[::-1]:
            seen[name].append(_once(name, path, args.peers_python))
    middle = {name: [statistics.median(c) for c in zip(*seen[name], strict=True)] for name in tools}
    cells = [_cell(middle[name], middle[OURS]) for name in tools]
    return f"| {path.name}, {path.stat().st_size / 1e6:.0f} MB | {' | '.join(cells)} |"


def _cell(mine: list[float], ours: list[float]) -> str:
    text = "wall {:.2f} s, CPU {:.2f} s, {:.0f} MB".format(*mine)
    if mine is ours:
        return text
    return text + " ({:.1f}×, {:.1f}×, {:.1f}×)".format(
        *(m / o for m, o in zip(mine, ours, strict=True))
    )


def _once(name: str, path: Path, peers_python: str) -> tuple[float, float, float]:
    """Wall s, CPU s and peak MB of one process."""
    command = [peers_python, "-c", LOADS[name]] if name in LOADS else [
        sys.executable, "-m", "detector.scan", "--format", "json"
    ]  # fmt: skip
    began = time.perf_counter()
    child = subprocess.Popen(
        [*command, str(path)],
        cwd=ROOT if name == OURS else "/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{name}: exit code {child.returncode}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
