"""How long a scan takes and how much memory, by stage and as a whole process.

    python scripts/bench_scan.py TRACE [group=option | key=value ...] [--repeat N]

By stage: CPU time of one scan in this process, with the pipeline's own calls timed from outside; a
stage's time does not contain that of the stages inside it. Its peak is the highest resident memory
while it ran (on Linux; elsewhere the highest so far). As a whole: `python -m detector.scan` as a
user starts it, the fastest and the median wall time of N runs, and the least CPU time. Quote the
lines above the tables with any figure.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout that is measured, installed or not
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
JUDGES = ("none", "embedded")


class Meter:
    """Charges CPU time and peak memory to the innermost open stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peak_mb: dict[str, float] = {}
        self._open = ["start"]
        self._since = time.process_time()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return call(*args, **kwargs)

        return measured

    def _charge(self) -> None:
        now, name = time.process_time(), self._open[-1]
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self.peak_mb[name] = max(self.peak_mb.get(name, 0.0), peak_mb())
        forget_peak()
        self._since = time.process_time()


def peak_mb() -> float:
    if STATUS.exists():
        line = next(x for x in STATUS.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return megabytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def forget_peak() -> None:
    if CLEAR.exists():
        CLEAR.write_text("5")


def megabytes(maxrss: int) -> float:
    return maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)


def by_stage(trace: Path, overrides: list[str]) -> tuple[Meter, Any]:
    """One scan in this process; the report comes back too."""
    meter = Meter()
    with meter.stage("imports"):
        import detector.kineto
        import detector.pipeline
        import detector.scan_file
        from detector.config import compose
        from detector.report import to_json
    with meter.stage("settings and models"):
        stages = detector.scan_file.stages_of(compose("scan", overrides))
    wrap(meter)
    parts = dict(stages.parts)
    parts["windower"] = meter.timed("windows", parts["windower"])
    parts["flagger"] = Timed(parts["flagger"], meter, "flagger", ("score", "top_features"))
    with meter.stage("read and link"):
        read = detector.kineto.read(trace, limits=stages.limits)
    with meter.stage("findings, report"):
        report = detector.pipeline.detect(read, **parts)
    with meter.stage("render"):
        to_json(report)
    return meter, report


def wrap(meter: Meter) -> None:
    """Time the stages by the names that they are called by; a renamed one fails here, loudly."""
    from detector import analysis, candidates, ledger, pipeline

    for owner, call, name in (
        (analysis, "analyzed_time", "analyzed time"),
        (analysis, "signals_of", "signals"),
        (ledger, "build", "ledger"),
        (candidates, "find", "candidates"),
        (candidates, "Graph", "graph"),
        (candidates, "Condensed", "graph, condensed"),
        (candidates, "_alone", "candidates, each alone"),
        (pipeline.features, "extract", "features"),
        (pipeline.candidate, "matrix", "confidence"),
        (pipeline, "places_of", "places"),
        (pipeline, "judge_places", "evidence and judge"),
        (pipeline, "identity", "identity"),
        (pipeline, "excerpt", "excerpts"),
        (pipeline, "report_of", "rest of the report"),
    ):
        setattr(owner, call, meter.timed(name, getattr(owner, call)))


class Timed:
    """An object whose named methods are charged to a stage; everything else is its own."""

    def __init__(self, inner: Any, meter: Meter, stage: str, methods: tuple[str, ...]) -> None:
        self._inner, self._meter, self._stage, self._methods = inner, meter, stage, methods

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._meter.timed(self._stage, value) if name in self._methods else value


def whole_run(trace: Path, overrides: list[str]) -> tuple[float, float, float]:
    """Wall s, CPU s and peak MB of one `python -m detector.scan`."""
    command = [sys.executable, "-m", "detector.scan", str(trace), *overrides]
    began = time.perf_counter()
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)}: exit code {child.returncode}")
    cpu = usage.ru_utime + usage.ru_stime
    return time.perf_counter() - began, cpu, megabytes(usage.ru_maxrss)


def json_mb(trace: Path) -> float:
    """The size of the text itself, unpacked if need be."""
    with trace.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(trace) if packed else trace.open("rb") as file:
        return sum(len(block) for block in iter(lambda: file.read(1 << 20), b"")) / 1e6


def commit() -> str:
    words = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("override", nargs="*", help="settings, as for detector.scan")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="whole runs (3)")
    options = parser.parse_intermixed_args()
    trace = options.trace.resolve()

    print(
        f"{trace.name}, {trace.stat().st_size / 1e6:.1f} MB stored, {json_mb(trace):.1f} MB of JSON"
    )
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}, commit {commit()}\n")

    meter, report = by_stage(trace, options.override)
    print(f"{report.source.events:,} events, {len(report.windows):,} windows, ", end="")
    print(f"{len(report.findings)} findings, judge={report.tool.judge}")
    print(f"{'stage':<24}{'CPU s':>9}{'peak MB':>9}")
    del meter.seconds["start"]
    for name, seconds in meter.seconds.items():
        print(f"{name:<24}{seconds:>9.3f}{meter.peak_mb[name]:>9.0f}")
    print(f"{'sum':<24}{sum(meter.seconds.values()):>9.3f}{max(meter.peak_mb.values()):>9.0f}\n")

    heads = "".join(f"{head:>9}" for head in ("fastest", "median", "CPU s", "peak MB"))
    print(f"{'whole process':<24}{heads}   of {options.repeat}")
    for judge in JUDGES if options.repeat else ():
        settings = [*options.override, f"judge={judge}"]
        runs = [whole_run(trace, settings) for _ in range(options.repeat)]
        seconds = [run[0] for run in runs]
        cpu, peak = min(run[1] for run in runs), max(run[2] for run in runs)
        middle = statistics.median(seconds)
        print(f"{'judge=' + judge:<24}{min(seconds):>9.2f}{middle:>9.2f}{cpu:>9.2f}{peak:>9.0f}")


if __name__ == "__main__":
    main()
