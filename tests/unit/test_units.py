"""The units of a build: a fixed order, enough of each, and no unit needs another."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dataset.inject
import dataset.simulate
from dataset import labels, units
from dataset import natural as by_hand
from dataset.bases import Found, digest, known
from dataset.inject import NOWHERE
from dataset.labels import Label, LabelError, LabelRegion
from dataset.natural import read_all
from dataset.units import Injected, LeftOut, Natural, Recorded, chunks, injected
from detector.patterns import BY_ID

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ("sync-explicit", "host-gc-pause", "memory-dtype-churn", "compute-underfilled")
PLAN = {"seed": 3, "tries": 2, "several": 3}
CONTENT = {"traceEvents": []}


def label(base: str, patterns: tuple[str, ...]) -> Label:
    regions = tuple(LabelRegion(0.0, 1.0, p, BY_ID[p].side) for p in patterns)
    return Label(
        origin="injected",
        pair=f"injected/{base}/7",
        workload=base,
        device="cuda:somewhere",
        framework="torch",
        seed=7,
        step_us=1.0,
        quality="bad" if patterns else "good",
        regions=regions,
        base=base,
    )


@pytest.fixture(autouse=True)
def injectors(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Injectors that put nothing in; returns what they were asked for."""
    asked: list[tuple[Any, ...]] = []

    def inject_many(
        base: Any, patterns: Any, seed: int, extent: str, healthy: Any
    ) -> tuple[Any, Label]:
        asked.append((base, patterns, seed, extent, healthy))
        if "host-gc-pause" in patterns:
            raise dataset.inject.Unfit("no such place here")
        return CONTENT, label("short", tuple(patterns))

    monkeypatch.setattr(dataset.inject, "injectors", lambda: dict.fromkeys(PATTERNS))
    monkeypatch.setattr(dataset.inject, "inject_many", inject_many)
    untouched = lambda base, healthy: (CONTENT, label("short", ()))  # noqa: E731
    monkeypatch.setattr(dataset.inject, "untouched", untouched)
    monkeypatch.setattr(units, "_opened", lambda file: f"base in {file.name}")
    return asked


def base(name: str, folder: Path = Path("nowhere"), size: int = 0) -> Found:
    file = folder / f"{name}.json.gz"
    if size:
        file.write_bytes(b"x" * size)
    return Found(name, file, f"language-{name}", "cuda:A100", "MIT", "0")


def test_each_base_gets_each_fault_and_stands_there_itself(tmp_path: Path) -> None:
    work = list(injected(PLAN, [base("one"), base("two")]))
    assert work == list(injected(PLAN, [base("one"), base("two")]))
    for name in ("one", "two"):
        mine = [u for u in work if u.base.name == name]
        assert mine[0].patterns == ()
        single = Counter(u.patterns for u in mine if len(u.patterns) == 1)
        assert single == {(p,): 2 for p in PATTERNS}
        for both in (u.patterns for u in mine if len(u.patterns) == 2):
            assert [BY_ID[p].side for p in both] == ["cpu", "gpu"]
        assert len(mine) == 1 + 2 * len(PATTERNS) + PLAN["several"]
    assert len({u.name for u in work}) == len({u.seed for u in work if u.patterns}) + 2
    assert not [p for p in PATTERNS for u in work if p in u.name]


def test_half_of_the_faults_sit_in_every_step() -> None:
    work = list(injected(PLAN, [base(name) for name in "abcdef"]))
    extents = Counter(u.extent for u in work if u.patterns)
    assert extents["every"] == pytest.approx(extents.total() / 2, abs=3)
    assert min(extents["some"], extents["once"]) > 0
    by_pattern = Counter((u.patterns, u.extent == "every") for u in work if len(u.patterns) == 1)
    assert set(by_pattern.values()) == {6}


def test_a_base_s_faults_depend_on_no_other_base() -> None:
    alone = list(injected(PLAN, [base("two")]))
    assert [u for u in injected(PLAN, [base("one"), base("two")]) if u.base.name == "two"] == alone
    seeds = [u.seed for u in alone]
    other = [u.seed for u in injected({**PLAN, "seed": 4}, [base("two")])]
    assert not set(seeds[1:]) & set(other)


def test_the_label_says_what_is_known_of_the_base(injectors: list[Any]) -> None:
    unit = Injected("injected/one/001", base("one"), ("sync-explicit",), 5, "every")
    content, made = unit.make()
    assert json.loads(content) == CONTENT
    assert injectors == [("base in one.json.gz", ("sync-explicit",), 5, "every", NOWHERE)]
    assert (made.workload, made.base, made.pair) == ("language-one", "one", "base/one")
    assert (made.device, unit.licence) == ("cuda:A100", "MIT")
    (healthy, twin) = Injected("injected/one/000", base("one"), (), 0, "").make()
    assert (json.loads(healthy), twin.quality, twin.pair) == (CONTENT, "good", made.pair)


def test_what_a_base_cannot_show_is_left_out_with_the_reason() -> None:
    unit = Injected("injected/one/001", base("one"), ("host-gc-pause",), 5, "once")
    with pytest.raises(LeftOut, match="no such place here"):
        unit.make()


def test_a_simulated_fault_that_costs_nothing_is_tried_with_other_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    def simulate(pattern: str | None, workload: str, device: str, seed: int) -> Any:
        tried.append(seed)
        if seed < enough:
            raise dataset.simulate.TooFaint(f"seed {seed}")
        return CONTENT, label("", ())

    monkeypatch.setattr(dataset.simulate, "simulate", simulate)
    unit = units.Simulated("simulated/1", "sync-explicit", "lm-train", "A100", 40)
    enough = 42
    assert json.loads(unit.make()[0]) == CONTENT
    assert tried == [40, 41, 42]
    enough = 100
    with pytest.raises(LeftOut, match="seed 4"):
        unit.make()


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Found:
    """A base whose trace is the only one that was labeled by hand."""
    label = replace(read_all()[0], sha256=sha256(b"{}").hexdigest())
    monkeypatch.setattr(by_hand, "read_all", lambda: (label,))
    file = tmp_path / f"{label.base}.json.gz"
    file.write_bytes(gzip.compress(b"{}"))
    return Found(label.base, file, known()[label.base].workload, "cuda:A100", "MIT", digest(file))


def test_labels_by_hand_find_their_trace_by_its_name_and_content(hand: Found) -> None:
    (unit,) = units.natural([hand, base("other")])
    (label,) = by_hand.read_all()
    assert unit == Natural(f"natural/{hand.name}", hand, label.label)
    content, made = unit.make()
    assert content == hand.file.read_bytes()
    assert (made.origin, made.workload, made.base) == ("natural", hand.workload, hand.name)


def test_a_label_by_hand_that_finds_no_trace_is_an_error(hand: Found) -> None:
    with pytest.raises(LabelError, match=f"not among the bases: {hand.name}$"):
        list(units.natural([base("other")]))
    with pytest.raises(LabelError, match=rf"not the trace that .*{hand.name}\.json labels"):
        list(units.natural([replace(hand, sha256="0")]))
    with pytest.raises(LabelError, match=f"the trace that is labeled as {hand.name}"):
        list(injected(PLAN, [replace(hand, name="renamed")]))


def test_a_base_is_healthy_where_somebody_said_so_and_nowhere_else(
    hand: Found, injectors: list[Any]
) -> None:
    """Also where its file is another: packed anew, or cut to its last steps."""
    work = list(injected(PLAN, [replace(hand, file=Path("short.json.gz")), base("other")]))
    (label,) = by_hand.read_all()
    assert all(u.hand == (label if u.base.name == hand.name else None) for u in work)
    next(u for u in work if u.patterns == ("sync-explicit",) and u.hand).make()
    spans = {side: found.measure for side, found in injectors[-1][4].items()}
    assert spans == {side: found.measure for side, found in label.sound.items()}


def test_a_recorded_healthy_run_is_healthy_all_over(
    injectors: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"start": np.array([5, 40]), "end": np.array([30, 90])}
    opened = SimpleNamespace(trace=SimpleNamespace(**times))
    monkeypatch.setattr(units, "_opened", lambda file: opened)
    mine = replace(base("twin"), recorded=True)
    Injected("injected/twin/001", mine, ("sync-explicit",), 5, "every").make()
    found = {side: (s.start.tolist(), s.end.tolist()) for side, s in injectors[-1][4].items()}
    assert found == {"cpu": ([5], [90]), "gpu": ([5], [90])}


def test_a_recorded_fault_costs_what_its_twin_does_without(tmp_path: Path) -> None:
    twin = replace(label("w", ()), origin="recorded", base="", pair="pair", step_us=100.0)
    acting = {"acting_steps": [True, False, True], "acting_step_us": 130.0}
    region = LabelRegion(0.0, 10.0, "sync-explicit", "cpu")
    faulty = replace(
        twin, quality="bad", parameters=acting, regions=(region, replace(region, end_us=30.0))
    )
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5, "pid": 1, "tid": 1}
    for name, one in (("a", twin), ("b", faulty), ("c", replace(faulty, pair="alone"))):
        (tmp_path / f"{name}.json.gz").write_text(json.dumps({"traceEvents": [event]}))
        labels.write(one, tmp_path / f"{name}.label.json")
    good, bad, alone = units.recorded([str(tmp_path)])
    assert good.make()[1] == twin
    made = bad.make()[1]
    assert [(r.cost_us, r.cost_from, r.harmless) for r in made.regions] == [
        (15.0, "twin", False),
        (45.0, "twin", False),
    ]
    assert made.healthy_step_us == 100.0
    with pytest.raises(LabelError, match="alone: no healthy twin"):
        alone.make()


def test_own_traces_are_bases_where_they_are_healthy() -> None:
    recorded = list(labels.labeled(ROOT / "dataset" / "recorded"))
    good = next(trace for trace, about in recorded if about.quality == "good")
    bad = next(trace for trace, about in recorded if about.quality == "bad")
    (found,) = units.own_bases([str(good.relative_to(ROOT))])
    assert found.workload == labels.read(labels.label_path(good)).workload
    assert found.licence == "Apache-2.0"
    with pytest.raises(LabelError, match="has a fault of its own"):
        list(units.own_bases([str(bad.relative_to(ROOT))]))


def test_workers_take_a_base_s_units_together_and_large_bases_first(tmp_path: Path) -> None:
    small, large = base("a", tmp_path, 10), base("b", tmp_path, 1_000)
    work = [Recorded("recorded/x", "x"), *injected(PLAN, [small, large])]
    parts = list(chunks(work))
    assert Counter(unit.name for part in parts for unit in part) == Counter(u.name for u in work)
    assert all(len({unit.group for unit in part}) == 1 for part in parts)
    assert [part[0].group for part in parts] == ["injected/b", "injected/a", "recorded"]


def test_names_are_needed_only_once() -> None:
    units.check_names([Recorded("a", "x"), Recorded("b", "x")])
    with pytest.raises(LabelError, match="several traces are called a"):
        units.check_names([Recorded("a", "x"), Recorded("a", "y")])
    with pytest.raises(LabelError, match="without traces"):
        units.check_names([])
