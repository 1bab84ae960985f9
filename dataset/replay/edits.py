"""What can be changed before a replay, and what comes out. Times are ns; names play no part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from detector.replay import Times
from detector.trace import Int64

Wait = Literal["", "work", "stream", "device"]


@dataclass(frozen=True)
class Issue:
    """Device work: ``dur`` on stream ``track``.

    It starts after all work issued so far on the tracks ``after``; work issued later on the tracks
    ``holds`` starts after it.
    """

    dur: int
    track: int
    after: tuple[int, ...] = ()
    holds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Task:
    """A host event: ``own`` time of its own, spread around the tasks ``inside``.

    It issues its work as it begins. ``wait``: it ends after that work, all work issued so far on
    that work's stream (else the busiest one), or on all streams.
    """

    own: int
    inside: tuple[Task, ...] = ()
    issue: Issue | None = None
    wait: Wait = ""


@dataclass(frozen=True)
class Insert:
    """``tasks`` on host thread ``track`` from base time ``at`` on, ``gap`` of idle before each.

    Without tasks: ``gap`` of idle time.
    """

    track: int
    at: int
    tasks: tuple[Task, ...] = ()
    gap: int = 0


@dataclass(frozen=True)
class Replace:
    """Host event ``row``, all inside it and the device work that these issued, give way."""

    row: int
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class Remove:
    """Host event ``row``, all inside it and the device work that these issued, go."""

    row: int


@dataclass(frozen=True)
class Alter:
    """Another duration (of a host event: its own time), another wait of a call."""

    row: int
    dur: int | None = None
    wait: Wait | None = None


Edit = Insert | Replace | Remove | Alter


@dataclass(frozen=True)
class EditedTimes(Times):
    """Also where the inserted tasks lie, ns.

    ``task_*``: in the order of the edits, parents before children; ``issue_*``: of their device
    work, -1 without any. ``idle``: by edit, the time of an Insert without tasks.
    """

    task_start: Int64
    task_end: Int64
    issue_start: Int64
    issue_end: Int64
    idle: Mapping[int, tuple[int, int]]
