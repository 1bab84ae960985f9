"""Record labeled traces: ``python -m dataset.record out=FOLDER device=cpu seed=0``.

Real programs run under ``torch.profiler`` in pairs, faulty and healthy; each is a forked process of
its own. See ``conf/record.yaml`` for the settings and ``dataset/README.md`` for what comes out.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
import torch
import torch._dynamo  # here, not in each recording: it makes half a million objects
from omegaconf import DictConfig

from dataset import labels, marks
from dataset.faults import FAULT_BY_ID, PROGRAMS, Case, acting_steps, cases, skipped
from dataset.workloads.running import record as run_program
from dataset.workloads.setting import draw
from dataset.workloads.switch import PREFIX
from detector.patterns import BY_ID

CONF_DIR = str(Path(__file__).resolve().parents[1] / "conf")
LIMIT_S = 120.0  # for one recording
EXAMPLE = Case(
    "classifier",
    "loader",
    5,
    ("input-dataloader-sync", "host-loop-indexing", "compute-single-tensor-optimizer"),
)
TAKEN = "preemptions"  # beside the events of a raw trace; never written
FEW = 2  # preemptions that do not call for another take
MOST_WAITING = 0.1  # share of the time in which a healthy loader may keep its program waiting


class RecordError(Exception):
    """A recording that did not come about, or that would give itself away."""


def forbidden_words() -> list[str]:
    """What no trace file may hold: marks, pattern ids, and where the recording ran."""
    root = str(Path(__file__).resolve().parents[1])
    places = [root, str(Path.home()), tempfile.gettempdir(), "site-packages", "dataset/"]
    host = platform.node()
    names = [f'"{host}"', f"{host}."] if host else []
    return [PREFIX, *BY_ID, *[p for p in places if len(p) > 3], *names, "faulty", "healthy"]


def record_case(case: Case, device: str, path: Path, takes: int = 1) -> labels.Label:
    """Record one case, keep the quietest of ``takes``, write trace and label to ``path``.

    Other work on the machine only ever adds time. An undisturbed take ends the search, and one
    that ``path`` holds already counts as the first. Raises RecordError.
    """
    best = labels.read(labels.label_path(path)) if path.is_file() else None
    refused = ""
    # A loader that keeps up needs a second processor: it gets more tries.
    for _ in range(takes + (6 if case.variant == "loader" and not case.patterns else 0)):
        if best is not None and _disturbances(best) <= FEW:
            break
        _settle()
        raw = _take(case, device)
        if _waits_in_vain(case, raw):
            refused = "its loader does not keep up on this machine"
            continue
        label = _label(case, device, raw)
        if best is None or _shorter(label, best):
            best = label
            _write(marks.clean(raw, _path_seed(case)), label, path)
    if best is None:
        raise RecordError(f"{case.name}: {refused}")
    return best


def _disturbances(label: labels.Label) -> int:
    return int(label.parameters["preemptions"])


def _shorter(label: labels.Label, other: labels.Label) -> bool:
    """Whether a take was less disturbed than another of the same case."""
    mine, theirs = (
        statistics.fmean(x.parameters["step_times_us"]) * (1 + 0.03 * _disturbances(x))
        for x in (label, other)
    )
    return mine < theirs


def _waits_in_vain(case: Case, raw: dict[str, Any]) -> bool:
    """Whether a loader that should keep up did not."""
    fine = case.variant == "loader" and not case.patterns
    return fine and marks.waiting_share(raw["traceEvents"]) > MOST_WAITING


def _settle(limit_s: float = 1.5) -> None:
    """Wait, within the limit, until a processor is free."""
    state = Path("/proc/loadavg")
    until = time.monotonic() + limit_s
    while state.is_file() and time.monotonic() < until:
        running = int(state.read_text().split()[3].split("/")[0])
        if running < (os.cpu_count() or 1) + 1:
            return
        time.sleep(0.1)


def _take(case: Case, device: str) -> dict[str, Any]:
    """One recording: the raw trace, marks included, and how often it was preempted."""
    setting = draw(case.workload, case.variant, device, case.seed, case.extra)
    import_module(f"dataset.workloads.{case.workload}")  # before the fork: once, not in each
    steps = acting_steps(case, setting.steps) if case.patterns else [False] * setting.steps
    with tempfile.TemporaryDirectory() as scratch:
        raw_path = Path(scratch) / "raw.json"
        world = 2 if case.variant == "ddp" else 1
        started = [
            _fork(case, replace(setting, rank=rank, world=world), steps, raw_path)
            for rank in range(world)
        ]
        _wait(started, case.name)
        raw: dict[str, Any] = json.loads(raw_path.read_text(encoding="utf-8"))
        return {**raw, TAKEN: int(raw_path.with_suffix(".taken").read_text())}


def _path_seed(case: Case) -> int:
    return case.seed * 7919 + sum(case.name.encode())


def _fork(case: Case, setting: Any, steps: list[bool], raw: Path) -> int:
    """Start one process of a program; returns its id."""
    sys.stdout.flush()
    # Python warns of forks in threaded processes; nothing here has started a thread's work yet.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        signal.alarm(int(LIMIT_S))
        gc.collect()
        gc.freeze()
        run_program(
            setting,
            case.patterns,
            steps,
            raw,
            with_stack=case.with_stack,
            record_shapes=case.record_shapes,
        )
        code = 0
    except BaseException:  # noqa: BLE001 - a forked child must not return into its parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code)


def _wait(children: list[int], name: str) -> None:
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise RecordError(f"{name}: the program ended with {codes}")


def _label(case: Case, device: str, raw: dict[str, Any]) -> labels.Label:
    events = raw["traceEvents"]
    found = marks.regions(events)
    if case.patterns and {r.pattern for r in found} != set(case.patterns):
        raise RecordError(f"{case.name}: marks of {sorted({r.pattern for r in found})} only")
    times = marks.step_times(events)
    steps = marks.acting(events, found)
    parameters: dict[str, Any] = {
        **draw(case.workload, case.variant, device, case.seed, case.extra).describe(),
        "variant": case.variant,
        "with_stack": case.with_stack,
        "record_shapes": case.record_shapes,
        "preemptions": raw.pop(TAKEN),
        "step_times_us": [round(t, 1) for t in times],
    }
    if case.patterns:
        parameters["acting_steps"] = steps
        parameters["acting_step_us"] = _median(times, steps)
    if case.extra:
        parameters["extra"] = case.extra
    return labels.check(
        labels.Label(
            origin="recorded",
            pair=case.pair,
            workload=case.workload,
            device=_device_name(raw),
            framework=f"torch {torch.__version__.split('+')[0]}",
            seed=case.seed,
            step_us=round(statistics.median(times), 1),
            quality="bad" if found else "good",
            regions=tuple(found),
            parameters=parameters,
        ),
        case.name,
    )


def _median(times: list[float], steps: list[bool]) -> float:
    acting = [t for t, on in zip(times, steps, strict=True) if on]
    return round(statistics.median(acting), 1)


def _device_name(raw: dict[str, Any]) -> str:
    devices = raw.get("deviceProperties") or []
    return f"cuda:{devices[0]['name']}" if devices else "cpu"


def _write(trace: dict[str, Any], label: labels.Label, path: Path) -> None:
    """Write both files, the trace first; refuses a trace that gives itself away."""
    text = json.dumps(trace, separators=(",", ":"))
    if leaked := marks.leaks(text, forbidden_words()):
        raise RecordError(f"{path.name}: the trace still holds {', '.join(leaked)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    shutil.move(unfinished, path)
    labels.write(label, labels.label_path(path))


def record_example(config: DictConfig) -> int:
    """Record the trace of ``examples/``: one program with three faults in every step."""
    path = Path(config.example)
    if not path.name.endswith(labels.TRACE_SUFFIX):
        raise RecordError(f"example={path}: its name must end with {labels.TRACE_SUFFIX}")
    label = record_case(EXAMPLE, "cpu", path, int(config.takes))
    print(f"{path}: {len(label.regions)} regions, {path.stat().st_size >> 10} KB")
    return 0


def record_all(config: DictConfig) -> int:
    """Record the whole matrix of a config; returns how many recordings failed."""
    folder = Path(config.out)
    device = str(config.device)
    # Asked this way, the answer leaves CUDA unused in this process, whose forks will use it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    if device != "cpu" and not torch.cuda.is_available():
        raise RecordError(f"device={device}: torch finds no GPU here")
    patterns = list(config.patterns) if config.patterns else None
    if patterns is None:
        for pattern, why in skipped(device):
            print(f"skip {pattern}: {why}")
    unknown = [p for p in patterns or () if p not in FAULT_BY_ID]
    if unknown:
        raise RecordError(f"patterns: {', '.join(unknown)} cannot be recorded")
    todo = cases(device, list(config.workloads) or PROGRAMS, patterns, int(config.seed))
    failed = 0
    for number, case in enumerate(todo, 1):
        begun = time.monotonic()
        try:
            path = folder / f"{case.name}{labels.TRACE_SUFFIX}"
            label = record_case(case, device, path, int(config.takes))
            what = ", ".join(label.patterns) or case.extra or "-"
            size = path.stat().st_size >> 10
            text = f"{label.step_us / 1e3:8.1f} ms {size:4d} KB  {what}"
        except (RecordError, labels.LabelError) as error:
            failed += 1
            text = f"failed: {error}"
        took = time.monotonic() - begun
        print(f"[{number:3d}/{len(todo)}] {took:5.1f} s  {case.name:32s} {text}", flush=True)
    return failed


@hydra.main(version_base=None, config_path=CONF_DIR, config_name="record")
def main(config: DictConfig) -> None:
    """Entry point."""
    try:
        failed = record_example(config) if config.example else record_all(config)
    except RecordError as error:
        raise SystemExit(str(error)) from None
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
