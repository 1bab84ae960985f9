"""Labeled traces without a device: simulated training and inference on simulated accelerators.

No device ran these programs. Their durations come from public peak figures and sampled noise, their
structure from what PyTorch's calls leave in a trace. They are named ``simulated`` in the label
(``origin``, ``device``) and in the trace itself.

    trace, label = simulate("sync-scalar-readback", "lm-train", "A100", seed=1)
    trace, label = simulate(None, "lm-train", "A100", seed=1)      # its healthy twin
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dataset.costs import Cost, with_costs
from dataset.labels import Label, LabelRegion, clip
from dataset.simulate.devices import DEVICES
from dataset.simulate.export import clock_of, to_kineto
from dataset.simulate.faults import FAULTS, LEFT_OUT, Injection, edits
from dataset.simulate.plan import Plan, Run, draw
from dataset.simulate.programs import WORKLOADS, execute, fitted, step_us
from dataset.simulate.rows import Act
from detector.patterns import BY_ID

__all__ = ["DEVICES", "FAULTS", "LEFT_OUT", "WORKLOADS", "TooFaint", "simulate", "workloads_for"]

LEAST, MOST = 0.03, 0.60  # wanted cost of a fault, as a share of the steps where it acts
SMALL_IDLE = 0.3  # device idle share from which a program on a small batch is launch-bound
FAINT = 0.01  # below this a fault is not labeled: `TooFaint`
TRIES = 4
SECOND = 0.15  # how often a second fault joins


class TooFaint(ValueError):
    """The fault costs next to nothing in this program: take another seed."""


def workloads_for(pattern: str) -> tuple[str, ...]:
    """The workloads in which this pattern can be simulated; empty when it cannot be at all."""
    return FAULTS[pattern].workloads if pattern in FAULTS else ()


def simulate(
    pattern: str | None, workload: str, device: str, seed: int
) -> tuple[dict[str, Any], Label]:
    """One trace (a Kineto JSON object) and its label; equal arguments give equal results.

    ``pattern=None`` gives the healthy twin: the same program without the fault. Raises ValueError
    for a pattern that the workload cannot show, `TooFaint` where this program hides its cost.
    """
    if pattern is not None and workload not in workloads_for(pattern):
        raise ValueError(f"{pattern} cannot be simulated in {workload}")
    healthy = _healthy(workload, device, seed)
    plan, healthy_us = healthy.plan, statistics.median(healthy.times)
    if pattern is None:
        twin = execute(plan, healthy_us=healthy.about_us)
        return to_kineto(twin), _label(twin, (), healthy_us, 0.0)
    run, faults, cost = _faulty(healthy, pattern)
    if pattern == "host-launch-bound" and plan.variant % 2 and plan.trains:
        small = _too_small(plan)
        if small[2] >= SMALL_IDLE:
            run, faults, cost = small
    if cost < FAINT:
        raise TooFaint(f"{pattern} costs {cost:.1%} in {workload} on {device}, seed {seed}")
    trace = to_kineto(run)
    label = clip(_label(run, faults, healthy_us, cost), trace["traceEvents"])
    return trace, with_costs(label, _costs(healthy, run, faults))


@dataclass(frozen=True)
class _Healthy:
    """The healthy program: its plan, how long its steps take (µs), which points a step passes."""

    plan: Plan
    about_us: float
    points: dict[str, int]
    times: tuple[float, ...]


@lru_cache(maxsize=4)
def _healthy(workload: str, device: str, seed: int) -> _Healthy:
    plan, about_us, points = fitted(draw(workload, DEVICES[device], seed))
    twin = execute(plan, healthy_us=about_us)
    return _Healthy(plan, about_us, points, tuple(step_us(twin)))


def _loosened(plan: Plan, pattern: str | None) -> Plan:
    """Where the healthy program reads a value now and then, a readback fault takes its place."""
    return replace(plan, scalar_every=0) if pattern == "sync-scalar-readback" else plan


def _too_small(plan: Plan) -> tuple[Run, tuple[Injection, ...], float]:
    """The same program on so small a batch that the device outruns the host in every step.

    It does less work than its twin, so its steps are shorter; the cost is the device's idle share.
    """
    r = random.Random(f"small/{plan.workload}/{plan.device.key}/{plan.seed}")
    small, about_us, _ = fitted(
        replace(
            plan,
            pull=r.uniform(0.15, 0.4),
            width=min(plan.width, 256),
            image=min(plan.image, 32),
            length=min(plan.length, 128),
        )
    )
    every = frozenset(range(plan.steps))
    whole = Injection("host-launch-bound", every, "start", frozenset({0}), 0.5, spans_only=True)
    run = execute(small, edits((whole,)), healthy_us=about_us)
    return run, (whole,), _idle(run) / sum(step_us(run))


def _idle(run: Run) -> float:
    """µs of its steps in which the device does nothing."""
    busy = sum(row.end - row.start for row in run.m.device_rows)
    return max(0.0, sum(step_us(run)) - busy)


def _faulty(healthy: _Healthy, pattern: str) -> tuple[Run, tuple[Injection, ...], float]:
    """Run with the fault; push it up or down until it costs what it should."""
    plan = _loosened(healthy.plan, pattern)
    r = random.Random(f"fault/{pattern}/{plan.workload}/{plan.device.key}/{plan.seed}")
    faults = _draw_faults(r, plan, pattern, healthy.points)
    best: tuple[Run, tuple[Injection, ...], float] | None = None
    for _ in range(TRIES):
        run = execute(plan, edits(faults), healthy_us=healthy.about_us)
        cost = _cost(run, faults[0], healthy.times)
        if best is None or _off(cost) < _off(best[2]):
            best = run, faults, cost
        if LEAST <= cost <= MOST:
            break
        factor = 3.0 if cost < LEAST else 0.4
        faults = (replace(faults[0], push=faults[0].push * factor), *faults[1:])
    assert best is not None
    return best


def _off(cost: float) -> float:
    return max(LEAST - cost, cost - MOST, 0.0)


def _cost(run: Run, fault: Injection, healthy: Sequence[float]) -> float:
    """Added time / faulty time over the steps where the fault acts and the one after each.

    -1 where the fault left nothing to label.
    """
    if not any(a.pattern == fault.pattern for a in run.m.acts):
        return -1.0
    added = _added(run, fault, healthy)
    return added / (sum(healthy[i] for i in fault.steps) + max(added, 0.0))


def _added(run: Run, fault: Injection, healthy: Sequence[float]) -> float:
    """Added time, µs, over the steps where the fault acts and the one after each."""
    times = step_us(run)
    touched = sorted({i for s in fault.steps for i in (s, s + 1) if i < len(times)})
    return sum(times[i] - healthy[i] for i in touched)


def _costs(healthy: _Healthy, run: Run, faults: Sequence[Injection]) -> Iterator[Cost]:
    """What each fault costs against the same program without it; of two faults, each alone."""
    plan = _loosened(healthy.plan, faults[0].pattern)
    for fault in faults:
        steps = len(fault.steps)
        if fault.spans_only:
            yield Cost(fault.pattern, _idle(run), steps, sum(step_us(run)) / steps)
            continue
        alone = run
        if len(faults) > 1:
            alone = execute(plan, edits((fault,)), healthy_us=healthy.about_us)
        added = max(_added(alone, fault, healthy.times), 0.0)
        step = (sum(healthy.times[i] for i in fault.steps) + added) / steps
        yield Cost(fault.pattern, added, steps, step)


def _draw_faults(
    r: random.Random, plan: Plan, pattern: str, points: dict[str, int]
) -> tuple[Injection, ...]:
    first = _draw_one(r, plan, pattern, points)
    if r.random() >= SECOND:
        return (first,)
    other = [
        p
        for p, f in FAULTS.items()
        if plan.workload in f.workloads
        and p != pattern
        and not f.mode
        and not f.whole
        and BY_ID[p].side != BY_ID[pattern].side
    ]
    if not other:
        return (first,)
    return first, _draw_one(r, plan, r.choice(other), points)


def _draw_one(r: random.Random, plan: Plan, pattern: str, points: dict[str, int]) -> Injection:
    fault = FAULTS[pattern]
    steps = frozenset(range(plan.steps))
    if r.random() >= 0.5:
        count = 1 if r.random() < 0.4 else r.randint(1, plan.steps - 1)
        steps = frozenset(r.sample(range(1, plan.steps), min(count, plan.steps - 1)))
    usable = [p for p in fault.points if points.get(p)] or ["start"]
    point = r.choice(usable)
    passes = points.get(point, 1)
    count = min(passes, r.randint(1, fault.spread))
    slots = frozenset(r.sample(range(passes), count))
    if point in ("load", "copy"):
        slots = frozenset(range(passes))
    elif point == "after_backward" and pattern.startswith("comm"):
        slots = frozenset({passes - 1})
    share = math.exp(r.uniform(math.log(0.04), math.log(0.5)))
    return Injection(pattern, steps, point, slots, share)


# -- labels ------------------------------------------------------------------------------------
def _label(run: Run, faults: Sequence[Injection], healthy_us: float, cost: float) -> Label:
    plan = run.plan
    regions = _regions(run, {f.pattern for f in faults})
    parameters: dict[str, Any] = {
        "style": plan.style,
        "host": round(plan.host, 3),
        "pull": round(plan.pull, 3),
        "batch": round(plan.batch, 4),
        "depth": plan.depth,
        "steps": plan.steps,
        "amp": plan.amp or "tf32",
        "healthy_step_us": round(healthy_us, 3),
        "added_share": round(cost, 4),
        "faults": [
            {
                "pattern": f.pattern,
                "steps": sorted(f.steps),
                "point": f.point,
                "share": round(f.share, 4),
                "smaller_program": f.spans_only,
            }
            for f in faults
        ],
    }
    return Label(
        origin="simulated",
        pair=f"simulated/{plan.workload}/{plan.device.key}/{plan.seed}",
        workload=plan.workload,
        device=f"simulated:{plan.device.key}",
        framework="simulated torch",
        seed=plan.seed,
        step_us=round(statistics.median(step_us(run)), 3),
        quality="bad" if faults else "good",
        regions=regions,
        parameters=parameters,
    )


def _regions(run: Run, wanted: set[str]) -> tuple[LabelRegion, ...]:
    clock = clock_of(run.plan)
    step = max((run.finish[-1] - run.opened) / len(run.finish), 1.0)
    out = []
    for pattern in sorted(wanted):
        side = BY_ID[pattern].side
        for index in range(run.plan.steps):
            acts = [a for a in run.m.acts if a.pattern == pattern and a.step == index]
            for start, end in _joined(_spans(acts, side), 0.02 * step):
                region = LabelRegion(float(clock.at(start)), float(clock.at(end)), pattern, side)
                if region.end_us <= region.start_us:
                    region = replace(region, end_us=region.start_us + 1.0)
                out.append(region)
    return tuple(sorted(out, key=lambda r: (r.start_us, r.end_us, r.pattern)))


def _spans(acts: Sequence[Act], side: str) -> list[tuple[float, float]]:
    if side == "cpu":
        return sorted(a.host for a in acts)
    return sorted(a.device for a in acts if a.device)


def _joined(spans: list[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Spans closer than ``gap`` become one; more than eight in a step become one as well."""
    out: list[tuple[float, float]] = []
    for start, end in spans:
        if out and start - out[-1][1] <= gap:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    if len(out) > 8:
        return [(out[0][0], max(e for _, e in out))]
    return out
