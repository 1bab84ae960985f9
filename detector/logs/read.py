"""Files of communication -> what they are, recognized by their content, never by their names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from detector.errors import TraceError
from detector.logs import flight, inspector, nccl, tables, text
from detector.logs.flight import Dump
from detector.logs.inspector import Record
from detector.logs.nccl import NcclLog
from detector.logs.tables import Table


@dataclass(frozen=True)
class Logs:
    """Everything that was read."""

    nccl: tuple[NcclLog, ...] = ()
    records: tuple[Record, ...] = ()
    dumps: tuple[Dump, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be read, one line each."""


def files(paths: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The files that the paths name, folders searched, and a line for each that is not there."""
    found: dict[Path, None] = {}
    lost = []
    for word in paths:
        path = Path(word)
        if path.is_dir():
            inside = (Path(root, n) for root, _, names in os.walk(path) for n in names)
            found.update(dict.fromkeys(sorted(p for p in inside if not p.name.startswith("."))))
        elif path.exists():
            found[path] = None
        else:
            lost.append(f"{word}: no such file")
    return list(found), lost


def read(paths: Sequence[Path], *, named: Sequence[Path] = ()) -> Logs:
    """Read every file; what is none of these kinds is noted if it was ``named`` itself."""
    logs: list[NcclLog] = []
    records: list[Record] = []
    dumps: list[Dump] = []
    found: list[Table] = []
    notes: list[str] = []
    for path in paths:
        try:
            head = text.head(path)
            if flight.looks_like(head):
                dumps.append(flight.read(path))
            elif inspector.looks_like(head):
                mine, lost = inspector.read(path)
                records += mine
                if lost:
                    notes.append(f"{path}: {lost} records cannot be read")
            elif tables.looks_like(head) and not _has_calls(path):
                found += tables.read_all(path)
            elif nccl.looks_like(head):
                logs.append(nccl.read(path))
                if text.is_cut(path):
                    notes.append(f"{path}: ends within a line; what came after it is not known")
            elif path in named:
                notes.append(f"{path}: no communication log, dump or table")
        except (TraceError, OSError) as error:
            notes.append(_line(path, error))
    found += [log.table for log in logs if log.table is not None and log.table.rows]
    notes += [note for log in logs if (note := _cut(log))]
    notes += mixed(dumps)
    return Logs(tuple(logs), tuple(records), tuple(dumps), tuple(found), tuple(notes))


def _has_calls(path: Path) -> bool:
    """Whether a printed table stands in a debug log: NCCL says more there than its version."""
    head = text.head(path, 1 << 18)
    return head.count(b" NCCL INFO ") > 10


def _line(path: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{path}: {(error.strerror or str(error)).lower()}"
    return str(error)


def _cut(log: NcclLog) -> str:
    if not log.cut:
        return ""
    return f"{log.path}: {len(log.cut)} messages are cut off, the first in line {log.cut[0]}"


def mixed(dumps: Sequence[Dump]) -> list[str]:
    """Ranks that two dumps claim to be, and dumps of several jobs."""
    notes = []
    seen: dict[int, Dump] = {}
    for dump in dumps:
        if dump.rank is None:
            notes.append(f"{dump.path}: neither the dump nor its name tells the rank; left out")
        elif dump.rank in seen and dump.groups == seen[dump.rank].groups:
            notes.append(f"{dump.path}: rank {dump.rank} was read from {seen[dump.rank].path}")
        else:
            seen[dump.rank] = dump
    jobs = flight.jobs([d for d in dumps if d.rank is not None])
    if len({frozenset(g for d in job for g in d.groups) for job in jobs}) > 1:
        notes.append(f"{jobs[1][0].path}: of another job than {jobs[0][0].path}; read apart")
    return notes
