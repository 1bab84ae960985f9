"""A labeled trace as rows: labels by a slow definition, and nothing that gives the answer away."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset import tables as module
from dataset.faults import FAULTS as RECORDED
from dataset.labels import UNKNOWN, Label, LabelError, LabelRegion, Origin, labeled
from dataset.simulate import TooFaint, simulate, workloads_for
from dataset.tables import PER_PATTERN, UNSUSPICIOUS, Tables, tables
from detector.features import COLUMNS, candidate
from detector.patterns import CLASSES, PATTERNS
from detector.region import Region
from detector.taxonomy import NONE

ROOT = Path(__file__).resolve().parents[2]
STEPS, STEP = 4, 1_000.0  # of the hand-written trace; a window is an eighth of a step
PART = STEP / 8
LABELS = ("cpu", "gpu", "unknown_cpu", "unknown_gpu", "pattern")
ABOUT = ("trace", "origin", "workload", "device", "pair", "quality", "seed")
HEALTHY = Label(
    origin="recorded",
    pair="pair-a",
    workload="work",
    device="cpu",
    framework="torch 2.13.0",
    seed=3,
    step_us=STEP,
    quality="good",
)


def hand_trace(folder: Path, base: float = 0.0, name: str = "a") -> Path:
    """Four marked steps of 1 ms on the CPU, filled with one op each."""
    events = []
    for i in range(STEPS):
        about = {"ph": "X", "pid": 1, "tid": 1, "ts": base + i * STEP, "dur": STEP}
        events.append({**about, "cat": "user_annotation", "name": f"ProfilerStep#{i}"})
        events.append({**about, "cat": "cpu_op", "name": "aten::mm", "dur": STEP - 1})
    events[-1]["dur"] = STEP
    path = folder / f"{name}.json.gz"
    path.write_bytes(
        gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode())
    )
    return path


def bad(*regions: tuple[float, float, str, str], base: float = 0.0) -> Label:
    """A label with these regions, µs from ``base``."""
    found = tuple(LabelRegion(base + a, base + b, p, side) for a, b, p, side in regions)  # type: ignore[arg-type]
    return replace(HEALTHY, quality="bad", regions=found)


def column(found: Tables, key: str) -> list[Any]:
    return [row[key] for row in found.windows]


# -- windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0.0, 1.7e9, 5_421_987_654.5])
def test_labels_of_windows_by_hand(tmp_path: Path, base: float) -> None:
    label = bad(
        (1_000, 1_250, "host-gc-pause", "cpu"),  # two windows, whole
        (2_000, 2_062.5, "host-gc-pause", "cpu"),  # half of one
        (3_000, 3_010, "host-gc-pause", "cpu"),  # an edge: 8 % of one
        (3_125, 3_250, "memory-dtype-churn", "gpu"),
        base=base,
    )
    found = tables(hand_trace(tmp_path, base), label, "a")
    assert len(found.windows) == len(found.matrix) == 8 * STEPS
    cpu, gpu = [0.0] * 32, [0.0] * 32
    cpu[8], cpu[9], cpu[16], cpu[24], gpu[25] = 1.0, 1.0, 0.5, 0.08, 1.0
    assert column(found, "cpu") == pytest.approx(cpu)
    assert column(found, "gpu") == pytest.approx(gpu)
    named = {i: p for i, p in enumerate(column(found, "pattern")) if p != NONE}
    assert named == dict.fromkeys((8, 9, 16), "host-gc-pause") | {25: "memory-dtype-churn"}
    assert column(found, "start_us") == pytest.approx([base + i * PART for i in range(32)])


def test_a_window_is_covered_once_however_many_regions_lie_on_it(tmp_path: Path) -> None:
    label = bad(
        (0, 100, "host-gc-pause", "cpu"),
        (50, 125, "host-gc-pause", "cpu"),
        (0, 125, "host-python-overhead", "cpu"),
    )
    assert tables(hand_trace(tmp_path), label, "a").windows[0]["cpu"] == 1.0


SHOWN = ("host-gc-pause", "host-python-overhead", "memory-dtype-churn", "memory-zero-grad-fill")
SIDE = {p.id: p.side for p in PATTERNS}
SPANS = st.tuples(st.integers(0, 3_990), st.integers(1, 900), st.sampled_from(SHOWN))


def slow_share(start: float, end: float, regions: Sequence[LabelRegion]) -> float:
    """The share of the window's whole µs that lie in any region."""
    inside = [any(r.start_us <= t < r.end_us for r in regions) for t in np.arange(start, end, 0.5)]
    return sum(inside) / len(inside)


@pytest.fixture(scope="module")
def one_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hand_trace(tmp_path_factory.mktemp("hand"))


@given(st.lists(SPANS, min_size=1, max_size=5))
def test_labels_of_windows_are_the_slow_definition(one_trace: Path, spans: list[Any]) -> None:
    label = bad(*((a, a + d, p, SIDE[p]) for a, d, p in spans))
    for row in tables(one_trace, label, "a").windows:
        start, end = row["start_us"], row["end_us"]
        for side in ("cpu", "gpu"):
            mine = [r for r in label.regions if r.side == side]
            assert row[side] == pytest.approx(slow_share(start, end, mine)), (side, start)
        shares = {
            p: slow_share(start, end, [r for r in label.regions if r.pattern == p])
            for p in label.patterns
        }
        most = max(shares.values())
        likeliest = {p for p in shares if shares[p] == most} if most >= 0.1 else {NONE}
        assert row["pattern"] in likeliest


def test_a_fault_that_the_trace_cannot_show_is_a_fault_all_the_same(tmp_path: Path) -> None:
    """Nobody sees a device synchronize in a CPU run, but no judge learns from it either."""
    label = bad((1_000, 1_250, "sync-explicit", "cpu"), (2_000, 2_125, "host-gc-pause", "cpu"))
    found = tables(hand_trace(tmp_path), label, "a")
    assert not any(column(found, "unknown_cpu"))
    assert [i for i, share in enumerate(column(found, "cpu")) if share] == [8, 9, 16]
    assert {row["pattern"] for row in found.evidence} == {"host-gc-pause", NONE}


def test_where_nobody_knows_is_neither_healthy_nor_faulty(
    tmp_path: Path, seen: list[Region]
) -> None:
    regions = [(0, 2_000, UNKNOWN, "cpu"), (1_000, 1_125, "host-gc-pause", "cpu")]
    regions += [(2_062.5, 3_000, UNKNOWN, "gpu")]
    found = tables(hand_trace(tmp_path), bad(*regions), "a")
    assert column(found, "unknown_cpu") == [1.0] * 16 + [0.0] * 16
    assert column(found, "unknown_gpu") == [0.0] * 16 + [0.5] + [1.0] * 7 + [0.0] * 8
    assert column(found, "cpu") == [0.0] * 8 + [1.0] + [0.0] * 23
    assert set(column(found, "pattern")) == {NONE, "host-gc-pause"}
    healthy = [r for r, row in zip(seen, found.evidence, strict=True) if row["pattern"] == NONE]
    assert healthy  # only in the one step of which nothing is unknown
    assert all(r.start >= 3_000_000 for r in healthy)


def test_a_label_of_another_taxonomy_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="'host-moon-phase'"):
        tables(hand_trace(tmp_path), bad((0, 10, "host-moon-phase", "cpu")), "a")


def test_rows_carry_the_label_s_own_words(tmp_path: Path) -> None:
    found = tables(hand_trace(tmp_path), HEALTHY, "set/a")
    row = found.windows[0]
    assert set(row) == {*ABOUT, "start_us", "end_us", *LABELS}
    assert [row[key] for key in ABOUT] == ["set/a", "recorded", "work", "cpu", "pair-a", "good", 3]
    assert set(found.evidence[0]) == {*ABOUT, "pattern", "side", "text", "visible"}


# -- evidence --------------------------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Region]:
    """The regions whose evidence is gathered, in the order of the rows."""
    found: list[Region] = []
    gather = module.gather

    def spy(activity: Any, analyzed: Any, regions: Sequence[Region]) -> Any:
        found.extend(regions)
        return gather(activity, analyzed, regions)

    monkeypatch.setattr(module, "gather", spy)
    return found


def test_evidence_rows_are_the_labeled_places_and_healthy_ones(
    tmp_path: Path, seen: list[Region]
) -> None:
    label = bad(
        *((i * STEP + 500, i * STEP + 750, "host-gc-pause", "cpu") for i in range(STEPS)),
        (0, 500, "memory-dtype-churn", "gpu"),
    )
    found = tables(hand_trace(tmp_path), label, "a").evidence
    assert len(found) == len(seen)
    by_pattern: dict[object, list[tuple[float, float]]] = {}
    for row, region in zip(found, seen, strict=True):
        assert row["side"] == region.side
        at = region.start / 1_000, region.end / 1_000
        by_pattern.setdefault(row["pattern"], []).append(at)
        touching = [r for r in label.regions if r.start_us < at[1] and r.end_us > at[0]]
        if row["pattern"] == NONE:
            assert not touching
            assert at[1] - at[0] <= STEP
        else:
            assert (row["pattern"], row["side"]) in {(r.pattern, r.side) for r in touching}
    assert len(by_pattern["host-gc-pause"]) == PER_PATTERN
    assert all(b - a == 250 for a, b in by_pattern["host-gc-pause"])
    # the place itself, and the step that it fills by half
    assert sorted(by_pattern["memory-dtype-churn"]) == [(0, 500), (0, 1_000)]
    assert 0 < len(by_pattern[NONE]) <= UNSUSPICIOUS


def test_numbers_and_visible_classes_fit_the_judge(tmp_path: Path) -> None:
    label = bad((1_000, 1_250, "host-gc-pause", "cpu"))
    for row in tables(hand_trace(tmp_path), label, "a").evidence:
        assert row["pattern"] in row["visible"]  # type: ignore[operator]
        assert set(row["visible"]) <= set(CLASSES)  # type: ignore[call-overload]


# -- candidates ------------------------------------------------------------------------------------

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
LONG = 100 * STEP  # a batch takes longer than to fetch it from a worker


def waiting_trace(folder: Path, name: str = "a") -> Path:
    """Four such steps, longer; the third waits for the loader in its first half."""
    path = hand_trace(folder, name=name)
    content = json.loads(gzip.decompress(path.read_bytes()))
    work = next(e for e in content["traceEvents"] if e["ts"] == 2 * STEP and e["cat"] == "cpu_op")
    wait = {**work, "cat": "user_annotation", "name": LOADER, "dur": STEP / 2}
    work["ts"], work["dur"] = work["ts"] + STEP / 2, STEP / 2 - 1
    content["traceEvents"].append(wait)
    for event in content["traceEvents"]:
        event |= {key: event[key] * LONG / STEP for key in ("ts", "dur") if key in event}
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def test_candidates_are_rows_with_their_places_savings_and_numbers(tmp_path: Path) -> None:
    found = tables(waiting_trace(tmp_path), HEALTHY, "set/a").candidates
    (row,) = (row for row in found if row["pattern"] == "input-dataloader-sync")
    assert set(row) == {*ABOUT, "pattern", "savings_us", "starts_us", "ends_us", "numbers"}
    assert row["savings_us"] == pytest.approx(LONG / 2, rel=0.1)
    assert (row["starts_us"], row["ends_us"]) == ([2 * LONG], [2.5 * LONG])
    numbers = dict(zip(candidate.COLUMNS, row["numbers"], strict=True))  # type: ignore[arg-type]
    assert numbers["share"] == pytest.approx(row["savings_us"] / (STEPS * LONG), rel=1e-5)  # type: ignore[operator]


def test_the_label_changes_no_candidate(tmp_path: Path) -> None:
    label = replace(bad((2_000, 2_500, "input-dataloader-sync", "cpu")), workload="quagga")
    one = tables(waiting_trace(tmp_path), HEALTHY, "a").candidates
    two = tables(waiting_trace(tmp_path, "quagga"), label, "a").candidates
    learned = ("pattern", "savings_us", "starts_us", "ends_us")
    assert [[r[k] for k in learned] for r in one] == [[r[k] for k in learned] for r in two]
    np.testing.assert_array_equal([r["numbers"] for r in one], [r["numbers"] for r in two])


# -- leaks -----------------------------------------------------------------------------------------


def test_only_the_trace_decides_what_a_model_learns_from(tmp_path: Path) -> None:
    """Another file name, label, pair, workload or seed changes no feature and no text."""
    regions = (
        (1_000, 1_250, "host-gc-pause", "cpu"),
        (2_000, 2_500, "memory-dtype-churn", "gpu"),
    )
    label = bad(*regions)
    swap = {"host-gc-pause": "host-python-overhead", "memory-dtype-churn": "memory-redundant-copy"}
    other = replace(
        bad(*((a, b, swap[p], side) for a, b, p, side in regions)),
        pair="quagga",
        workload="quagga",
        seed=77_123,
        device="quagga",
        parameters={"quagga": "quagga"},
    )
    one = tables(hand_trace(tmp_path), label, "a")
    two = tables(hand_trace(tmp_path, name="quagga-77123"), other, "a")
    clean = tables(hand_trace(tmp_path), HEALTHY, "a")
    assert np.array_equal(one.matrix, two.matrix, equal_nan=True)
    assert np.array_equal(one.matrix, clean.matrix, equal_nan=True)
    assert one.matrix.shape[1] == len(COLUMNS)
    learned = ("text", "visible", "side")
    assert [[r[k] for k in learned] for r in one.evidence] == [
        [r[k] for k in learned] for r in two.evidence
    ]
    assert {r["pattern"] for r in one.evidence} != {r["pattern"] for r in two.evidence}


def _simulated(folder: Path, pattern: str | None, seed: int = 4) -> tuple[Path, Label] | None:
    workload = workloads_for(pattern)[0] if pattern else "convnet-train"
    try:
        content, label = simulate(pattern, workload, "A100", seed)
    except TooFaint:
        return None
    path = folder / "quagga-trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
    return path, label


def forbidden() -> list[str]:
    """Pattern ids however they are spelled, marks, and words of those who put faults in."""
    ids = [p.id for p in PATTERNS]
    named = [i.replace("-", c) for i in ids for c in "-_ "]
    return [*named, "@@", "inject", "fault", "simulat", "label", "quagga", "switch.py", "dataset/"]


SOME = (
    *("sync-scalar-readback", "input-dataloader-sync", "compute-unfused-elementwise"),
    *("host-gc-pause", "memory-zero-grad-fill", "comm-small-collectives", None),
)


@pytest.mark.parametrize("pattern", SOME)
def test_evidence_of_simulated_traces_never_names_the_answer(
    tmp_path: Path, pattern: str | None
) -> None:
    made = _simulated(tmp_path, pattern)
    if made is None:
        pytest.skip(f"{pattern} is too faint with this seed")
    _nothing_is_named(tables(*made, "set/quagga"))


@pytest.mark.parametrize("pattern", ["host-gc-pause", "input-dataloader-sync", "infer-autograd"])
def test_evidence_of_recorded_traces_never_names_the_answer(pattern: str) -> None:
    assert pattern in {fault.pattern for fault in RECORDED}
    found = labeled(ROOT / "dataset" / "recorded")
    trace, label = next((t, one) for t, one in found if one.patterns == (pattern,))
    made = tables(trace, label, "set/quagga")
    _nothing_is_named(made)
    stem = trace.name.split(".")[0]
    assert not any(stem in str(row["text"]) for row in made.evidence)


def _nothing_is_named(found: Tables) -> None:
    assert found.evidence
    for row in found.evidence:
        text = str(row["text"]).lower()
        assert not [word for word in forbidden() if word in text]


# -- what nobody knows -----------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["simulated", "recorded", "injected", "natural"])
@pytest.mark.parametrize("pattern", ["sync-scalar-readback", None])
def test_only_the_label_says_what_is_unknown(
    tmp_path: Path, origin: Origin, pattern: str | None
) -> None:
    """However the trace looks: in these two the host starves the device in many windows."""
    made = _simulated(tmp_path, pattern, seed=3)
    assert made is not None
    path, label = made
    found = tables(path, replace(label, origin=origin), "a")
    for side in ("cpu", "gpu"):
        assert not any(column(found, f"unknown_{side}"))


def test_a_harmless_fault_is_neither_healthy_nor_a_fault(
    tmp_path: Path, seen: list[Region]
) -> None:
    harmless = LabelRegion(1_000, 1_250, "host-gc-pause", "cpu", 0.5, "twin", True)
    label = bad((2_000, 2_125, "host-loop-indexing", "cpu"))
    found = tables(hand_trace(tmp_path), replace(label, regions=(harmless, *label.regions)), "a")
    assert [i for i, u in enumerate(column(found, "unknown_cpu")) if u] == [8, 9]
    assert [i for i, share in enumerate(column(found, "cpu")) if share] == [16]
    assert {row["pattern"] for row in found.evidence} == {"host-loop-indexing", NONE}
    assert not [r for r in seen if r.start < 1_250_000 and r.end > 1_000_000]


def test_the_analyzed_time_is_that_of_a_scan(tmp_path: Path) -> None:
    assert tables(hand_trace(tmp_path), HEALTHY, "a").analyzed_us == STEPS * STEP


def test_the_same_trace_gives_the_same_rows(tmp_path: Path) -> None:
    made = _simulated(tmp_path, "sync-scalar-readback")
    assert made is not None
    one, two = tables(*made, "a"), tables(*made, "a")
    assert one.windows == two.windows
    assert one.evidence == two.evidence
    assert np.array_equal(one.matrix, two.matrix, equal_nan=True)
