"""Candidates: every pattern of a trace that is worth its while, with what repairing it saves.

Found in the whole analyzed time, wherever the occurrences lie, and sized by counterfactual: the
trace is replayed without the fault. ``alone``: only this pattern is repaired. ``rest``: it is
repaired last, when all others are. Between them lies the truth: two causes that hold the device up
at the same time have no figure of their own. ``best`` is the mean share of waterfalls in orders
that favour none, faults first: what all candidates save together is the sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from detector import process_memory
from detector.index_sets import intersection
from detector.intervals import EMPTY, Intervals
from detector.ledger import BY_ID as CAUSES
from detector.ledger import Ledger
from detector.patterns import PATTERNS, Occurrences, Pattern
from detector.replay import Columns, Condensed, Graph, Repair, Savings, joined
from detector.signals import Place, Signals
from detector.trace import Int64

LEAST_SHARE: Final = {"fault": 0.02, "opportunity": 0.03}  # of the analyzed time
LEAST_ON_CPU: Final = 0.05  # opportunities on a CPU run: two runs of one program are as far apart
WORTH_TRYING: Final = 0.005  # alone: less is not replayed with the others
UNEXPLAINED_SHARE: Final = 0.05
_PRODUCTIVE: Final = ("busy",)  # what the device is there for


@dataclass(frozen=True, eq=False)
class Candidate:
    """A pattern with its occurrences in the analyzed time.

    ``best_ns`` lies within [``rest_ns``, ``alone_ns``], which are the least and the most of what it
    saves first and last; ``first_ns``: with no other repaired; ``by_step_ns``: what each step gains
    alone; ``backward``: the time of the backward pass that the repair spares, too.
    """

    pattern: Pattern
    occurrences: Occurrences
    rest_ns: int
    alone_ns: int
    best_ns: int
    share: float
    by_step_ns: tuple[int, ...] = ()
    first_ns: int = 0
    backward: Intervals = EMPTY

    def likely_ns(self, most: int) -> tuple[int, int]:
        """What repairing it likely saves, from when all others are repaired to when none is, by
        how far the pattern's replays are off; no more than ``most``."""
        less, more = self.pattern.error
        return int(less * self.rest_ns), min(most, int(more * self.alone_ns))


Sized = tuple[Candidate, Repair]


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
    process_memory.trim()
    occurring = [
        pair
        for pattern in PATTERNS
        if pattern.id not in (blind or {})
        and (pair := _occurring(signals, pattern, span)) is not None
    ]
    process_memory.trim()
    edges = np.array([ledger.end]) if steps is None else np.append(steps, ledger.end)
    savings, occurring = _condensed(Graph(signals.trace).columns, occurring, ledger.start, edges)
    replays = _Replays(savings, span, least_shares(on_device=signals.activity.has_device))
    alone = [_alone(replays, pair, wall) for pair in occurring]
    tried = [pair for pair in alone if _worth_trying(pair[0], wall)]
    kept, joint = _among_each_other(replays, tried, wall)
    if steps is not None and len(steps) > 1:
        kept = [_by_step(replays.savings, pair, steps) for pair in kept]
    found = tuple(sorted((c for c, _ in kept), key=lambda c: -c.best_ns))
    return Candidates(found, joint, _unexplained(ledger, found, wall))


def least_shares(*, on_device: bool) -> dict[str, float]:
    """By kind of pattern, the share of the analyzed time from which on it is a candidate."""
    return LEAST_SHARE if on_device else {**LEAST_SHARE, "opportunity": LEAST_ON_CPU}


class _Replays:
    """What sets of repairs save in the ledger's time; each set is replayed once. ``least``: of the
    share by kind that is worth it."""

    def __init__(self, savings: Savings, span: tuple[int, int], least: Mapping[str, float]) -> None:
        self.savings, self.span, self.least = savings, span, least
        self._saved: dict[frozenset[str], int] = {}

    def saved(self, pairs: Sequence[Sized]) -> int:
        """ns that all of these repairs save together."""
        which = frozenset(candidate.pattern.id for candidate, _ in pairs)
        if which not in self._saved:
            whole = joined([repair for _, repair in pairs])
            self._saved[which] = self.savings.saved(whole, self.span)
        return self._saved[which]

    def waterfall(self, pairs: Sequence[Sized]) -> list[int]:
        """What each saves once those before it are repaired."""
        reached = [self.saved(pairs[:count]) for count in range(len(pairs) + 1)]
        return [after - before for before, after in pairwise(reached)]


def _occurring(signals: Signals, pattern: Pattern, span: tuple[int, int]) -> Sized | None:
    """A pattern and its repair, not sized yet; None where it does not occur."""
    occurrences = pattern.occurrences(signals).within(*span)
    if not len(occurrences):
        return None
    repair = pattern.repair(signals, occurrences.rows)
    backward = _backward(signals, repair.remove)
    return Candidate(pattern, occurrences, 0, 0, 0, 0.0, backward=backward), repair


def _condensed(
    program: Columns, pairs: Sequence[Sized], start: int, edges: Int64
) -> tuple[Savings, list[Sized]]:
    """What replays these repairs, and these as repairs of what it replays."""
    process_memory.trim()
    small = Condensed(program, [repair for _, repair in pairs], start, edges)
    process_memory.trim()
    repairs = zip(pairs, small.repairs, strict=True)
    return Savings(small.columns), [(candidate, repair) for (candidate, _), repair in repairs]


def _alone(replays: _Replays, pair: Sized, wall: int) -> Sized:
    """A candidate and its repair, sized alone."""
    saved = min(replays.saved([pair]), wall)
    candidate = replace(pair[0], alone_ns=saved, best_ns=saved, first_ns=saved, share=saved / wall)
    return candidate, pair[1]


def _backward(s: Signals, gone: Int64) -> Intervals:
    """The time of what goes of the backward pass."""
    return s.activity.spans(intersection(gone, s.activity.host("backward")))


def _worth_trying(candidate: Candidate, wall: int) -> bool:
    """Whether it saves anything alone, or might once what holds it up is repaired: device work
    that hides behind a slow host saves nothing as long as the host is slow."""
    extent = candidate.occurrences.spans.measure
    hidden = candidate.pattern.side == "gpu" and extent >= LEAST_SHARE["fault"] * wall
    return hidden or candidate.alone_ns >= WORTH_TRYING * wall


def _precedence(pair: Sized) -> tuple[bool, bool, int]:
    """Faults first, then what the program does between launches: it has a name of its own, which
    the pace of launches in general has not; then the largest."""
    pattern, alone = pair[0].pattern, pair[0].alone_ns
    return pattern.kind != "fault", pattern.signal != "python-gap", -alone


def _among_each_other(
    replays: _Replays, tried: Sequence[Sized], wall: int
) -> tuple[list[Sized], int]:
    """Sizes among each other, and what all save together.

    What is neither worth it in its share nor repaired last is dropped, the least first; it leaves
    its share to the others.
    """
    order = sorted(tried, key=_precedence)
    while order:
        sized = _sized(order, _shares(replays, order, turns=1), wall)
        dropped = _least_worth(replays, sized, wall)
        if dropped is None:
            shares = _shares(replays, order, turns=len(order))
            return _with_rest(replays, _sized(order, shares, wall)), sum(shares)
        order = [pair for i, pair in enumerate(order) if i != dropped]
    return [], 0


def _sized(order: Sequence[Sized], shares: Sequence[int], wall: int) -> list[Sized]:
    return [
        (replace(candidate, best_ns=ns, share=ns / wall), repair)
        for (candidate, repair), ns in zip(order, shares, strict=True)
    ]


def _shares(replays: _Replays, order: Sequence[Sized], turns: int) -> list[int]:
    """What each saves, faults before opportunities; adds up to what all save.

    Among its like each gets the mean of waterfalls, each in an order and its reverse: what only two
    repairs together save is neither the first's nor the last's. ``turns``: in so many orders, each
    of which begins one place further and goes round; with all of them, no place is anyone's own.
    """
    faults = sum(candidate.pattern.kind == "fault" for candidate, _ in order)
    groups = [g for g in (range(faults), range(faults, len(order))) if len(g)]
    total, waterfalls = [0] * len(order), 0
    for turn in range(min(turns, max(map(len, groups)))):
        turned = [[g[(turn + i) % len(g)] for i in range(len(g))] for g in groups]
        for places in (turned, [group[::-1] for group in turned]):
            where = [place for group in places for place in group]
            for place, ns in zip(where, replays.waterfall([order[i] for i in where]), strict=True):
                total[place] += ns
            waterfalls += 1
    return _parts(total, waterfalls)


def _parts(total: Sequence[int], count: int) -> list[int]:
    """The ``count``-th part of each, in whole ns that add up to that of the sum."""
    reached = [ns // count for ns in accumulate(total, initial=0)]
    return [after - before for before, after in pairwise(reached)]


def _least_worth(replays: _Replays, sized: Sequence[Sized], wall: int) -> int | None:
    """The least of those that are not worth it; None where all are."""
    for i in sorted(range(len(sized)), key=lambda i: sized[i][0].best_ns):
        candidate = sized[i][0]
        least = replays.least[candidate.pattern.kind] * wall
        if candidate.best_ns < least and _rest(replays, sized, i) < least:
            return i
    return None


def _rest(replays: _Replays, sized: Sequence[Sized], last: int) -> int:
    """What one saves when all others are repaired."""
    others = [pair for i, pair in enumerate(sized) if i != last]
    joint = sum(candidate.best_ns for candidate, _ in sized)
    return max(0, joint - replays.saved(others))


def _with_rest(replays: _Replays, sized: Sequence[Sized]) -> list[Sized]:
    """The range of each: alone, and when all others are repaired."""
    found = []
    for i, (candidate, repair) in enumerate(sized):
        rest = _rest(replays, sized, i)
        low = min(rest, candidate.alone_ns, candidate.best_ns)
        high = max(rest, candidate.alone_ns, candidate.best_ns)
        found.append((replace(candidate, rest_ns=low, alone_ns=high), repair))
    return found


def _by_step(savings: Savings, pair: Sized, steps: Int64) -> Sized:
    candidate, repair = pair
    gains = np.maximum(savings.between(repair, steps), 0)
    return replace(candidate, by_step_ns=tuple(gains.tolist())), repair


def _unexplained(ledger: Ledger, found: Sequence[Candidate], wall: int) -> tuple[Unexplained, ...]:
    """Causes of five per cent and more of which no candidate accounts for."""
    named = {cause for candidate in found for cause in candidate.pattern.explains}
    spare = _beyond(ledger, found, named)
    rows = []
    for cause, ns in ledger.total().items():
        group = CAUSES[cause].group
        lost = group not in _PRODUCTIVE and cause not in named
        if lost and group == "host" and spare >= ns / 2:
            spare -= min(spare, ns)
            continue
        if lost and ns >= UNEXPLAINED_SHARE * wall:
            rows.append(Unexplained(cause, ns, ns / wall, ledger.places(cause)))
    return tuple(rows)


def _beyond(ledger: Ledger, found: Sequence[Candidate], named: Collection[str]) -> int:
    """ns that the host's candidates save beyond the causes they name: of its other ones, then."""
    total = ledger.total()
    saved = sum(candidate.best_ns for candidate in found if candidate.pattern.side == "cpu")
    return max(0, saved - sum(total.get(cause, 0) for cause in named))
