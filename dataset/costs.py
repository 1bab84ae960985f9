"""What a labeled fault costs: µs of analyzed time that its regions add, and how that is known.

Recorded faults are measured against their healthy twin, injected ones by what the replay added,
simulated ones against the same program without them, natural ones by hand. A fault that costs
under ``HARMLESS`` of the steps in which it acts is harmless: naming it is neither right nor wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from dataset.labels import CostFrom, Label, LabelError, LabelRegion

HARMLESS: Final = 0.01  # of the acting steps
SOURCES: Final[dict[str, CostFrom]] = {
    "recorded": "twin",
    "injected": "injection",
    "simulated": "simulation",
    "natural": "hand",
}
DIGITS: Final = 3  # of a microsecond


@dataclass(frozen=True)
class Cost:
    """What one pattern costs in one trace: µs in all, and the ``steps`` in which it acts, each
    ``step_us`` long (mean, with the fault)."""

    pattern: str
    total_us: float
    steps: int
    step_us: float

    @property
    def harmless(self) -> bool:
        """Under 1 % of the steps in which it acts."""
        return self.total_us < HARMLESS * self.steps * self.step_us


def with_costs(label: Label, costs: Iterable[Cost]) -> Label:
    """The label with these costs, each split over its pattern's regions by their length; the
    figures behind them stand in ``parameters["costs"]``."""
    found = {cost.pattern: _rounded(cost) for cost in costs if cost.pattern in label.patterns}
    length = dict.fromkeys(found, 0.0)
    for region in label.regions:
        if region.pattern in found:
            length[region.pattern] += region.end_us - region.start_us
    regions = tuple(
        _priced(region, found[region.pattern], length[region.pattern], SOURCES[label.origin])
        if region.pattern in found
        else region
        for region in label.regions
    )
    figures = {
        cost.pattern: {"total_us": cost.total_us, "steps": cost.steps, "step_us": cost.step_us}
        for cost in found.values()
    }
    more = {"costs": figures} if figures else {}
    return replace(label, regions=regions, parameters={**label.parameters, **more})


def _rounded(cost: Cost) -> Cost:
    """As it is written, so that the same figures decide whether it is harmless."""
    return replace(cost, total_us=round(cost.total_us, DIGITS), step_us=round(cost.step_us, DIGITS))


def _priced(region: LabelRegion, cost: Cost, length: float, source: CostFrom) -> LabelRegion:
    share = cost.total_us * (region.end_us - region.start_us) / length
    return replace(region, cost_us=round(share, DIGITS), cost_from=source, harmless=cost.harmless)


def cost_faults(label: Label) -> Iterator[str]:
    """Labeled regions without a cost or with another origin's, and costs that contradict the
    figures behind them."""
    figures = label.parameters.get("costs", {})
    for pattern in label.patterns:
        mine = [r for r in label.regions if r.pattern == pattern]
        if any(r.cost_us is None or r.cost_from != SOURCES[label.origin] for r in mine):
            yield f"{pattern}: a region without a cost from {SOURCES[label.origin]!r}"
            continue
        if pattern not in figures:
            yield f"{pattern}: no figures behind its cost"
            continue
        cost = Cost(pattern, **figures[pattern])
        total = sum(r.cost_us or 0.0 for r in mine)
        if abs(total - cost.total_us) > len(mine) * 10**-DIGITS:
            yield f"{pattern}: its regions cost {total:.3f} us, its figures say {cost.total_us:.3f}"
        if any(r.harmless != cost.harmless for r in mine):
            yield f"{pattern}: harmless is {mine[0].harmless}, against its cost and steps"


# -- recorded pairs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Twin:
    """A healthy recording of a program, and the median of its steps."""

    file: str
    step_us: float


def healthy_twins(found: Iterable[tuple[str, Label]]) -> dict[str, Twin]:
    """By pair its plain healthy run (of several the one of median step time); hard negatives are
    none."""
    runs: dict[str, list[Twin]] = {}
    for file, label in found:
        if label.quality == "good" and not label.parameters.get("extra"):
            runs.setdefault(label.pair, []).append(Twin(file, label.step_us))
    ranked = {pair: sorted(of, key=lambda twin: twin.step_us) for pair, of in runs.items()}
    return {pair: of[len(of) // 2] for pair, of in ranked.items()}


def against_twin(label: Label, twin_us: float | None) -> Label:
    """A recorded label with what its fault costs: the median acting step less the twin's, as long
    as this machine would have taken for it (``dataset.pace``), times the acting steps, at least 0.
    A good label stays as it is.

    The label files hold no cost: it is a property of a pair, not of a recording. Raises LabelError
    where there is no healthy twin.
    """
    if label.quality == "good":
        return label
    if twin_us is None:
        raise LabelError(f"{label.pair}: no healthy twin to measure its fault against")
    step = float(label.parameters["acting_step_us"])
    steps = sum(map(bool, label.parameters["acting_steps"]))
    total = max(step - twin_us, 0.0) * steps
    costs = [Cost(pattern, total, steps, step) for pattern in label.patterns]
    return with_costs(replace(label, healthy_step_us=twin_us), costs)
