"""How long reading a trace takes and how much memory, beside what others need, at growing sizes.

    python scripts/bench_read.py TRACE ... [--sizes MB ...] [--gz] [--repeat N]
                                 [--peers-python PATH] [--peers-up-to MB]

Each TRACE is a real trace, measured as it is, unpacked. With --sizes, larger files are made from
the first one, in a temporary folder, by repeating its events with shifted times and ids. Every
figure is a whole process, start-up included (Linux); the readers take turns, so that other load
disturbs all of them alike, and the best of the repeats counts. Peers run under --peers-python, and
are left out where that has none: json and orjson only parse; Holistic Trace Analysis (HTA) parses
into a table, its ijson backend without the Python frames; TraceLens (AMD's) loads and builds its
tree. The output is a Markdown table, a row a file: of this reader wall s / CPU s / peak MB, of a
peer CPU s / peak MB / how many times this reader's CPU time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OURS = "this reader"
PINNED = "on one core"
_READ = "import sys; from detector.kineto import read; read(sys.argv[1])"
_OPEN = (
    "import gzip,sys; p=sys.argv[1]; d=(gzip.open if p.endswith('gz') else open)(p,'rb').read();"
)
_HTA = (
    "import sys; from hta.common import trace_parser as p;"
    "from hta.configs import parser_config as c;"
    "p.set_default_trace_parsing_backend(c.ParserBackend.{});"
    "p.parse_trace_dataframe(sys.argv[1], c.ParserConfig.get_default_cfg())"
)
READERS = {
    OURS: _READ,
    PINNED: _READ,
    "json": _OPEN + "import json; json.loads(d)",
    "orjson": _OPEN + "import orjson; orjson.loads(d)",
    "HTA, json": _HTA.format("JSON"),
    "HTA, ijson": _HTA.format("IJSON_BATCH_AND_COMPRESS"),
    "TraceLens": (
        "import sys; from TraceLens import TreePerfAnalyzer;"
        "TreePerfAnalyzer.from_file(profile_filepath=sys.argv[1])"
    ),
}
# What a peer imports: it is measured where all of that is there.
MODULES = {
    "json": "json",
    "orjson": "orjson",
    "HTA, json": "hta",
    "HTA, ijson": "hta ijson",
    "TraceLens": "TraceLens",
}
# Linux hands getrusage's peak on from parent to child; /proc tells the child's own.
PEAK = "; print(sum(int(line.split()[1]) for line in open('/proc/self/status') if 'VmHWM' in line))"


class Figures(NamedTuple):
    """Of one process."""

    wall: float  # s
    cpu: float  # s, user and system, all threads
    peak: float  # MB


_NUMBER = re.compile(
    rb'("ts":\s*)(-?\d+)|("(?:correlation|External id|external id|id)":\s*)(\d+)(?![.\d])'
)


def main() -> int:
    args = _arguments()
    readers = [
        name
        for name in READERS
        if name in (OURS, PINNED) or is_there(MODULES[name], args.peers_python)
    ]
    print(machine(), end="\n\n")
    heads = ["trace", "JSON MB", "stored MB", *readers, "MB/s", "MB/s of CPU, one core"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    folder = Path(tempfile.mkdtemp(prefix="bench-read-"))
    try:
        for trace in args.traces:
            _measure(unpacked(trace, folder), readers, args)
        for size in args.sizes:
            _measure(repeated(args.traces[0], size * 1_000_000, folder), readers, args)
    finally:
        shutil.rmtree(folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE")
    parser.add_argument("--sizes", type=int, nargs="+", default=[], metavar="MB")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--gz", action="store_true", help="each file packed too")
    parser.add_argument("--peers-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--peers-up-to", type=int, default=2000, metavar="MB")
    return parser.parse_args()


def is_there(modules: str, python: str) -> bool:
    """Whether an interpreter finds all of these modules."""
    code = f"import importlib.util as u; assert all(map(u.find_spec, {modules.split()}))"
    command = [python, "-c", code]
    return subprocess.run(command, cwd="/", capture_output=True, check=False).returncode == 0


def machine() -> str:
    sys.path.insert(0, str(ROOT))
    from detector.kineto import COMPILED

    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    return (
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f} before it began, Python {platform.python_version()}, "
        f"{'the compiled scanner' if COMPILED else 'pure Python'}, commit {commit or 'unknown'}"
    )


def unpacked(trace: Path, folder: Path) -> Path:
    data = trace.read_bytes()
    path = folder / f"{trace.name.split('.')[0]}.json"
    path.write_bytes(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return path


def _measure(path: Path, readers: list[str], args: argparse.Namespace) -> None:
    """A row, and one of the packed file; then the files are gone."""
    size = path.stat().st_size
    _report(path, size, readers, args)
    if args.gz:
        packed = _packed(path)
        _report(packed, size, readers, args)
        packed.unlink()
    path.unlink()


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
    seen: dict[str, list[Figures]] = {name: [] for name in readers}
    wanted = [r for r in readers if r in (OURS, PINNED) or size <= args.peers_up_to * 1e6]
    for _ in range(args.repeat):
        for name in list(wanted):
            try:
                seen[name].append(_once(name, path, args.peers_python))
            except subprocess.CalledProcessError as error:
                sys.stderr.write(f"{name}, {path.name}: {error.stderr.strip()[-200:]}\n")
                wanted.remove(name)
    best = {
        name: Figures(*(min(values) for values in zip(*runs, strict=True)))
        for name, runs in seen.items()
        if runs
    }
    cells = [_cell(name, best.get(name), best[OURS]) for name in readers]
    front = f"{path.name} | {size / 1e6:.0f} | {path.stat().st_size / 1e6:.1f}"
    rates = f"{size / 1e6 / best[OURS].wall:.0f} | {size / 1e6 / best[PINNED].cpu:.0f}"
    print(f"| {front} | {' | '.join(cells)} | {rates} |", flush=True)


def _cell(name: str, best: Figures | None, ours: Figures) -> str:
    if best is None:
        return "–"
    if name in (OURS, PINNED):
        return f"{best.wall:.2f} / {best.cpu:.2f} / {best.peak:.0f}"
    return f"{best.cpu:.2f} / {best.peak:.0f} / {best.cpu / ours.cpu:.1f}×"


def _once(name: str, path: Path, peers_python: str) -> Figures:
    is_ours = name in (OURS, PINNED)
    python = sys.executable if is_ours else peers_python
    pinned = ("taskset", "-c", "0") if name == PINNED else ()
    return measured(READERS[name], path, python, ROOT if is_ours else Path("/"), pinned)


def measured(
    code: str, path: Path, python: str, folder: Path, front: tuple[str, ...] = ()
) -> Figures:
    """What a process in a folder takes that runs this code on a file."""
    command = [*front, python, "-c", code + PEAK, str(path)]
    before, begin = _cpu_of_children(), time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    wall, cpu = time.perf_counter() - begin, _cpu_of_children() - before
    return Figures(wall, cpu, int(done.stdout.split()[-1]) * 1024 / 1e6)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
