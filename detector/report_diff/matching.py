"""Which findings of two reports are the same one: the same pattern at the same place in the code.

A finding's id names its pattern and the heaviest of its places. Which of several places is the
heaviest may differ from one recording to the next, so findings of one pattern are the same, too,
where any place of the one is among the places of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from detector.report import Finding

Place = tuple[str, str]


def places(finding: Finding) -> frozenset[Place]:
    """(file, function) of each of its source lines: line numbers move with every edit above."""
    return frozenset((w.file, w.function or str(w.line)) for w in finding.fix.where)


def same(a: Finding, b: Finding) -> bool:
    """Whether both are one finding of two scans."""
    if a.pattern != b.pattern:
        return False
    return a.id == b.id or bool(places(a) & places(b))


def new(findings: Iterable[Finding], known: Sequence[Finding]) -> list[Finding]:
    """The findings that are not among the known."""
    return [f for f in findings if not any(same(f, other) for other in known)]
