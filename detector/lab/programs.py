"""Which program a workload is a version of, and groups of programs to leave out in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def program(workload: str, same: Mapping[str, str]) -> str:
    """What a workload is a version of: ``same`` says so by the beginning of its name."""
    return next((name for start, name in same.items() if workload.startswith(start)), workload)


def groups(programs: Iterable[str], count: int) -> list[tuple[str, ...]]:
    """The programs in at most so many groups of about as many rows each: the one with the most rows
    first, each into the group that has the fewest. ``programs``: that of each row."""
    size = Counter(programs)
    found: list[list[str]] = [[] for _ in range(min(count, len(size)))]
    for name in sorted(size, key=lambda name: (-size[name], name)):
        min(found, key=lambda group: sum(size[n] for n in group)).append(name)
    return [tuple(sorted(group)) for group in found]
