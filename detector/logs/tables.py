"""Tables that nccl-tests prints: sizes, times and bandwidths, and which nodes took part."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detector.logs import text
from detector.logs.collectives import op_of

_DEVICE: Final = re.compile(
    r"^#\s+Rank\s+(\d{1,7})\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S{1,128})\s+device\s+(\d+)"
)
_STARTS: Final = re.compile(r"^# Collective test starting: (\w{1,64})")
_AVERAGE: Final = re.compile(r"^# Avg bus bandwidth\s*:\s*([\d.]+)")
_FAILED: Final = re.compile(r"Test (?:NCCL |CUDA )?failure (.{1,200})")
_NUMBER: Final = re.compile(r"^\d[\d.]*(?:e[+-]?\d{1,3})?$")
_TYPE: Final = re.compile(r"^[a-z]\w*$")


@dataclass(frozen=True)
class Row:
    """One size, out of place: time in µs and bandwidths in GB/s."""

    bytes: int
    count: int
    dtype: str
    time_us: float
    bus_gbs: float


@dataclass(frozen=True)
class Table:
    """What one run of one test printed."""

    path: str
    test: str
    op: str
    nodes: tuple[str, ...]
    """Hosts, each once, in the order of their ranks."""
    ranks: int
    rows: tuple[Row, ...]
    average_bus_gbs: float | None
    failure: str
    """Why it failed; empty where it did not."""

    @property
    def devices_per_node(self) -> int:
        """Ranks for each host."""
        return self.ranks // max(1, len(self.nodes))


def looks_like(head: bytes) -> bool:
    """Whether the first bytes of a file are such a table's."""
    return (b"algbw" in head and b"busbw" in head) or b"# Collective test starting" in head


def read_all(path: Path) -> tuple[Table, ...]:
    """Every table of a file: a run may print several. Raises OSError."""
    tables: list[Table | None] = []
    part: list[str] = []
    for line in text.lines(path):
        if part and (line.startswith("# nccl-tests version") or _restarts(line, part)):
            tables.append(parse(part, str(path)))
            part = []
        part.append(line)
    tables.append(parse(part, str(path)))
    return tuple(t for t in tables if t is not None)


def _restarts(line: str, part: list[str]) -> bool:
    starts = line.startswith("# Collective test starting")
    return starts and any(_STARTS.match(p) for p in part)


def parse(lines: Iterable[str], path: str = "") -> Table | None:
    """The one table in these lines; None where there is none."""
    test, average, failure = "", None, ""
    devices: dict[int, str] = {}
    rows = []
    for line in lines:
        if line.startswith("#"):
            if match := _DEVICE.match(line):
                devices[int(match[1])] = match[2]
            elif match := _STARTS.match(line):
                test = match[1]
            elif match := _AVERAGE.match(line):
                average = float(match[1])
        elif (row := _row(line.split())) is not None:
            rows.append(row)
        elif not failure and (match := _FAILED.search(line)):
            failure = match[1].strip()
    if not (devices or rows or test):
        return None
    nodes = tuple(dict.fromkeys(devices[rank] for rank in sorted(devices)))
    return Table(path, test, op_of(test), nodes, len(devices), tuple(rows), average, failure)


def _row(words: list[str]) -> Row | None:
    """size count type [redop] [root] time algbw busbw wrong time algbw busbw wrong."""
    if not 11 <= len(words) <= 13 or not (words[0].isdigit() and words[1].isdigit()):
        return None
    if not _TYPE.match(words[2]):
        return None
    tail = words[-8:]
    if not all(_NUMBER.match(word) for word in (*tail[0:3], *tail[4:7])):
        return None
    size = int(words[0])
    return Row(size, int(words[1]), words[2], float(tail[0]), float(tail[2])) if size else None
