"""NCCL's and RCCL's debug logs, v2.3 to v2.30: calls, communicators, tuning, channels.

Ranks may be mixed in one file, lines glued together or into a printed table, and cut. Nothing is
guessed: a call whose communicator's line is cut is counted as cut and left out, and a rank comes
from the communicator, never from the bracketed device, which is the thread's current one.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from detector.logs import text, timestamps
from detector.logs.collectives import ALGORITHMS, PROTOCOLS, op_of
from detector.logs.tables import Table, parse

UNKNOWN: Final = -1
_WARNINGS: Final = 50  # kept; the rest is counted

_PREFIX: Final = re.compile(
    r"(?:\[(?P<stamp>\d{4}-[^\]]{1,40})\] ?)?"
    r"(?P<host>[\w.\-]{1,64}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) \[-?\d{1,4}\] "
    r"(?:(?P<ticks>\d{1,20}) )?(?:[\w./\-]{1,120}:\d{1,6} )?"
    r"NCCL (?P<level>INFO|WARN|ERROR|TRACE|VERSION) "
)
_CALL: Final = re.compile(
    r"(?:(?P<name>[A-Za-z]\w{0,40}): )?opCount [0-9a-f]{1,16} "
    r"sendbuff \S+ recvbuff \S+ count (?P<count>\d{1,19}) (?:size (?P<size>\d{1,19}) )?"
    r"(?:datatype (?P<dtype>\d{1,2}) )?op (?P<redop>\d{1,19}) (?:root (?P<root>-?\d{1,9}) )?"
    r"comm (?P<comm>0x[0-9a-f.]+)(?: \[nranks=(?P<nranks>\d{1,7})\]| stream )"
)
_COMM: Final = re.compile(
    r"comm (?P<comm>0x[0-9a-f.]+) rank (?P<rank>\d{1,7}) n[rR]anks (?P<nranks>\d{1,7})\b"
    r"(?: nNodes (?P<nodes>\d{1,6}))?"
)
_COMM_ID: Final = re.compile(r" commId (0x[0-9a-f.]+)")
_STATE: Final = re.compile(r" - (?:(Init|Destroy|Abort) )?(START|COMPLETE)\b")
_TUNING: Final = re.compile(
    r"(?:(?P<name>[A-Za-z]\w{0,40}): )?(?P<bytes>\d{1,19}) Bytes -> Algo (?P<algo>\w+) "
    r"proto (?P<proto>\w+)(?: channel\{Lo\.\.Hi\}=\{(?P<lo>\d{1,4})\.\.(?P<hi>\d{1,4})\})?"
)
_CHANNELS: Final = re.compile(r"^(\d{1,4}) coll channels, ")
_SYSTEM: Final = re.compile(r"=== System : maxBw [\d.]+ totalBw ([\d.]+) ===")
_RING: Final = re.compile(
    r"Pattern 4, crossNic \d+, nChannels (\d{1,4}), bw ([\d.]+)/[\d.]+, type (\w+)/"
)
_VERSION: Final = re.compile(r"\b[NR]CCL version (\S+)")


@dataclass(frozen=True)
class Communicator:
    """One rank's handle of a group: what its lines tell."""

    group: str
    """Its commId; where there is none, ranks and the order of creation."""
    rank: int = UNKNOWN
    ranks: int = 0
    host: str = ""
    pid: int = 0
    ready: bool = False
    destroyed: bool = False
    nodes: int = 0
    channels: int = 0
    """Channels for collectives; 0 where it does not say."""
    link_gbs: float = 0.0
    """What the topology gives a GPU, GB/s; 0 where it does not say."""
    ring: tuple[int, float, str] | None = None
    """Channels of the ring search, GB/s of each, kind of link."""


@dataclass(frozen=True)
class Tuning:
    """What rank 0 chose for this operation and size."""

    op: str
    bytes: int
    algorithm: str
    protocol: str
    channels: int
    """0 where the version does not say."""


@dataclass(frozen=True, eq=False)
class Calls:
    """Columns of equal length, in file order; ``UNKNOWN`` where a line does not say."""

    comm: npt.NDArray[np.int32]  # index into the log's communicators
    op: npt.NDArray[np.int8]  # index into the log's ops
    count: npt.NDArray[np.int64]  # elements, as the caller passed them
    dtype: npt.NDArray[np.int8]  # NCCL's number
    redop: npt.NDArray[np.int64]
    root: npt.NDArray[np.int32]
    line: npt.NDArray[np.int64]
    time: npt.NDArray[np.float64]  # seconds or ticks; NaN without a time stamp

    def __len__(self) -> int:
        return len(self.comm)


@dataclass(frozen=True, eq=False)
class NcclLog:
    """One file, or several that were merged."""

    path: str
    version: str
    lines: int
    communicators: tuple[Communicator, ...]
    ops: tuple[str, ...]
    calls: Calls
    tuning: tuple[Tuning, ...]
    table: Table | None
    warnings: tuple[tuple[int, str], ...]
    cut: tuple[int, ...]
    """Lines whose message ends before its communicator."""
    order: tuple[int, ...] = ()
    """Which communicators share one file: equal numbers do, so their lines are in order."""


_COLUMNS: Final = {
    "comm": "i",
    "op": "b",
    "count": "q",
    "dtype": "b",
    "redop": "q",
    "root": "i",
    "line": "q",
    "time": "d",
}


@dataclass
class _Reader:
    """One way through a file."""

    columns: dict[str, array[Any]] = field(
        default_factory=lambda: {key: array(kind) for key, kind in _COLUMNS.items()}
    )
    communicators: list[Communicator] = field(default_factory=list)
    by_key: dict[tuple[str, str, str], int] = field(default_factory=dict)
    by_thread: dict[tuple[str, str, str], int] = field(default_factory=dict)
    before: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    made: dict[tuple[str, str, int], int] = field(default_factory=dict)
    ops: dict[str, int] = field(default_factory=dict)
    tuning: dict[Tuning, None] = field(default_factory=dict)
    warnings: list[tuple[int, str]] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    cut: list[int] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    version: str = ""
    glued: int = 0
    number: int = 0

    def run(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.number += 1
            if "NCCL " not in line:
                self._loose(line + "\n")
                continue
            for head, body in self._messages(line):
                self._message(head, body)

    def _messages(self, line: str) -> Iterator[tuple[re.Match[str], str]]:
        heads = [first] if (first := _PREFIX.match(line)) else []
        if not heads or line.count("NCCL ") > 1:
            heads = list(_PREFIX.finditer(line))
        if not heads:
            self._loose(line + "\n")
            return
        start = heads[0].start()
        if start:
            host = heads[0]["host"]  # the table's last figure may have grown onto its front
            self._loose(line[: start + len(host) - len(self._host(host))])
        elif not self.glued and len(self.hosts) < 1 << 16:
            self.hosts.add(heads[0]["host"])
        self.glued += len(heads) - (start == 0)
        ends = [*(h.start() for h in heads[1:]), len(line)]
        for head, end in zip(heads, ends, strict=True):
            yield head, line[head.end() : end]

    def _loose(self, part: str) -> None:
        """Text of the program itself; a table's rows may stand around a message."""
        if len(self.loose) < 1 << 17:
            self.loose.append(part)

    def _host(self, name: str) -> str:
        """The host of a message glued to a number of the table before it: "-1node" is node."""
        if name in self.hosts:
            return name
        return next((h for h in self.hosts if name.endswith(h)), name)

    def _message(self, head: re.Match[str], body: str) -> None:
        if "opCount" in body:
            self._call(head, body)
        elif " Bytes -> Algo " in body:
            self._tuning(body)
        elif head["level"] in ("WARN", "ERROR"):
            if len(self.warnings) < _WARNINGS:
                self.warnings.append((self.number, body.strip()[:300]))
        elif "comm 0x" in body:
            self._communicator(head, body)
        elif "coll channels" in body or "Bw " in body or body.startswith("Pattern 4,"):
            self._topology(head, body)
        elif not self.version and (match := _VERSION.search("NCCL " + body)):
            self.version = match[1]

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, head: re.Match[str], body: str) -> None:
        match = _CALL.match(body)
        if match is None:
            self.cut.append(self.number)
            return
        comm = self._comm_of(head, match["comm"], int(match["nranks"] or 0))
        name = op_of(match["name"] or "") or match["name"] or ""
        op = self.ops.setdefault(name, len(self.ops)) if len(self.ops) < 100 else 0
        columns = self.columns
        columns["comm"].append(comm)
        columns["op"].append(op)
        columns["count"].append(int(match["count"]))
        columns["dtype"].append(int(match["dtype"] or UNKNOWN))
        columns["redop"].append(min(int(match["redop"]), 2**62))
        columns["root"].append(int(match["root"] or 0))
        columns["line"].append(self.number)
        columns["time"].append(timestamps.read(head["stamp"], head["ticks"]))

    def _comm_of(self, head: re.Match[str], pointer: str, ranks: int) -> int:
        key = (self._host(head["host"]), head["pid"], pointer)
        known = self.by_key.get(key)
        return known if known is not None else self._new(key, Communicator("", ranks=ranks))

    def _new(self, key: tuple[str, str, str], found: Communicator) -> int:
        host, pid, _ = key
        place = self.made.get((host, pid, found.ranks), 0)
        self.made[host, pid, found.ranks] = place + 1
        group = found.group or f"{found.ranks} ranks, number {place}"
        found = replace(found, group=group, host=host, pid=int(pid))
        self.by_key[key] = len(self.communicators)
        self.communicators.append(found)
        return len(self.communicators) - 1

    # -- communicators -----------------------------------------------------------------------------

    def _communicator(self, head: re.Match[str], body: str) -> None:
        match = _COMM.search(body)
        if match is None:
            return
        state = _STATE.search(body)
        starts = state is not None and state[1] != "Destroy" and state[2] == "START"
        key = (self._host(head["host"]), head["pid"], match["comm"])
        number = self.by_key.get(key)
        if number is None or (starts and self.communicators[number].destroyed):
            number = self._new(key, self._named(match, body))
        mine = self.communicators[number]
        done = state is not None and state[2] == "COMPLETE"
        ended = done and state is not None and state[1] in ("Destroy", "Abort")
        mine = replace(
            mine,
            rank=int(match["rank"]),
            ranks=int(match["nranks"]),
            nodes=int(match["nodes"] or mine.nodes),
            ready=mine.ready or (done and not ended),
            destroyed=mine.destroyed or ended,
        )
        thread = (key[0], head["pid"], head["tid"])
        self.by_thread[thread] = number
        if thread in self.before and not ended:
            mine = replace(mine, **self.before.pop(thread))
        self.communicators[number] = mine

    def _named(self, match: re.Match[str], body: str) -> Communicator:
        named = _COMM_ID.search(body)
        group = named[1] if named and "." not in named[1] else ""
        return Communicator(group, ranks=int(match["nranks"]))

    def _topology(self, head: re.Match[str], body: str) -> None:
        new: dict[str, Any] = {}
        if match := _CHANNELS.search(body):
            new["channels"] = int(match[1])
        elif match := _SYSTEM.search(body):
            new["link_gbs"] = float(match[1])
        elif match := _RING.match(body):
            new["ring"] = (int(match[1]), float(match[2]), match[3])
        thread = (self._host(head["host"]), head["pid"], head["tid"])
        number = self.by_thread.get(thread)
        if not new:
            return
        if number is None:
            self.before.setdefault(thread, {}).update(new)
        else:
            self.communicators[number] = replace(self.communicators[number], **new)

    def _tuning(self, body: str) -> None:
        match = _TUNING.match(body.removeprefix("Func: "))
        if match is None:
            self.cut.append(self.number)
            return
        channels = int(match["hi"]) - int(match["lo"]) + 1 if match["hi"] else 0
        name = match["name"] or ""
        chosen = Tuning(
            op_of(name) or name,
            int(match["bytes"]),
            _word(match["algo"], ALGORITHMS),
            _word(match["proto"], PROTOCOLS),
            channels,
        )
        if len(self.tuning) < 1 << 16:
            self.tuning[chosen] = None


def _word(value: str, words: tuple[str, ...]) -> str:
    """NCCL's number as its name; versions from 2.24 write the name."""
    if not value.isdigit():
        return value
    return words[int(value)] if int(value) < len(words) else ""


def looks_like(head: bytes) -> bool:
    """Whether the first bytes of a file are such a log's."""
    return _PREFIX.search(head.decode("utf-8", "replace")) is not None


def read(path: Path) -> NcclLog:
    """Read one log. Raises OSError."""
    return parse_lines(text.lines(path), str(path))


def parse_lines(lines: Iterable[str], path: str = "") -> NcclLog:
    """The log that these lines are."""
    reader = _Reader()
    reader.run(lines)
    columns: dict[str, Any] = {key: np.array(values) for key, values in reader.columns.items()}
    return NcclLog(
        path=path,
        version=reader.version,
        lines=reader.number,
        communicators=tuple(reader.communicators),
        ops=tuple(reader.ops),
        calls=Calls(**columns),
        tuning=tuple(reader.tuning),
        table=parse("".join(reader.loose).splitlines(), path),
        warnings=tuple(reader.warnings),
        cut=tuple(reader.cut),
        order=(0,) * len(reader.communicators),
    )


def merged(logs: list[NcclLog]) -> NcclLog:
    """Several files of one job as one log; lines of different files have no common order."""
    if len(logs) == 1:
        return logs[0]
    ops = {op: i for i, op in enumerate(dict.fromkeys(op for log in logs for op in log.ops))}
    first = np.cumsum([0, *(len(log.communicators) for log in logs)])
    parts: dict[str, list[Any]] = {key: [] for key in _COLUMNS}
    for at, log in zip(first.tolist(), logs, strict=False):
        own = {key: getattr(log.calls, key) for key in _COLUMNS}
        own["comm"] = own["comm"] + np.int32(at)
        own["op"] = np.array([ops[op] for op in log.ops], np.int8)[own["op"]]
        for key, values in own.items():
            parts[key].append(values)
    return NcclLog(
        path=", ".join(log.path for log in logs),
        version=logs[0].version,
        lines=sum(log.lines for log in logs),
        communicators=tuple(c for log in logs for c in log.communicators),
        ops=tuple(ops),
        calls=Calls(**{key: np.concatenate(values) for key, values in parts.items()}),
        tuning=tuple(t for log in logs for t in log.tuning),
        table=None,
        warnings=tuple(w for log in logs for w in log.warnings)[:_WARNINGS],
        cut=tuple(c for log in logs for c in log.cut),
        order=tuple(i for i, log in enumerate(logs) for _ in log.communicators),
    )
