"""A plain, slow reader of intact traces: json.loads and loops. The oracle of the fast one.

It shares no code with detector.kineto. What it leaves out: repair, clipping, metadata.
"""

from __future__ import annotations

import gc
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from detector.trace import Cat

CATS = {
    "cpu_op": Cat.CPU_OP,
    "Operator": Cat.CPU_OP,
    "user_annotation": Cat.USER_ANNOTATION,
    "python_function": Cat.PYTHON_FUNCTION,
    "cuda_runtime": Cat.RUNTIME,
    "Runtime": Cat.RUNTIME,
    "mtia_runtime": Cat.RUNTIME,
    "cuda_driver": Cat.DRIVER,
    "overhead": Cat.OVERHEAD,
    "kernel": Cat.KERNEL,
    "Kernel": Cat.KERNEL,
    "gpu_memcpy": Cat.GPU_MEMCPY,
    "Memcpy": Cat.GPU_MEMCPY,
    "gpu_memset": Cat.GPU_MEMSET,
    "Memset": Cat.GPU_MEMSET,
    "gpu_user_annotation": Cat.GPU_USER_ANNOTATION,
    "cuda_sync": Cat.CUDA_SYNC,
    "mtia_ccp_events": Cat.MTIA,
}
WORK = {Cat.KERNEL, Cat.GPU_MEMCPY, Cat.GPU_MEMSET}
DEVICE = WORK | {Cat.GPU_USER_ANNOTATION, Cat.CUDA_SYNC, Cat.MTIA}
LINKED = WORK | {Cat.CUDA_SYNC, Cat.MTIA}
CALLS = {Cat.RUNTIME, Cat.DRIVER}
NESTING = [Cat.USER_ANNOTATION, Cat.PYTHON_FUNCTION, Cat.CPU_OP, Cat.RUNTIME, Cat.DRIVER]
TOLERANCE = 1_000

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The trace's rows in order, each a dict of plain values; links are row numbers, -1 absent."""
    data = path.read_bytes()
    return rows_of(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def rows_of(data: bytes) -> list[Row]:
    """The same, of JSON text."""
    gc.disable()  # millions of objects, of which none is in a circle
    try:
        parsed = json.loads(data, parse_float=Decimal)
        events = parsed["traceEvents"] if isinstance(parsed, dict) else parsed
        rows = [_row(e) for e in events if e.get("ph") == "X" and e.get("cat") != "Trace"]
    finally:
        gc.enable()
    rows.sort(key=_order)
    _device_numbers(rows)
    _link(rows)
    return rows


def _order(row: Row) -> tuple[int, int, int]:
    cat = row["cat"]
    rank = NESTING.index(cat) if cat in NESTING else len(NESTING) + cat
    return row["start"], -row["dur"], rank


def _row(event: dict[str, Any]) -> Row:
    args = event.get("args") or {}
    cat = CATS.get(event["cat"], Cat.OTHER)
    if event["cat"] == "Operator" and event["name"].startswith(
        ("ProfilerStep#", "enumerate(DataLoader)#", "Optimizer.")
    ):
        cat = Cat.USER_ANNOTATION
    row: Row = {
        "start": _ns(event["ts"]),
        "dur": _ns(event["dur"]),
        "cat": cat,
        "name": event["name"],
        "track": (str(event["pid"]), str(event["tid"]), cat in DEVICE),
    }
    op = cat in (Cat.CPU_OP, Cat.USER_ANNOTATION)
    frame = cat in (Cat.PYTHON_FUNCTION, Cat.OVERHEAD)
    device = not op and not frame and cat not in CALLS
    small = None if op else args.get("external id")  # 2021, on calls and device events
    row["external_id"] = _int(args.get("External id", small), not frame)
    row["correlation"] = _int(args.get("correlation"), not op and not frame)
    row["bytes"] = _int(args.get("bytes"), not op and not frame)
    row["device"] = _int(args.get("device"), device)
    stream = _int(args.get("stream"), device)
    row["stream"] = -1 if stream == 0xFFFFFFFF else stream
    row["blocks"] = _volume(args.get("grid"), device)
    row["threads"] = _volume(args.get("block"), device)
    row["collective"] = args.get("Collective name") if op or device else None
    row["group"] = args.get("Process Group Name") if op or device else None
    row["group_ranks"] = args.get("Process Group Ranks") if op or device else None
    row["group_size"] = _int(args.get("Group size"), op or device)
    row["msg_elems"] = _int(args.get("In msg nelems"), op or device)
    row["element_type"] = args.get("dtype") if op or device else None
    row["comm_sequence"] = _int(args.get("Seq"), op or device)
    row["dims"] = json.dumps(args["Input Dims"]) if op and "Input Dims" in args else None
    row["types"] = json.dumps(args["Input type"]) if op and "Input type" in args else None
    row["sequence"] = _int(args.get("Sequence number"), op)
    return row


def _ns(value: Any) -> int:
    return int((Decimal(value) * 1000).to_integral_value())


def _int(value: Any, wanted: bool) -> int:
    if not wanted or value is None:
        return -1
    try:
        return int(value)
    except ValueError:
        return -1


def _volume(sizes: Any, wanted: bool) -> int:
    if not wanted or not sizes:
        return -1
    volume = 1
    for size in sizes:
        volume *= size
    return volume


def _device_numbers(rows: list[Row]) -> None:
    """Rows that do not say their device or stream: their neighbors', else pid and tid."""
    known = {row["track"]: row for row in rows if row["device"] >= 0}
    for row in rows:
        if not row["track"][2]:
            continue
        like = known.get(row["track"])
        for key, word in (("device", row["track"][0]), ("stream", row["track"][1])):
            if row[key] < 0:
                last = word.split()[-1] if word.split() else ""
                row[key] = like[key] if like else int(last) if last.isdecimal() else -1


def _link(rows: list[Row]) -> None:
    _parents(rows)
    calls: dict[tuple[str, int], list[int]] = {}
    ops: dict[int, int] = {}
    for i, row in enumerate(rows):
        if row["cat"] in CALLS:
            calls.setdefault(_key(row), []).append(i)
        if row["cat"] == Cat.CPU_OP and row["external_id"] > 0:
            ops.setdefault(row["external_id"], i)
    for row in rows:
        row["launch"] = _launch(row, calls, rows) if row["cat"] in LINKED else -1
    for i, row in enumerate(rows):
        row["op"] = -1
        if row["cat"] in CALLS or row["cat"] in LINKED:
            if row["external_id"] != row["correlation"]:
                row["op"] = ops.get(row["external_id"], -1)
            if row["op"] < 0:
                row["op"] = _around(i if row["cat"] in CALLS else row["launch"], rows, ops)


def _key(row: Row) -> tuple[str, int]:
    if row["correlation"] > 0:
        return "correlation", row["correlation"]
    return "external_id", row["external_id"]


def _launch(row: Row, calls: dict[tuple[str, int], list[int]], rows: list[Row]) -> int:
    found = calls.get(_key(row), []) if _key(row)[1] > 0 else []
    before = [i for i in found if rows[i]["start"] <= row["start"]]
    return before[-1] if before else found[0] if found else -1


def _around(call: int, rows: list[Row], ops: dict[int, int]) -> int:
    if call < 0:
        return -1
    row = rows[call]
    if row["external_id"] != row["correlation"] and row["external_id"] in ops:
        return ops[row["external_id"]]
    at = row["parent"]
    while at >= 0 and rows[at]["cat"] != Cat.CPU_OP:
        at = rows[at]["parent"]
    return at


def _parents(rows: list[Row]) -> None:
    stacks: dict[tuple[str, str, bool], list[int]] = {}
    for i, row in enumerate(rows):
        row["parent"] = -1
        if row["cat"] not in NESTING:
            continue
        stack = stacks.setdefault(row["track"], [])
        end = row["start"] + row["dur"]
        while stack:
            above = rows[stack[-1]]
            stop = above["start"] + above["dur"]
            if stop >= end - TOLERANCE and stop > row["start"]:
                row["parent"] = stack[-1]
                break
            stack.pop()
        stack.append(i)
