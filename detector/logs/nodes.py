"""Slow nodes and pairs in tables of bandwidth, and runs that failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Final

from detector.logs.anomaly import Anomaly
from detector.logs.tables import Table

SLOW: Final = 0.7  # of the median of all pairs
PAIRS: Final = 5  # named in the text
FEWEST: Final = 4  # pairs, before a node or a pair can stand out


def check(tables: Sequence[Table]) -> tuple[Anomaly, ...]:
    """What stands out among runs of the same test on as many devices a node."""
    alike: dict[tuple[str, int], list[Table]] = defaultdict(list)
    for table in tables:
        if len(table.nodes) == 2 and table.average_bus_gbs:
            alike[table.test, table.devices_per_node].append(table)
    alike = {key: runs for key, runs in alike.items() if len(runs) >= FEWEST}
    nodes = [a for key, runs in alike.items() for a in _slow_nodes(key, runs)]
    # A slow node explains its pairs in every test that uses as many of its devices.
    explained = {(a.where.split(", ")[-1], a.subject) for a in nodes}
    pairs = [a for key, runs in alike.items() for a in _slow_pairs(key, runs, explained)]
    return (*nodes, *pairs, *(_failed(t) for t in tables if t.failure))


def _slow_nodes(key: tuple[str, int], runs: Sequence[Table]) -> list[Anomaly]:
    typical = median(_speed(t) for t in runs)
    of_node: dict[str, list[float]] = defaultdict(list)
    for table in runs:
        for node in table.nodes:
            of_node[node].append(_speed(table) / typical)
    return [
        Anomaly(
            "slow-node",
            f"node {node} reaches {median(shares):.2f} of the median bus bandwidth over its"
            f" {len(shares)} pairs ({median(shares) * typical:.1f} against {typical:.1f} GB/s)",
            where=f"{key[0]}, {_devices(key)}",
            subject=node,
        )
        for node, shares in sorted(of_node.items())
        if len(shares) >= FEWEST and median(shares) < SLOW
    ]


def _slow_pairs(
    key: tuple[str, int], runs: Sequence[Table], explained: set[tuple[str, str]]
) -> list[Anomaly]:
    """The pairs of one test that are slow, the slowest first, as one anomaly."""
    typical = median(_speed(t) for t in runs)
    slow = [
        t
        for t in sorted(runs, key=_speed)
        if _speed(t) < SLOW * typical
        and not any((_devices(key), node) in explained for node in t.nodes)
    ]
    if not slow:
        return []
    named = ", ".join(f"{' and '.join(t.nodes)} {_speed(t):.1f}" for t in slow[:PAIRS])
    more = f" and {len(slow) - PAIRS} more" if len(slow) > PAIRS else ""
    text = f"{len(slow)} of {len(runs)} pairs below {SLOW} of {typical:.1f} GB/s: {named}{more}"
    subject = ", ".join("+".join(t.nodes) for t in slow)
    return [Anomaly("slow-pair", text, where=f"{key[0]}, {_devices(key)}", subject=subject)]


def _devices(key: tuple[str, int]) -> str:
    return f"{key[1]} devices a node" if key[1] != 1 else "1 device a node"


def _speed(table: Table) -> float:
    return table.average_bus_gbs or 0.0


def _failed(table: Table) -> Anomaly:
    nodes = " and ".join(table.nodes) or "the run"
    return Anomaly("failed-run", f"{nodes}: {table.failure}", where=f"{table.test} ({table.path})")
