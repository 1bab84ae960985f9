"""The findings written back into the trace, as tracks of their own, for Perfetto or chrome://tracing.

The trace is copied as a stream and never parsed: new events go right behind the bracket that opens
the list of events, whether that list is the root or ``traceEvents``. Whatever else the file holds,
faults included, stays as it is.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from detector import gz
from detector.errors import TraceError
from detector.render import wording
from detector.render.clean import clean
from detector.report import Finding, Report, occurrences

PID = 990_000_001  # above what Linux gives out (2**22), below what Perfetto holds (2**32)
_CHUNK = 1 << 20
_LONGEST_HEADER = 64 << 20
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_COMPRESSION = 3  # a fifth of the time of level 9, for a file a tenth larger

Json = dict[str, object]


def annotate(report: Report, source: BinaryIO, target: BinaryIO) -> None:
    """Copy the trace in ``source`` (plain or gz) to ``target`` (gz) with the findings in it.

    Raises TraceError when the source holds no list of events.
    """
    chunks = gz.pieces(source, _CHUNK)
    before, after = _opened(report, chunks)
    added = ",\n".join(json.dumps(event, allow_nan=False) for event in events(report))
    # no name and no time in the gz header: the same report gives the same bytes
    with gzip.GzipFile("", "wb", _COMPRESSION, target, mtime=0) as out:
        out.write(before + b"\n" + added.encode())
        out.write(b"\n" if after.startswith(b"]") else b",\n")
        out.write(after)
        for chunk in chunks:
            out.write(chunk)


def events(report: Report) -> list[Json]:
    """Chrome events: names of the tracks, a slice per occurrence, the scores as a counter."""
    out = [
        _named("process_name", 0, name="Performance findings"),
        _named("process_labels", 0, labels=f"trace-antipattern-detector {report.tool.version}"),
        _named("process_sort_index", 0, sort_index=-100),
    ]
    tid = 0
    for finding in wording.findings(report):
        for lane in _lanes(finding):
            tid += 1
            out.append(_named("thread_name", tid, name=wording.title(finding)))
            out.append(_named("thread_sort_index", tid, sort_index=tid))
            out += [_slice(finding, tid, start, end) for start, end in lane]
    return out + list(_scores(report))


def _lanes(finding: Finding) -> list[list[tuple[float, float]]]:
    """Occurrences on as few tracks as it takes so that none overlap: viewers drop overlaps."""
    lanes: list[list[tuple[float, float]]] = []
    for start, end in sorted(occurrences(finding)):
        free = next((lane for lane in lanes if lane[-1][1] <= start), None)
        if free is None:
            lanes.append(free := [])
        free.append((start, end))
    return lanes


def _named(what: str, tid: int, **args: object) -> Json:
    texts = {k: clean(v) if isinstance(v, str) else v for k, v in args.items()}
    return {"ph": "M", "name": what, "pid": PID, "tid": tid, "ts": 0, "args": texts}


def _slice(finding: Finding, tid: int, start: float, end: float) -> Json:
    args: Json = {
        "severity": finding.severity,
        "kind": finding.kind,
        "saves": wording.savings(finding),
        "confidence": round(finding.confidence, 3),
        "why": clean(finding.explanation, 1000),
        "change": clean(finding.fix.summary, 1000),
        "assumes": clean(finding.assumes, 600),
        "finding": clean(finding.id),
    }
    for i, line in enumerate(finding.fix.where[:4]):
        args[f"where {i + 1}"] = wording.source_line(line)
    return {
        "ph": "X",
        "cat": "finding",
        "name": clean(finding.pattern),
        "pid": PID,
        "tid": tid,
        "ts": start,
        "dur": max(end - start, 0.0),
        "args": args,
    }


def _scores(report: Report) -> Iterator[Json]:
    """How suspicious each window is, as a counter that falls to zero at the end."""
    for window in report.windows:
        yield _counter(window.start_us, window.cpu_score, window.gpu_score)
    if report.windows:
        yield _counter(max(window.end_us for window in report.windows), 0.0, 0.0)


def _counter(ts: float, cpu: float, gpu: float) -> Json:
    args = {"cpu": round(cpu, 4), "gpu": round(gpu, 4)}
    return {"ph": "C", "name": "suspicion", "pid": PID, "ts": ts, "args": args}


# --- the copy ----------------------------------------------------------------------------------


def _opened(report: Report, chunks: Iterator[bytes]) -> tuple[bytes, bytes]:
    """(up to and with the bracket that opens the list, what was read behind it, stripped)."""
    head = b""
    for chunk in chunks:
        head += chunk
        if (end := _list_start(head)) is not None:
            before, after = head[:end], head[end:].lstrip()
            while not after and (more := next(chunks, b"")):
                after = more.lstrip()
            return before, after
        if len(head) > _LONGEST_HEADER:
            break
    raise TraceError(f"{report.source.path}: no list of events to write the findings into")


def _list_start(head: bytes) -> int | None:
    """Where the list of events begins. Inside a string quotes are escaped: no false match there."""
    start = len(head) - len(head.lstrip(b"\xef\xbb\xbf \t\r\n"))
    if head[start : start + 1] == b"[":
        return start + 1
    match = _LIST.search(head)
    return match.end() if match else None
