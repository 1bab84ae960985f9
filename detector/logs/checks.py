"""What is wrong in NCCL's debug logs: ranks, calls, channels, bandwidth, warnings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from detector.logs import sequences
from detector.logs.anomaly import Anomaly
from detector.logs.nccl import Communicator, NcclLog, merged
from detector.logs.sequences import ranks_text

USED: Final = 0.75  # of a GPU's links that rings use on a sound machine
SLOW: Final = 0.7  # of the bandwidth of the same program's best run
WARNINGS: Final = 5


def check(logs: Sequence[NcclLog]) -> tuple[Anomaly, ...]:
    """Anomalies of all logs: those of one job are read as one, runs of a program are compared."""
    found: list[Anomaly] = []
    for job in jobs(logs):
        log = merged(job)
        found += _missing(log)
        found += sequences.check(log)
        found += _channels(log)
        found += [
            Anomaly("warning", text, where=log.path, line=line)
            for line, text in log.warnings[:WARNINGS]
        ]
    return (*found, *_slower(logs))


def jobs(logs: Sequence[NcclLog]) -> list[list[NcclLog]]:
    """Logs that share a communicator, by its id, belong to one job."""
    jobs: list[tuple[set[str], list[NcclLog]]] = []
    for log in logs:
        groups = {c.group for c in log.communicators if c.group.startswith("0x")}
        shared = [job for job in jobs if job[0] & groups]
        for job in shared[1:]:
            shared[0][0].update(job[0])
            shared[0][1].extend(job[1])
            jobs.remove(job)
        if shared:
            shared[0][0].update(groups)
            shared[0][1].append(log)
        else:
            jobs.append((groups, [log]))
    return [members for _, members in jobs]


def _missing(log: NcclLog) -> list[Anomaly]:
    """Ranks of a group without a line. One rank's own log says nothing about the others."""
    groups: dict[str, list[Communicator]] = defaultdict(list)
    for comm in log.communicators:
        if comm.rank >= 0:
            groups[comm.group].append(comm)
    found = []
    for group, comms in groups.items():
        seen = {c.rank for c in comms}
        size = max(c.ranks for c in comms)
        lost = tuple(sorted(set(range(min(size, 1 << 16))) - seen))
        if len(seen) < 2 or not lost or len(seen) < len(lost):
            continue
        waits = "" if any(c.ready for c in comms) else "; the others wait for it"
        text = f"rank {ranks_text(lost)} of {size} has no line{waits}"
        found.append(Anomaly("missing-rank", text, lost, f"communicator {group}"))
    return found


def _channels(log: NcclLog) -> list[Anomaly]:
    """Groups on one node whose rings use less than the links that the topology gives a GPU."""
    worst: dict[str, Communicator] = {}
    for comm in log.communicators:
        if comm.nodes == 1 and comm.ring and comm.ring[2] == "NVL" and comm.link_gbs:
            rings, speed, _ = comm.ring
            if 0 < rings * speed < USED * comm.link_gbs:
                worst.setdefault(comm.group, comm)
    return [_few(log, group, comm) for group, comm in worst.items()]


def _few(log: NcclLog, group: str, comm: Communicator) -> Anomaly:
    rings, speed, _ = comm.ring or (1, 1.0, "")
    possible = int(comm.link_gbs / speed)
    each = comm.channels // rings if comm.channels else 1
    mine = tuple(sorted({c.rank for c in log.communicators if c.group == group}))
    text = (
        f"{comm.channels or rings} channels where the topology gives {possible * each}: rings use"
        f" {rings * speed:.0f} of {comm.link_gbs:.0f} GB/s"
    )
    return Anomaly("few-channels", text, mine, f"communicator {group} ({log.path})")


def _slower(logs: Sequence[NcclLog]) -> list[Anomaly]:
    """Runs of one test, on as many ranks and the same sizes, that one run beats clearly."""
    alike: dict[tuple[object, ...], list[NcclLog]] = defaultdict(list)
    for log in logs:
        if log.table is not None and log.table.average_bus_gbs:
            sizes = tuple(row.bytes for row in log.table.rows)
            alike[log.table.test, log.table.ranks, sizes].append(log)
    found = []
    for runs in alike.values():
        best = max(runs, key=_speed)
        for log in runs:
            if _speed(log) < SLOW * _speed(best):
                found.append(_degraded(log, best))
    return found


def _speed(log: NcclLog) -> float:
    return (log.table.average_bus_gbs if log.table else None) or 0.0


def _degraded(log: NcclLog, best: NcclLog) -> Anomaly:
    text = (
        f"{_most_channels(log)} channels where its twin {best.path} has {_most_channels(best)};"
        f" bus bandwidth {_speed(log):.1f} against {_speed(best):.1f} GB/s"
    )
    return Anomaly("low-bandwidth", text, where=log.path)


def _most_channels(log: NcclLog) -> int:
    channels = (*(t.channels for t in log.tuning), *(c.channels for c in log.communicators))
    return max(channels, default=0)
