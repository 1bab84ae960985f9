"""Logs, dumps and tables -> one report: the profile, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from detector.jobs import volumes
from detector.jobs.volumes import Profile
from detector.logs import checks, flight, inspector, nodes
from detector.logs.anomaly import Anomaly
from detector.logs.read import Logs


@dataclass(frozen=True)
class Source:
    """One file, in a line."""

    path: str
    what: str


@dataclass(frozen=True)
class CommReport:
    """Everything that communication logs tell."""

    sources: tuple[Source, ...]
    profile: Profile
    tables: Profile
    """Of printed tables: measured bandwidth, no job's traffic."""
    anomalies: tuple[Anomaly, ...]
    notes: tuple[str, ...]


def report(logs: Logs) -> CommReport:
    """Profile and anomalies of all logs."""
    traffic = [*map(volumes.of_log, logs.nccl), volumes.of_records(logs.records)]
    found = (
        *checks.check(logs.nccl),
        *flight.check(logs.dumps),
        *inspector.check(logs.records),
        *nodes.check(logs.tables),
    )
    return CommReport(
        _sources(logs), volumes.joined(traffic), volumes.of_tables(logs.tables), found, logs.notes
    )


def _sources(logs: Logs) -> tuple[Source, ...]:
    found = [
        Source(
            log.path,
            f"NCCL {log.version or '(version unknown)'} log, {log.lines:,} lines,"
            f" {len(log.calls):,} calls of {len(log.communicators)} communicators",
        )
        for log in logs.nccl
    ]
    if logs.records:
        found.append(Source("", f"{len(logs.records):,} NCCL Inspector records"))
    if logs.dumps:
        entries = sum(len(d.entries) for d in logs.dumps)
        what = f"{len(logs.dumps)} flight-recorder dumps, {entries:,} entries"
        found.append(Source(logs.dumps[0].path, what))
    if logs.tables:
        rows = sum(len(t.rows) for t in logs.tables)
        found.append(Source(logs.tables[0].path, f"{len(logs.tables)} tables, {rows:,} rows"))
    return tuple(found)
