"""Every shared trace reads to the columns that the plain, slow reader gives."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detector.kineto import read, scanner
from detector.kineto.intake import Intake
from detector.trace import Cat, Trace
from tests.reader_paths import assert_same, reading
from tests.reference_reader import read_rows

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
CATALOG = TRACES / "CATALOG.csv"
NUMBERS = (
    "start dur cat correlation external_id device stream bytes blocks threads msg_elems sequence "
    "group_size comm_sequence "
    "launch parent op"
).split()
WORDS = ("name", "collective", "group", "group_ranks", "element_type", "dims", "types")


def catalog() -> list[Any]:
    if not CATALOG.is_file():
        reason = "the shared traces (../shared/traces beside the checkout) are not here"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason))]
    with CATALOG.open(newline="") as lines:
        return [pytest.param(row, id=row["file"]) for row in csv.DictReader(lines)]


# The largest, half of the slow reader's time: smaller traces of the same writers are read below.
REPEATED = {
    "hta_diff_control.json.gz",
    "hta_diff_test.json.gz",
    "mi300_flux_diffusion_infer.json.gz",
    "v100_ddp_compile_train.json.gz",
    "v100_resnet50_train_workers4.json.gz",
    "vllm_graph_capture.json.gz",
}


def texts(trace: Trace, key: str) -> list[str | None]:
    table = [*trace.names, None]
    return [table[i] for i in getattr(trace, key).tolist()]


@pytest.mark.parametrize("entry", [row for row in catalog() if row.id not in REPEATED])
def test_same_columns_as_the_slow_reader(entry: dict[str, str]) -> None:
    path = TRACES / entry["file"]
    trace, rows = read(path), read_rows(path)
    if scanner.COMPILED:
        with reading(compiled=False):
            assert_same(trace, read(path))
    assert len(trace) == len(rows)
    for key in NUMBERS:
        expected = np.array([row[key] for row in rows], np.int64)
        np.testing.assert_array_equal(getattr(trace, key), expected, err_msg=key)
    for key in WORDS:
        assert texts(trace, key) == [row[key] for row in rows], key
    tracks = [(t.pid, t.tid, t.is_device) for t in trace.tracks]
    assert [tracks[i] for i in trace.track.tolist()] == [row["track"] for row in rows]


@pytest.mark.parametrize("entry", catalog())
def test_the_scanner_takes_every_block_and_counts_as_the_catalog(
    entry: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if scanner.COMPILED:
        for slow in ("_decode", "_salvage"):
            monkeypatch.setattr(Intake, slow, lambda *_: pytest.fail("a block was given up"))
    trace = read(TRACES / entry["file"])
    assert trace.source.events == int(entry["events"])
    assert (trace.cat == Cat.KERNEL).sum() == int(entry["kernels"])
    assert (trace.cat == Cat.PYTHON_FUNCTION).sum() == int(entry["python_functions"])
    assert trace.coverage.read_fraction == 1.0
    assert trace.coverage.repaired == trace.coverage.dropped == {}
    named = [step for step in trace.steps if step.name.startswith("ProfilerStep#")]
    assert len(named) == int(entry["profiler_steps"])


@pytest.mark.parametrize(
    ("name", "linked", "count"),
    [
        ("a100_ddp_conv_nccl_train", 3774, 3774),
        ("a100_alexnet", 98, 98),
        ("h100_qwen_infer", 1465 - 436 + 241 + 1, 1465 + 241 + 1),
    ],
)
def test_launches_of_device_work(name: str, linked: int, count: int) -> None:
    path = TRACES / f"{name}.json.gz"
    if not path.is_file():
        pytest.skip("the shared traces (../shared/traces beside the checkout) are not here")
    trace = read(path)
    work = trace.is_device_work
    assert work.sum() == count
    kernels = trace.rows(Cat.KERNEL)
    if name == "h100_qwen_infer":
        assert (trace.launch[kernels] < 0).sum() == 436
    else:
        assert (trace.launch[work] >= 0).sum() == linked
        assert trace.coverage.kernels_with_launch == 1.0
