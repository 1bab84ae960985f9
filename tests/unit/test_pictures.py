"""Timeline strips: what lies in which lane, what a pixel shows, where the labels go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from dataset.labels import UNKNOWN, LabelRegion
from dataset.lanes import Lane, Layer, lanes, short
from dataset.pictures import COLORS, UNKNOWN_COLOR, draw, pattern_colors, picture, strip
from detector.activity import Activity
from detector.trace import Trace
from tests.traces import (
    annotation,
    call,
    kernel,
    launch,
    memcpy,
    memset,
    op,
    python,
    sync,
    trace_of,
)

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def step() -> Trace:
    """A step of 100 µs: loader, copy, forward, a wait, backward on its own thread, a collective."""
    return trace_of(
        annotation("ProfilerStep#0", 0, 100),
        annotation(LOADER, 1, 19),
        annotation("Optimizer.step#SGD.step", 90, 5),
        op("aten::to", 20, 10),
        op("aten::copy_", 21, 8),
        call("cudaMemcpyAsync", 22, 2, corr=1),
        sync(25, 3),
        op("aten::mm", 40, 10),
        launch(42, 4, corr=2),
        call("cudaMalloc", 47, 2),
        op("MmBackward0", 60, 20, thread=2),
        launch(62, 4, corr=3, thread=2),
        memcpy("Memcpy HtoD (Pageable -> Device)", 24, 3, 4096, corr=1),
        kernel("sgemm", 48, 20, corr=2),
        memset(70, 1),
        kernel("ncclDevKernel_AllReduce", 66, 20, corr=3, stream=20),
        steps=[(0, 100)],
    )


def content(found: list[Lane]) -> dict[str, list[str]]:
    """The kinds of events in each lane that has any."""
    return {lane.title: [layer.kind for layer in lane.layers] for lane in found if lane.layers}


def strip_of(
    trace: Trace, *regions: LabelRegion, span: tuple[float, float] | None = None
) -> Figure:
    figure = Figure()
    strip(figure.add_axes((0.1, 0.1, 0.8, 0.8)), Activity(trace), regions, span)
    return figure


def rows_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_yticklabels()]


def test_every_kind_of_event_has_its_lane() -> None:
    assert content(lanes(Activity(step()), 0, 100_000)) == {
        "loader wait": ["loader"],
        "annotations": ["annotation"],
        "main: ops": ["op"],
        "main: inner ops": ["inner op"],
        "main: runtime": ["launch", "copy call", "alloc", "sync"],
        "thread 2: ops": ["op"],
        "thread 2: runtime": ["launch"],
        "stream 7": ["compute", "memset", "copy"],
        "stream 20": ["collective"],
    }


def test_a_part_of_the_trace_shows_only_what_lies_in_it() -> None:
    found = lanes(Activity(step()), 62_500, 87_000)
    assert content(found) == {
        "thread 2: ops": ["op"],
        "thread 2: runtime": ["launch"],
        "stream 7": ["compute", "memset"],
        "stream 20": ["collective"],
    }


def test_frames_that_wrap_most_of_the_span_are_left_out() -> None:
    trace = trace_of(
        python("main.py(1): main", 0, 100),
        python("main.py(9): train", 1, 98),
        python("model.py(5): encode", 2, 30),
        python("model.py(7): decode", 40, 30),
        python("layer.py(2): forward", 41, 10),
    )
    drawn = [lane for lane in lanes(Activity(trace), 0, 100_000) if lane.layers]
    assert [[word.text for word in lane.words] for lane in drawn] == [
        ["encode", "decode"],
        ["forward"],
    ]


def test_long_events_carry_their_names_and_short_ones_do_not() -> None:
    trace = trace_of(op("aten::addmm", 0, 50), op("aten::relu", 60, 1), op("aten::mm", 70, 30))
    words = next(lane.words for lane in lanes(Activity(trace), 0, 100_000) if lane.layers)
    assert [(word.start, word.end, word.text) for word in words] == [
        (0, 50_000, "addmm"),
        (70_000, 100_000, "mm"),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("aten::addmm", "addmm"),
        ("autograd::engine::evaluate_function: MmBackward0", "MmBackward0"),
        (LOADER, "SingleProcessDataLoaderIter.__next__"),
        ("torch/nn/modules/module.py(1740): _call_impl", "_call_impl"),
        ("void at::native::elementwise_kernel<4, at::Add>(int, float)", "elementwise_kernel"),
        ("<built-in method copy_>", "<built-in method copy_>"),
        ("## forward ##", "## forward ##"),
    ],
)
def test_names_are_cut_to_what_is_worth_reading(name: str, text: str) -> None:
    assert short(name) == text


def pixels(kind: str, *spans: tuple[int, int], columns: int = 10) -> np.ndarray:
    """One row of pixels over 1,000 ns."""
    start, end = (np.array(ends, np.int64) for ends in zip(*spans, strict=True))
    lane = Lane("", False, (Layer(kind, start, end),))
    return picture(lane, 0, 1_000, columns)[0]


def rgb(color: str) -> list[float]:
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def test_a_column_is_as_dark_as_it_is_covered() -> None:
    row = pixels("compute", (0, 100), (150, 200))
    background = row[5]
    assert row[0].tolist() == pytest.approx(rgb(COLORS["compute"][0]))
    assert row[1].tolist() == pytest.approx((np.array(rgb(COLORS["compute"][1])) + background) / 2)
    assert np.ptp(row[2:]) == 0  # nothing happens there


def test_an_event_far_below_a_pixel_stays_visible_and_a_wait_is_loud() -> None:
    blank = pixels("op", (900, 901))[0]
    assert np.abs(pixels("op", (450, 451))[4] - blank).max() > 0.15
    assert np.abs(pixels("sync", (450, 451))[4] - np.array(rgb(COLORS["sync"][0]))).max() < 0.2
    assert np.abs(pixels("op", (450, 450))[4] - blank).max() > 0.15  # no length at all


def test_neighbors_differ_in_shade_and_thousands_of_them_blend() -> None:
    few = pixels("op", (0, 100), (100, 200))
    assert not np.allclose(few[0], few[1])
    many = pixels("op", *((i, i + 1) for i in range(1_000)))
    assert np.allclose(many, many[0], atol=0.02)


def test_a_label_has_a_row_of_its_own_above_the_lanes_and_unknown_comes_last() -> None:
    regions = (
        LabelRegion(0, 20, UNKNOWN, "cpu"),
        LabelRegion(20, 30, "sync-explicit", "cpu"),
        LabelRegion(66, 86, "comm-exposed", "gpu"),
        LabelRegion(40, 50, "sync-explicit", "cpu"),
    )
    rows = rows_of(strip_of(step(), *regions))
    assert rows[:4] == ["sync-explicit", "comm-exposed", UNKNOWN, "loader wait"]


def test_labels_outside_the_span_are_not_named() -> None:
    region = LabelRegion(66, 86, "comm-exposed", "gpu")
    assert "comm-exposed" not in rows_of(strip_of(step(), region, span=(0, 60)))
    assert "comm-exposed" in rows_of(strip_of(step(), region, span=(0, 70)))


def test_a_region_tints_the_lanes_of_its_side() -> None:
    def tinted(side: str) -> tuple[float, float]:
        region = LabelRegion(0, 50, "sync-explicit", side)  # type: ignore[arg-type]
        axes = strip_of(step(), region).axes[0]
        heights = axes.collections[-1].get_paths()[0].vertices[:, 1]
        return float(heights.min()), float(heights.max())

    host, device = tinted("cpu"), tinted("gpu")
    assert host[0] < host[1] == device[0] < device[1]


def test_patterns_have_colors_of_their_own_and_unknown_is_gray() -> None:
    colors = pattern_colors(
        LabelRegion(0, 1, pattern, "cpu") for pattern in ("a", UNKNOWN, "b", "a")
    )
    assert colors[UNKNOWN] == UNKNOWN_COLOR
    assert len({colors["a"], colors["b"], UNKNOWN_COLOR}) == 3


def test_a_strip_is_a_picture_of_1600_by_500(tmp_path: Path) -> None:
    region = LabelRegion(66, 86, "comm-exposed", "gpu")
    out = draw(step(), [region], out=tmp_path / "new" / "strip.png", title="one step")
    header = out.read_bytes()[:24]
    assert header[1:4] == b"PNG"
    assert [int.from_bytes(header[i : i + 4], "big") for i in (16, 20)] == [1600, 500]


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (draw(step(), (), out=tmp_path / name) for name in ("a.png", "b.png"))
    assert first.read_bytes() == second.read_bytes()


def test_a_run_on_the_cpu_has_no_stream() -> None:
    trace = trace_of(op("aten::mm", 0, 10), op("aten::relu", 20, 10))
    assert rows_of(strip_of(trace)) == ["main: ops"]


@pytest.mark.parametrize("span", [(5.0, 5.0), (9.0, 3.0)])
def test_an_empty_span_is_an_error(span: tuple[float, float], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"hand\.json: nothing to draw"):
        draw(step(), (), span, tmp_path / "strip.png")
    with pytest.raises(ValueError, match="empty trace"):
        draw(trace_of(), (), None, tmp_path / "strip.png")
