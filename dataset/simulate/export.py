"""The machine's rows as a Kineto JSON object, in the manner of 2021, 2023 or 2025."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from dataset.simulate.plan import Plan, Run
from dataset.simulate.rows import DEVICE, Row

ON_DEVICE_NOTES = ("gpu_user_annotation", "cuda_sync")  # absent before 2022
BASE_NS = 1_700_000_000_000_000_000  # baseTimeNanoseconds of the newest format

_OLD_CAT = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "python_function": "Python",
    "cuda_runtime": "Runtime",
    "cuda_driver": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}
_CBID = {
    "cudaLaunchKernel": 211, "cudaMemcpyAsync": 41, "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165, "cudaMemsetAsync": 51, "cudaEventRecord": 135,
    "cudaLaunchKernelExC": 430, "cudaMalloc": 20, "cudaFree": 22, "cudaEventSynchronize": 137,
    "cudaGraphLaunch": 311, "cudaStreamWaitEvent": 147, "cuLaunchKernel": 307,
}  # fmt: skip


class Clock:
    """Machine µs to the file's ``ts`` and ``dur``: integers before 2025, three decimals since."""

    def __init__(self, style: str, origin: float) -> None:
        self.whole, self.origin = style != "2025", origin

    def at(self, us: float) -> float | int:
        ns = round((us + self.origin) * 1000)
        return ns // 1000 if self.whole else ns / 1000

    def span(self, start: float, end: float) -> tuple[float | int, float | int]:
        first, last = round((start + self.origin) * 1000), round((end + self.origin) * 1000)
        if self.whole:
            return first // 1000, last // 1000 - first // 1000
        return first / 1000, (last - first) / 1000


def clock_of(plan: Plan) -> Clock:
    """Absolute µs since 1970 in the older styles; small numbers beside a base in the newest."""
    r = random.Random(f"clock/{plan.variant}")
    if plan.style == "2025":
        return Clock(plan.style, float(r.randrange(10**9, 4 * 10**11)))
    year = 1_620_000_000 if plan.style == "2021" else 1_690_000_000
    return Clock(plan.style, float(year + r.randrange(10**7)) * 1e6)


def to_kineto(run: Run) -> dict[str, Any]:
    """The whole trace object, events in the order of their start."""
    plan, clock = run.plan, clock_of(run.plan)
    rows = [r for r in run.m.rows if plan.style != "2021" or r.cat not in ON_DEVICE_NOTES]
    rows.extend(run.m.device_rows)
    rows.sort(key=lambda row: (row.start, -row.end))
    event = _writer(run, clock)
    events: list[dict[str, Any]] = [event(row, i) for i, row in enumerate(rows)]
    if plan.style != "2021":
        events.extend(_flows(run, clock))
    events.extend(_overheads(run, clock))
    events.extend(_metadata(run, clock))
    return _object(plan, events)


def _writer(run: Run, clock: Clock) -> Callable[[Row, int], dict[str, Any]]:
    plan = run.plan
    old, new = plan.style == "2021", plan.style == "2025"
    rocm = plan.device.is_rocm
    pid = run.m.habits.main - run.m.habits.main % 7

    def write(row: Row, index: int) -> dict[str, Any]:
        ts, dur = clock.span(row.start, row.end)
        on_device = row.cat in DEVICE or row.cat in ON_DEVICE_NOTES
        tid: int | str = row.lane
        if old and on_device:
            tid = f"stream {row.lane}"
        args = _args(row, plan, rocm, new, index)
        cat = _OLD_CAT.get(row.cat, row.cat) if old else row.cat
        where = 0 if on_device else pid
        out = {"ph": "X", "cat": cat, "name": row.name, "pid": where, "tid": tid}
        out.update(ts=ts, dur=dur, args=args)
        return out

    return write


def _args(row: Row, plan: Plan, rocm: bool, new: bool, index: int) -> dict[str, Any]:
    args: dict[str, Any] = {}
    key = "external id" if plan.style == "2021" else "External id"
    if row.correlation >= 0:
        linked = row.external if new else row.correlation
        if linked >= 0:
            args[key] = linked
        args["correlation"] = row.correlation
    elif row.external >= 0:
        args["External id"] = row.external
    if row.cat in ("cpu_op", "user_annotation", "python_function") and plan.style != "2021":
        args["Ev Idx"] = index
    if row.cat == "python_function":
        args["Python id"] = index + 1
        return args
    if row.cat in ("cuda_runtime", "cuda_driver"):
        _runtime_args(args, row, rocm)
    elif row.cat in DEVICE:
        _device_args(args, row, plan, rocm)
    else:
        args.update(row.args)
        if plan.style == "2021" and "Input Dims" in args:
            args["Input dims"] = args.pop("Input Dims")
    return args


def _runtime_args(args: dict[str, Any], row: Row, rocm: bool) -> None:
    args["cid" if rocm else "cbid"] = _CBID.get(row.name, 211 if not rocm else 107)
    if rocm:
        for name in ("grid", "block", "bytes"):
            if name in row.args:
                args[name] = row.args[name]


def _device_args(args: dict[str, Any], row: Row, plan: Plan, rocm: bool) -> None:
    args["device"], args["stream"] = 0, row.lane
    if not rocm:
        args["context"] = 1
    given = dict(row.args)
    if row.cat == "kernel":
        if rocm:
            args["kind"] = "Dispatch Kernel"
        else:
            _occupancy(args, given, plan)
        args.update(given)
        return
    size = given.get("bytes", 0)
    args["bytes"] = size
    if rocm:
        args["kind"] = given.get("direction", "Device")
    if row.cat == "gpu_memcpy" or not rocm:
        args["memory bandwidth (GB/s)"] = size / max(row.end - row.start, 1e-3) / 1e3


def _occupancy(args: dict[str, Any], given: Mapping[str, Any], plan: Plan) -> None:
    grid, block = given["grid"], given["block"]
    blocks = grid[0] * grid[1] * grid[2]
    warps = max(1, block[0] * block[1] * block[2] // 32)
    per_unit = blocks / plan.device.units
    args["queued"] = 0
    args["registers per thread"] = 32 + 8 * (len(str(blocks)) % 5)
    args["shared memory"] = 0
    args["blocks per SM"] = round(per_unit, 6)
    args["warps per SM"] = round(per_unit * warps, 6)
    args["est. achieved occupancy %"] = min(100, int(per_unit * warps / 64 * 100))


# -- beside the rows ---------------------------------------------------------------------------
def _flows(run: Run, clock: Clock) -> list[dict[str, Any]]:
    """Launch flows; one in four is missing, as in real files."""
    pid = run.m.habits.main - run.m.habits.main % 7
    calls = {r.correlation: r for r in run.m.rows if r.cat in ("cuda_runtime", "cuda_driver")}
    out: list[dict[str, Any]] = []
    rng = random.Random(run.plan.variant)
    for row in run.m.device_rows:
        call = calls.get(row.correlation)
        if call is None or rng.random() < 0.25:
            continue
        for ph, where, tid, at in (
            ("s", pid, call.lane, call.start),
            ("f", 0, row.lane, row.start),
        ):
            flow = {"ph": ph, "id": row.correlation, "pid": where, "tid": tid, "ts": clock.at(at)}
            flow.update(cat="ac2g", name="ac2g")
            if ph == "f":
                flow["bp"] = "e"
            out.append(flow)
    return out


def _overheads(run: Run, clock: Clock) -> list[dict[str, Any]]:
    if not run.plan.overhead:
        return []
    rng = random.Random(run.plan.variant + 1)
    out = []
    for name, us in (("Activity Buffer Request", 420.0), ("Buffer Flush", 150.0)):
        start = rng.uniform(0, max(run.m.now - us, 1.0))
        ts, dur = clock.span(max(start, run.opened), max(start, run.opened) + us)
        row = {"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0}
        row.update(ts=ts, dur=dur)
        out.append(row)
    return out


def _metadata(run: Run, clock: Clock) -> list[dict[str, Any]]:
    pid = run.m.habits.main - run.m.habits.main % 7
    at = clock.at(run.opened)
    streams = sorted({r.lane for r in run.m.device_rows})
    threads = sorted({r.lane for r in run.m.rows if r.cat == "cpu_op"})

    def line(name: str, where: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "ph": "M", "ts": at, "pid": where, "tid": tid, "args": args}

    out = [
        line("process_name", pid, 0, {"name": "python3"}),
        line("process_labels", pid, 0, {"labels": "CPU"}),
        line("process_name", 0, 0, {"name": "python3"}),
        line("process_labels", 0, 0, {"labels": "GPU 0"}),
    ]
    out += [line("thread_name", 0, s, {"name": f"stream {s} "}) for s in streams]
    out += [line("thread_name", pid, t, {"name": f"thread {t} (python3)"}) for t in threads]
    return out


def _object(plan: Plan, events: list[dict[str, Any]]) -> dict[str, Any]:
    d = plan.device
    properties = {
        "id": 0,
        "name": d.name,
        "totalGlobalMem": d.memory,
        "computeMajor": d.capability[0],
        "computeMinor": d.capability[1],
        "maxThreadsPerBlock": 1024,
        "warpSize": 64 if d.is_rocm else 32,
        "numSms": d.units,
    }
    out: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [properties]}
    out["simulated"] = 1  # honest in the file itself: no device ran this
    if plan.shapes:
        out["record_shapes"] = 1
    if plan.stacks:
        out["with_stack"] = 1
    if "ddp" in plan.workload or "fsdp" in plan.workload:
        out["distributedInfo"] = {
            "backend": "nccl",
            "rank": plan.variant % plan.world,
            "world_size": plan.world,
        }
    if plan.style == "2025":
        out["displayTimeUnit"] = "ms"
        out["baseTimeNanoseconds"] = BASE_NS
    out["traceEvents"] = events
    out["traceName"] = f"simulated/{plan.workload}.pt.trace.json"
    return out
