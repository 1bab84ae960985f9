"""No feature tells traces apart by who they are, and who they are says nothing about where."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataset.simulate import simulate
from detector import kineto
from detector.analysis import analyze
from detector.features import COLUMNS, FEATURES, extract, savings
from detector.lab.leak import identity, within_trace
from detector.trace import Step
from detector.window import AnalyzedTime, ByStep, by_step
from tests.analyses import analysis_of
from tests.traces import kernel, launch, op, repeat, trace_of

pd = pytest.importorskip("pandas")

SHIFT_US = 7_654_321
Document = dict[str, Any]

# -- the same program elsewhere, at another time, under other names ------------------------------


def later(document: Document) -> None:
    for event in document["traceEvents"]:
        event["ts"] = round(event["ts"] + SHIFT_US, 3)


def another_base_time(document: Document) -> None:
    document["baseTimeNanoseconds"] = 1_234_567_890_000_000_000


def another_host(document: Document) -> None:
    document["traceName"] = "/home/somebody/bad_run.pt.trace.json"
    document["trace_id"] = "0123456789ABCDEF"
    document["hostname"] = "node-17"
    for event in document["traceEvents"]:
        if event.get("name") == "process_name":
            event["args"]["name"] = "job"


def other_processes_and_threads(document: Document) -> None:
    """The device's rows keep their number: it says which device and stream."""
    for event in document["traceEvents"]:
        if isinstance(event["pid"], int) and event["pid"] > 100:
            event["pid"] += 40_000
            event["tid"] += 40_000 if isinstance(event["tid"], int) and event["tid"] else 0


def other_ids(document: Document) -> None:
    ids = ("External id", "correlation", "Ev Idx", "Record function id", "Python id")
    for event in document["traceEvents"]:
        if event.get("cat") == "ac2g":
            event["id"] += 90_000
        for key in ids:
            if key in event.get("args", {}):
                event["args"][key] += 90_000


def another_maker_s_label(document: Document) -> None:
    for device in document["deviceProperties"]:
        device["name"] = "Some Device"


CHANGES: tuple[Callable[[Document], None], ...] = (
    later,
    another_base_time,
    another_host,
    other_processes_and_threads,
    other_ids,
    another_maker_s_label,
)


@pytest.fixture(scope="module")
def document() -> Document:
    made, _ = simulate("sync-scalar-readback", "lm-train", "A100", seed=1)
    return json.loads(json.dumps(made))


def matrix_of(document: Document, file: Path) -> np.ndarray:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(document))
    analysis = analyze(kineto.read(file))
    return extract(analysis, ByStep()(analysis.analyzed))


@pytest.fixture(scope="module")
def matrix(document: Document, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    found = matrix_of(document, tmp_path_factory.mktemp("as_it_is") / "trace.json")
    defined = ~np.isnan(found)
    assert len(found) >= 16
    assert defined.any(axis=0).mean() > 0.5
    return found


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_who_and_when_a_trace_is_changes_no_feature(
    document: Document, matrix: np.ndarray, tmp_path: Path, change: Callable[[Document], None]
) -> None:
    other = copy.deepcopy(document)
    change(other)
    assert other != document
    np.testing.assert_array_equal(matrix_of(other, tmp_path / "trace.json"), matrix)


def test_the_file_s_name_and_folder_change_no_feature(
    document: Document, matrix: np.ndarray, tmp_path: Path
) -> None:
    file = tmp_path / "host-gc-pause" / "bad.json"
    np.testing.assert_array_equal(matrix_of(document, file), matrix)


# -- units and names -----------------------------------------------------------------------------

# Logarithms of magnitudes: they depend on the device's speed and the program's size.
MAGNITUDES = {"log2 us", "log2 bytes", "log2 1/ms"}


def slower(document: Document) -> None:
    """All takes twice as long."""
    first = min(event["ts"] for event in document["traceEvents"])
    for event in document["traceEvents"]:
        event["ts"] = round(first + 2 * (event["ts"] - first), 3)
        if "dur" in event:
            event["dur"] = round(2 * event["dur"], 3)


def test_on_a_slower_machine_only_what_speaks_of_microseconds_changes(
    document: Document, matrix: np.ndarray, tmp_path: Path
) -> None:
    other = copy.deepcopy(document)
    slower(other)
    found = matrix_of(other, tmp_path / "trace.json")
    same = [
        np.allclose(*pair, atol=1e-5, equal_nan=True)
        for pair in zip(found.T, matrix.T, strict=True)
    ]
    changed = {column for column, equal in zip(COLUMNS, same, strict=True) if not equal}
    by_name = {feature.name: feature for feature in FEATURES}
    in_time = {
        c
        for c in COLUMNS
        if re.search(r"_\d+us$|silent", c.split("@")[0])  # limits in us
        or by_name[c.split("@")[0]].unit in ("log2 us", "log2 1/ms")
    }
    of_core = {feature.name for feature in savings.FEATURES}  # signals have limits in us
    in_time |= {c for c in COLUMNS if c.split("@")[0] in of_core}
    assert changed <= in_time
    # the logarithm of a time is a ratio of times, once the trace's own median is taken off
    ratios = {c for c in in_time if "@" in c and by_name[c.split("@")[0]].unit == "log2 us"}
    assert not changed & {c for c in ratios if not c.endswith("@outer")}


def test_every_feature_is_a_share_a_ratio_or_the_logarithm_of_a_magnitude() -> None:
    assert {feature.unit for feature in FEATURES} <= {"share", "log2", *MAGNITUDES}
    assert sum(feature.unit in MAGNITUDES for feature in FEATURES) < len(FEATURES) / 10


def test_no_column_is_a_time_of_day_a_place_in_the_trace_a_name_or_an_id() -> None:
    telling = re.compile(
        r"(^|_)(start|end|ts|clock|date|age|position|number|total|name|file|path|hostname|pid|tid|"
        r"ids?|seed|hash|workload|origin)(_|$)"
    )
    assert [column for column in COLUMNS if telling.search(column.split("@")[0])] == []


def test_the_same_step_later_in_the_trace_looks_the_same() -> None:
    step = (
        op("aten::mm", 0, 10),
        launch(2, 3, corr=1),
        kernel("sgemm", 6, 30, corr=1),
        op("aten::add", 40, 8),
        launch(42, 3, corr=2),
        kernel("add", 46, 20, corr=2),
    )
    trace = trace_of(*repeat(step, 12, 100))
    steps = tuple(Step(str(i), i * 100_000, (i + 1) * 100_000) for i in range(12))
    analyzed = AnalyzedTime(0, 1_200_000, steps, "markers")
    rows = extract(analysis_of(trace, analyzed), by_step(analyzed, 4)).reshape(12, 4, len(COLUMNS))
    for later_step in rows[6:11]:  # a loop counts after five rounds; the last sees the end
        np.testing.assert_allclose(later_step, rows[5], atol=1e-5)


# -- what a trace's own constants can tell -------------------------------------------------------


def windows(traces: int = 6, rows: int = 20) -> Any:
    """Windows of which some are faulty; faulty traces have another level, faulty windows more."""
    random = np.random.default_rng(0)
    parts = []
    for k in range(traces):
        bad = (np.arange(rows) % 3 == 0) & (k % 2 == 0)
        values = random.normal(size=(rows, len(COLUMNS))) + (k % 2) + bad[:, None]
        parts.append(
            pd.concat(
                [
                    pd.DataFrame({"trace": f"t{k}", "cpu": bad.astype(float)}, index=range(rows)),
                    pd.DataFrame(values.astype(np.float32), columns=list(COLUMNS)),
                ],
                axis=1,
            )
        )
    return pd.concat(parts, ignore_index=True)


def test_identity_keeps_the_labels_and_nothing_that_varies_inside_a_trace() -> None:
    frame = windows()
    frame.loc[3, COLUMNS[0]] = np.nan
    frame.loc[frame["trace"] == "t1", COLUMNS[1]] = np.nan
    constant = identity(frame)
    assert constant[["trace", "cpu"]].equals(frame[["trace", "cpu"]])
    assert (constant.groupby("trace")[list(COLUMNS)].nunique() <= 1).all(axis=None)
    first = frame.loc[frame["trace"] == "t0", COLUMNS[0]]
    assert constant[COLUMNS[0]].iloc[3] == np.float32(first.median())
    assert constant.loc[frame["trace"] == "t1", COLUMNS[1]].isna().all()
    assert constant[list(COLUMNS)].dtypes.eq(np.float32).all()


def test_a_model_of_the_constants_beats_chance_in_no_trace() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame = windows()
    truth, trace = (frame["cpu"] > 0).to_numpy(), frame["trace"].to_numpy()
    found = {}
    for name, seen in (("all", frame), ("constants", identity(frame))):
        values = seen[list(COLUMNS)].to_numpy(np.float32)
        data = lightgbm.Dataset(values, truth.astype(int))
        settings = {"objective": "binary", "verbosity": -1, "num_threads": 1, "min_data": 2}
        model = lightgbm.train(settings, data, num_boost_round=5)
        found[name] = within_trace(truth, np.asarray(model.predict(values)), trace, rounds=50)
    # trained and measured on the same windows, and still
    assert (found["constants"].low, found["constants"].high) == (0.5, 0.5)
    assert found["all"].value > 0.9


def test_within_a_trace_is_the_mean_of_the_traces_that_have_both_kinds() -> None:
    trace = np.array(list("aaabbbcc"), object)
    truth = np.array([1, 0, 0, 0, 1, 1, 0, 0], bool)
    score = np.array([0.9, 0.1, 0.2, 0.8, 0.7, 0.9, 5.0, 6.0])
    assert within_trace(truth, score, trace).value == pytest.approx((1.0 + 0.5) / 2)
    # a trace's level does not matter
    lifted = score + 10 * (trace == "b")
    assert within_trace(truth, lifted, trace).value == pytest.approx(0.75)
    assert np.isnan(within_trace(np.zeros(8, bool), score, trace).value)
    one = within_trace(truth, score, trace, np.array(["base"] * 8, object), rounds=20)
    assert (one.low, one.high) == (one.value, one.value)  # traces of one base are drawn together
