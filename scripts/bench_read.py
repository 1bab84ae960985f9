"""How long reading a trace takes and how much memory, beside what others need, at growing sizes.

    python scripts/bench_read.py TRACE [--sizes MB ...] [--repeat N] [--gz]

TRACE is a real trace; larger files are made from it, in a temporary folder, by repeating its events
with shifted times and ids. Every figure is a whole process, start-up included (Linux); the readers
take turns, so that other load disturbs all of them alike. Peers are measured where they are
installed: json and orjson only parse; Holistic Trace Analysis parses into a table, with its fastest
backend. The output is a Markdown table, a row a file: median wall seconds / peak MB; a peer also
with how many times this reader's wall it takes. A second process's peak is added to the first's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = "this reader"
PINNED = "on one core"
_OPEN = (
    "import gzip,sys; p=sys.argv[1]; d=(gzip.open if p.endswith('gz') else open)(p,'rb').read();"
)
READERS = {
    OURS: "import sys; from detector.kineto import read; read(sys.argv[1])",
    PINNED: "import sys; from detector.kineto import read; read(sys.argv[1])",
    "json": _OPEN + "import json; json.loads(d)",
    "orjson": _OPEN + "import orjson; orjson.loads(d)",
    "Holistic Trace Analysis": (
        "import sys; from hta.common import trace_parser as p;"
        "from hta.configs import parser_config as c;"
        "p.set_default_trace_parsing_backend(c.ParserBackend.IJSON_BATCH_AND_COMPRESS);"
        "p.parse_trace_dataframe(sys.argv[1], c.ParserConfig.get_default_cfg())"
    ),
}
MODULES = {"orjson": "orjson", "Holistic Trace Analysis": "hta"}
# Linux hands getrusage's peak on from parent to child; /proc tells the child's own.
PEAK = (
    "; import resource as r; print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss"
    " + sum(int(line.split()[1]) for line in open('/proc/self/status') if 'VmHWM' in line))"
)
_NUMBER = re.compile(
    rb'("ts":\s*)(-?\d+)|("(?:correlation|External id|external id|id)":\s*)(\d+)(?![.\d])'
)


def main() -> int:
    args = _arguments()
    readers = [name for name in READERS if find_spec(MODULES.get(name, "json"))]
    print(_machine(), end="\n\n")
    print("| JSON MB | stored MB | " + " | ".join(readers) + " | this reader, MB/s |")
    print("|---" * (len(readers) + 3) + "|")
    folder = Path(tempfile.mkdtemp(prefix="bench-read-"))
    try:
        for size in args.sizes:
            path = repeated(args.trace, size * 1_000_000, folder)
            _report(path, path.stat().st_size, readers, args)
            if args.gz:
                packed = _packed(path)
                _report(packed, path.stat().st_size, readers, args)
            path.unlink()
    finally:
        shutil.rmtree(folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 50, 215, 1000], metavar="MB")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--gz", action="store_true", help="each size packed too")
    parser.add_argument("--peers-up-to", type=int, default=2000, metavar="MB")
    return parser.parse_args()


def _machine() -> str:
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    return (
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f} before it began, Python {platform.python_version()}, "
        f"commit {commit or 'unknown'}"
    )


def repeated(trace: Path, size: int, folder: Path) -> Path:
    """A file of at least ``size`` bytes: the trace's events again and again, later each time."""
    data = trace.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    begin, end = _events(data)
    times = [int(m[2]) for m in _NUMBER.finditer(data, begin, end) if m[1]]
    ids = [int(m[4]) for m in _NUMBER.finditer(data, begin, end) if m[3]]
    span, most = max(times) - min(times) + 10_000, max(ids, default=0) + 1
    path = folder / f"{trace.name.split('.')[0]}-{size // 1_000_000}.json"
    with path.open("wb") as file:
        file.write(data[:end])
        turn = 1
        while file.tell() + len(data) - end < size:
            file.write(b"," + _shifted(data[begin:end], turn * span, turn * most))
            turn += 1
        file.write(data[end:])
    return path


def _events(data: bytes) -> tuple[int, int]:
    """Where the events of an intact trace begin and end."""
    found = re.search(rb'"traceEvents"\s*:\s*\[', data)
    begin = found.end() if found else data.index(b"[") + 1
    for closing in reversed(list(re.finditer(rb"\}(?=\s*\])", data[begin:]))):
        end = begin + closing.end()
        try:
            json.loads(b"[" + data[begin:end] + b"]")
        except ValueError:
            continue
        return begin, end
    raise SystemExit("no events found")


def _shifted(events: bytes, later: int, more: int) -> bytes:
    def shift(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return match[1] + b"%d" % (int(match[2]) + later)
        return match[3] + b"%d" % (int(match[4]) + more if int(match[4]) else 0)

    return _NUMBER.sub(shift, events)


def _packed(path: Path) -> Path:
    packed = path.with_suffix(".json.gz")
    with path.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as file:
        shutil.copyfileobj(plain, file, 1 << 20)
    return packed


def _report(path: Path, size: int, readers: list[str], args: argparse.Namespace) -> None:
    """One row."""
    walls: dict[str, list[float]] = {name: [] for name in readers}
    peaks: dict[str, float] = {}
    wanted = [r for r in readers if r in (OURS, PINNED) or size <= args.peers_up_to * 1e6]
    for _ in range(args.repeat):
        for name in list(wanted):
            try:
                wall, peaks[name] = _once(name, path)
            except subprocess.CalledProcessError as error:
                sys.stderr.write(f"{name}, {path.name}: {error.stderr.strip()[-200:]}\n")
                wanted.remove(name)
            else:
                walls[name].append(wall)
    ours = statistics.median(walls[OURS])
    cells = [_cell(name, walls[name], peaks.get(name, 0.0), ours) for name in readers]
    front = f"{size / 1e6:.0f} | {path.stat().st_size / 1e6:.1f}"
    print(f"| {front} | {' | '.join(cells)} | {size / 1e6 / ours:.0f} |", flush=True)


def _cell(name: str, walls: list[float], peak: float, ours: float) -> str:
    if not walls:
        return "–"
    wall = statistics.median(walls)
    ratio = "" if name in (OURS, PINNED) else f" / {wall / ours:.1f}×"
    return f"{wall:.2f} s / {peak:.0f}{ratio}"


def _once(name: str, path: Path) -> tuple[float, float]:
    """Wall seconds and peak MB of one process."""
    command = [sys.executable, "-c", READERS[name] + PEAK, str(path)]
    if name == PINNED:
        command = ["taskset", "-c", "0", *command]
    begin = time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    wall = time.perf_counter() - begin
    return wall, int(done.stdout.split()[-1]) * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
