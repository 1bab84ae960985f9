"""Candidates: every pattern of a trace that is worth its while, with what repairing it saves.

Found in the whole analyzed time, wherever the occurrences lie, and sized by counterfactual: the
trace is replayed without the fault. ``alone``: only this pattern is repaired. ``rest``: it is
repaired last, when all others are. Between them lies the truth: two causes that hold the device up
at the same time have no figure of their own. ``best`` are the shares of a waterfall, faults first:
they add up to what all candidates save together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from detector.ledger import BY_ID as CAUSES
from detector.ledger import Ledger
from detector.patterns import PATTERNS, Occurrences, Pattern
from detector.replay import Graph, Repair
from detector.signals import Place, Signals
from detector.trace import Int64

LEAST_SHARE: Final = {"fault": 0.02, "opportunity": 0.05}  # of the analyzed time
WORTH_TRYING: Final = 0.005  # alone: less is not replayed with the others
UNEXPLAINED_SHARE: Final = 0.05
_PRODUCTIVE: Final = ("busy",)  # what the device is there for


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pattern with its occurrences in the analyzed time.

    ``best_ns`` lies within [``rest_ns``, ``alone_ns``]; ``by_step_ns``: what each step gains alone.
    """

    pattern: Pattern
    occurrences: Occurrences
    rest_ns: int
    alone_ns: int
    best_ns: int
    share: float
    by_step_ns: tuple[int, ...] = ()


@dataclass(frozen=True)
class Unexplained:
    """A cause of the ledger that no candidate accounts for."""

    cause: str
    ns: int
    share: float
    places: tuple[Place, ...]


@dataclass(frozen=True, eq=False)
class Candidates:
    """``joint_ns``: what all of them save together, by one replay."""

    found: tuple[Candidate, ...]
    joint_ns: int
    unexplained: tuple[Unexplained, ...]


def find(
    signals: Signals,
    ledger: Ledger,
    steps: Int64 | None = None,
    blind: Mapping[str, str] | None = None,
) -> Candidates:
    """The candidates of the ledger's time, the largest first.

    ``steps``: their edges, ns, for the gain of each; ``blind``: patterns that cannot be checked.
    """
    span = (ledger.start, ledger.end)
    wall = max(1, ledger.end - ledger.start)
    graph = Graph(signals.trace)
    tried = [
        (candidate, repair)
        for pattern in PATTERNS
        if pattern.id not in (blind or {})
        for candidate, repair in _alone(graph, signals, pattern, span, wall)
    ]
    tried = [pair for pair in tried if _worth_trying(pair[0], wall)]
    kept, joint = _among_each_other(graph, tried, span, wall)
    if steps is not None and len(steps) > 1:
        kept = [_by_step(graph, pair, steps) for pair in kept]
    found = tuple(sorted((c for c, _ in kept), key=lambda c: -c.best_ns))
    return Candidates(found, joint, _unexplained(ledger, found, wall))


def _alone(
    graph: Graph, signals: Signals, pattern: Pattern, span: tuple[int, int], wall: int
) -> list[tuple[Candidate, Repair]]:
    occurrences = pattern.occurrences(signals).within(*span)
    if not len(occurrences):
        return []
    repair = pattern.repair(signals, occurrences.rows)
    saved = min(graph.saved(repair, span), wall)
    return [(Candidate(pattern, occurrences, 0, saved, saved, saved / wall), repair)]


def _worth_trying(candidate: Candidate, wall: int) -> bool:
    """Whether it saves anything alone, or might once what holds it up is repaired: device work
    that hides behind a slow host saves nothing as long as the host is slow."""
    extent = candidate.occurrences.spans.measure
    hidden = candidate.pattern.side == "gpu" and extent >= LEAST_SHARE["fault"] * wall
    return hidden or candidate.alone_ns >= WORTH_TRYING * wall


def _precedence(pair: tuple[Candidate, Repair]) -> tuple[bool, bool, int]:
    """Faults first, then what the program does between launches: it has a name of its own, which
    the pace of launches in general has not; then the largest."""
    pattern, alone = pair[0].pattern, pair[0].alone_ns
    return pattern.kind != "fault", pattern.signal != "python-gap", -alone


def _among_each_other(
    graph: Graph,
    tried: Sequence[tuple[Candidate, Repair]],
    span: tuple[int, int],
    wall: int,
) -> tuple[list[tuple[Candidate, Repair]], int]:
    """Sizes among each other, and what all save together.

    Faults share what they save together in proportion to what each saves alone; opportunities get
    what they save after them, one after the other. What is then not worth it is dropped, and leaves
    its share to the others.
    """
    order = sorted(tried, key=_precedence)
    while order:
        faults = [pair for pair in order if pair[0].pattern.kind == "fault"]
        together = _joined(faults)
        shares = graph.waterfall([together, *(r for _, r in order[len(faults) :])], span)
        split = _in_proportion([c.alone_ns for c, _ in faults], shares[0])
        sized = [
            (replace(c, best_ns=ns, share=ns / wall), r)
            for (c, r), ns in zip(order, [*split, *shares[1:]], strict=True)
        ]
        weak = [i for i, (c, _) in enumerate(sized) if c.share < LEAST_SHARE[c.pattern.kind]]
        if not weak:
            return _with_rest(graph, sized, span, sum(shares)), sum(shares)
        least = min(weak, key=lambda i: sized[i][0].best_ns)
        order = [pair for i, pair in enumerate(order) if i != least]
    return [], 0


def _joined(pairs: Sequence[tuple[Candidate, Repair]]) -> Repair:
    whole = Repair()
    for _, repair in pairs:
        whole = whole | repair
    return whole


def _in_proportion(parts: Sequence[int], whole: int) -> list[int]:
    """``whole`` in parts as large, one to another, as these; they add up exactly."""
    edges = np.round(np.cumsum([0, *parts]) * (whole / max(1, sum(parts)))).astype(np.int64)
    return [int(x) for x in np.diff(edges)]


def _with_rest(
    graph: Graph, sized: Sequence[tuple[Candidate, Repair]], span: tuple[int, int], joint: int
) -> list[tuple[Candidate, Repair]]:
    """What each saves when all others are repaired."""
    found = []
    for i, (candidate, repair) in enumerate(sized):
        others = Repair()
        for j, (_, other) in enumerate(sized):
            if j != i:
                others = others | other
        rest = joint - graph.saved(others, span)
        low, high = sorted((max(rest, 0), max(candidate.alone_ns, candidate.best_ns)))
        low = min(low, candidate.best_ns)
        found.append((replace(candidate, rest_ns=low, alone_ns=high), repair))
    return found


def _by_step(
    graph: Graph, pair: tuple[Candidate, Repair], steps: Int64
) -> tuple[Candidate, Repair]:
    candidate, repair = pair
    gains = np.maximum(graph.saved_between(repair, steps), 0)
    return replace(candidate, by_step_ns=tuple(gains.tolist())), repair


def _unexplained(ledger: Ledger, found: Sequence[Candidate], wall: int) -> tuple[Unexplained, ...]:
    """Causes of five per cent and more of which no candidate accounts for."""
    named = {cause for candidate in found for cause in candidate.pattern.explains}
    rows = []
    for cause, ns in ledger.total().items():
        group = CAUSES[cause].group
        lost = group not in _PRODUCTIVE and cause not in named
        if lost and ns >= UNEXPLAINED_SHARE * wall:
            rows.append(Unexplained(cause, ns, ns / wall, ledger.places(cause)))
    return tuple(rows)
