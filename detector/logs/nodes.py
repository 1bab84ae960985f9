"""Slow nodes and pairs in tables of bandwidth, and runs that failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Final

from detector.logs.anomaly import Anomaly
from detector.logs.tables import Table

SLOW: Final = 0.7  # of the median of all pairs
FEWEST: Final = 4  # pairs, before a node or a pair can stand out


def check(tables: Sequence[Table]) -> tuple[Anomaly, ...]:
    """What stands out among runs of the same test on as many devices a node."""
    alike: dict[tuple[str, int], list[Table]] = defaultdict(list)
    for table in tables:
        if len(table.nodes) == 2 and table.average_bus_gbs:
            alike[table.test, table.devices_per_node].append(table)
    found = [a for key, runs in alike.items() if len(runs) >= FEWEST for a in _check(key, runs)]
    return (*found, *(_failed(t) for t in tables if t.failure))


def _check(key: tuple[str, int], runs: Sequence[Table]) -> list[Anomaly]:
    test, devices = key
    typical = median(_speed(t) for t in runs)
    of_node: dict[str, list[float]] = defaultdict(list)
    for table in runs:
        for node in table.nodes:
            of_node[node].append(_speed(table) / typical)
    slow = {
        node: median(shares)
        for node, shares in of_node.items()
        if len(shares) >= FEWEST and median(shares) < SLOW
    }
    what = f"{test}, {devices} devices a node"
    found = [
        Anomaly(
            "slow-node",
            f"node {node} reaches {share:.2f} of the median bus bandwidth over its"
            f" {len(of_node[node])} pairs ({share * typical:.1f} against {typical:.1f} GB/s)",
            where=what,
        )
        for node, share in sorted(slow.items())
    ]
    for table in runs:
        if _speed(table) < SLOW * typical and not slow.keys() & set(table.nodes):
            text = (
                f"pair {' and '.join(table.nodes)}: {_speed(table):.1f} against"
                f" {typical:.1f} GB/s"
            )
            found.append(Anomaly("slow-pair", text, where=f"{what} ({table.path})"))
    return found


def _speed(table: Table) -> float:
    return table.average_bus_gbs or 0.0


def _failed(table: Table) -> Anomaly:
    nodes = " and ".join(table.nodes) or "the run"
    return Anomaly("failed-run", f"{nodes}: {table.failure}", where=f"{table.test} ({table.path})")
