"""PyTorch flight-recorder dumps: pickles or JSON, one file a rank, and who hangs in them.

The pickle is read by an unpickler that loads no globals: a dump needs none, and a file that asks
for one is refused before anything of it runs.
"""

from __future__ import annotations

import ast
import io
import json
import pickle
import pickletools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from detector.errors import TraceError
from detector.logs.anomaly import Anomaly
from detector.logs.sequences import ranks_text

LARGEST: Final = 256 << 20  # bytes of a dump; the recorder keeps some thousand entries
_RANK: Final = re.compile(r"(\d{1,7})(?:\.\w{1,10})?$")


@dataclass(frozen=True)
class Entry:
    """One collective or message that a rank has enqueued."""

    group: str
    sequence: int
    op: str
    shapes: str
    dtypes: str
    state: str
    created_ns: int
    is_p2p: bool


@dataclass(frozen=True)
class Group:
    """A process group: its name, what it is for, its members."""

    name: str
    purpose: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Dump:
    """One rank's dump."""

    path: str
    rank: int | None
    version: str
    groups: tuple[Group, ...]
    entries: tuple[Entry, ...]


class _NoGlobals(pickle.Unpickler):
    """Builds numbers, texts, lists, tuples, dictionaries and sets, and nothing else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(
            f"asks for {module[:60]}.{name[:60]}, which a dump never needs"
        )

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("asks for an object of another file")


def _unpickled(data: bytes) -> object:
    """The pickle's value. Opcodes are looked through first: a memo of four thousand million
    entries takes a dozen bytes to ask for.
    """
    for op, argument, _ in pickletools.genops(data):
        if op.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > len(data):
            raise pickle.UnpicklingError("asks for a memo larger than itself")
    return _NoGlobals(io.BytesIO(data)).load()


def looks_like(head: bytes) -> bool:
    """Whether the first bytes may be a pickle or such a dump as JSON."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return True
    return head[:1] == b"{" and (b'"pg_config"' in head or b'"pg_status"' in head)


def read(path: Path) -> Dump:
    """Read one dump. Raises TraceError, one line, on what is none; OSError."""
    if path.stat().st_size > LARGEST:
        raise TraceError(f"{path}: larger than any flight-recorder dump")
    return parse(path.read_bytes(), str(path))


def parse(data: bytes, path: str) -> Dump:
    """The dump in these bytes. Raises TraceError."""
    try:
        value = json.loads(data) if data[:1] == b"{" else _unpickled(data)
    except pickle.UnpicklingError as error:
        raise TraceError(f"{path}: refused: {error}") from error
    except Exception as error:  # noqa: BLE001 - a pickle can fail in any way
        raise TraceError(f"{path}: not a flight-recorder dump ({type(error).__name__})") from error
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list | tuple):
        raise TraceError(f"{path}: not a flight-recorder dump (no entries)")
    return _dump(value, path)


def _dump(value: Mapping[str, Any], path: str) -> Dump:
    config = value.get("pg_config")
    rows = config.items() if isinstance(config, dict) else ()
    groups = tuple(_group(_text(name), row) for name, row in rows if isinstance(row, dict))
    entries = tuple(_entry(e) for e in value["entries"] if isinstance(e, dict))
    return Dump(path, _rank(value, path), _text(value.get("version")), groups, entries)


def _rank(value: Mapping[str, Any], path: str) -> int | None:
    """A dump does not say whose it is; the recorder writes the rank at the end of the name."""
    if (rank := _number(value.get("rank"))) >= 0:
        return rank
    match = _RANK.search(Path(path).name)
    return int(match[1]) if match else None


def _group(name: str, row: Mapping[str, Any]) -> Group:
    ranks = row.get("ranks", ())
    if isinstance(ranks, str):
        try:
            ranks = ast.literal_eval(ranks[: 1 << 20])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            ranks = ()
    numbers = ranks if isinstance(ranks, list | tuple) else ()
    found = tuple(r for r in numbers[: 1 << 20] if _number(r) >= 0)
    return Group(name, _text(row.get("desc")), found)


def _entry(row: Mapping[str, Any]) -> Entry:
    group = row.get("process_group")
    name = group[0] if isinstance(group, list | tuple) and group else row.get("pg_id")
    op = _text(row.get("profiling_name"))
    return Entry(
        group=_text(name),
        sequence=_number(row.get("collective_seq_id", row.get("seq_id"))),
        op=op.removeprefix("nccl:").removeprefix("gloo:"),
        shapes=_list(row.get("input_sizes")),
        dtypes=_list(row.get("input_dtypes")),
        state=_text(row.get("state")),
        created_ns=_number(row.get("time_created_ns")),
        is_p2p=row.get("is_p2p") is True,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else -1


def _text(value: object) -> str:
    """A short text or number; nothing else is written out, for a pickle may nest without end."""
    if isinstance(value, str):
        return value[:200]
    return str(value) if _number(value) >= 0 else ""


def _list(value: object, depth: int = 0) -> str:
    """``[[4096, 5120]]``: lists in lists of short texts and numbers."""
    if not isinstance(value, list | tuple) or depth > 2:
        return _text(value)
    more = ", ..." if len(value) > 8 else ""
    return "[" + ", ".join(_list(item, depth + 1) for item in value[:8]) + more + "]"


# -- who hangs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Missing:
    """A collective that some members have enqueued and others have not; the first one's entry."""

    entry: Entry
    created_ns: int
    group: Group
    absent: tuple[int, ...]
    waiting: tuple[int, ...]


def check(dumps: Sequence[Dump]) -> tuple[Anomaly, ...]:
    """What is wrong in each job: who hangs, who calls something else, whose dump is missing."""
    return tuple(
        anomaly
        for job in jobs([d for d in dumps if d.rank is not None])
        for anomaly in (*_hangs(job), *_mismatches(job), *_absent(job))
    )


def jobs(dumps: Sequence[Dump]) -> list[list[Dump]]:
    """Dumps of one job agree on the members of every group that they both name."""
    found: list[tuple[dict[str, Group], list[Dump]]] = []
    for dump in dumps:
        mine = {g.name: g for g in dump.groups}
        for groups, members in found:
            shared = groups.keys() & mine.keys()
            alike = all(groups[name] == mine[name] for name in shared)
            if shared and alike and dump.rank not in {m.rank for m in members}:
                groups.update(mine)
                members.append(dump)
                break
        else:
            found.append((mine, [dump]))
    return [members for _, members in found]


def _hangs(dumps: Sequence[Dump]) -> list[Anomaly]:
    """Where each rank that others wait for stopped: the first collective it did not enqueue.

    All that comes after is a consequence: the waiting ranks run on into more groups until each
    blocks. Of those collectives the one first created by a waiting rank is named.
    """
    first: dict[int, _Missing] = {}
    for missing in sorted(_missing(dumps), key=lambda m: m.created_ns):
        for rank in missing.absent:
            first.setdefault(rank, missing)
    roots: dict[int, list[int]] = defaultdict(list)
    by_id = {id(m): m for m in first.values()}
    for rank, missing in first.items():
        roots[id(missing)].append(rank)
    return [_hang(by_id[key], tuple(sorted(ranks))) for key, ranks in roots.items()]


def _groups(dumps: Iterable[Dump]) -> dict[str, Group]:
    return {g.name: g for d in dumps for g in d.groups}


def _by_call(dumps: Iterable[Dump]) -> dict[tuple[str, int], dict[int, Entry]]:
    calls: dict[tuple[str, int], dict[int, Entry]] = defaultdict(dict)
    for dump in dumps:
        for entry in dump.entries:
            if not entry.is_p2p and entry.sequence >= 0 and dump.rank is not None:
                calls[entry.group, entry.sequence][dump.rank] = entry
    return calls


def _missing(dumps: Sequence[Dump]) -> list[_Missing]:
    groups, read = _groups(dumps), {d.rank for d in dumps}
    last: dict[tuple[str, int], int] = {}
    calls = _by_call(dumps)
    for (name, sequence), by_rank in calls.items():
        for rank in by_rank:
            last[name, rank] = max(sequence, last.get((name, rank), -1))
    found = []
    for (name, sequence), by_rank in calls.items():
        waiting = tuple(r for r, e in by_rank.items() if e.state != "completed")
        group = groups.get(name)
        if group is None or not waiting:
            continue
        # A rank that has enqueued a later one has done this one, and it left the ring buffer.
        absent = tuple(r for r in group.ranks if r in read and last.get((name, r), -1) < sequence)
        if absent:
            created = min(by_rank[r].created_ns for r in waiting)
            entry = by_rank[min(waiting)]
            found.append(_Missing(entry, created, group, absent, waiting))
    return found


def _hang(missing: _Missing, ranks: tuple[int, ...]) -> Anomaly:
    entry, group = missing.entry, missing.group
    many = "ranks" if len(ranks) > 1 else "rank"
    text = (
        f"{many} {ranks_text(ranks)} did not enqueue {entry.op} {entry.shapes} {entry.dtypes};"
        f" {len(missing.waiting)} of the group's {len(group.ranks)} ranks wait"
    )
    where = f"group {group.name} {group.purpose}, sequence {entry.sequence}"
    return Anomaly("hang", text, ranks, where, entry.sequence)


def _mismatches(dumps: Sequence[Dump]) -> list[Anomaly]:
    """Ranks that call another operation, or another type, than the rest under one number."""
    found = []
    for (name, sequence), by_rank in sorted(_by_call(dumps).items()):
        for field, kind in (("op", "mismatched-op"), ("dtypes", "mismatched-dtype")):
            values: dict[str, list[int]] = defaultdict(list)
            for rank, entry in by_rank.items():
                values[getattr(entry, field)].append(rank)
            if len(values) > 1:
                odd, ranks = min(values.items(), key=lambda item: len(item[1]))
                usual = max(values, key=lambda v: len(values[v]))
                text = f"rank {ranks_text(ranks)}: {odd} where the others have {usual}"
                where = f"group {name}, sequence {sequence}"
                known: Any = kind
                found.append(Anomaly(known, text, tuple(ranks), where, sequence))
    return found


def _absent(dumps: Sequence[Dump]) -> list[Anomaly]:
    """Ranks of the job whose dump was not given."""
    ranks = {r for d in dumps for g in d.groups for r in g.ranks}
    lost = tuple(sorted(ranks - {d.rank for d in dumps}))
    if not lost or len(dumps) < 2:
        return []
    text = f"no dump of rank {ranks_text(lost)}, of {len(ranks)}"
    return [Anomaly("missing-rank", text, lost)]
