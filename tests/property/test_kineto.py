"""What holds of every file: the slow reader agrees, order is no matter, damage never crashes."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import TraceError
from detector.kineto import Limits, blocks, read, stream
from detector.trace import HOST_CATS, Trace
from tests.reader_paths import PATHS, reading
from tests.reference_reader import CATS, rows_of


@pytest.fixture(params=PATHS, autouse=True, scope="module")
def _path(request: pytest.FixtureRequest) -> Iterator[None]:
    with reading(compiled=request.param):
        yield


NUMBERS = (
    "start dur cat correlation external_id device stream bytes blocks threads msg_elems sequence "
    "group_size comm_sequence "
    "launch parent op"
).split()
LIMITS = Limits(max_event_bytes=1 << 20)

# A file spells each category in one way.
OLD = ("Operator", "Runtime", "Kernel", "Memcpy", "Memset")
NEW = tuple(sorted(set(CATS) - set(OLD) - {"mtia_runtime"}))
small = st.integers(0, 6)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "External id": small,
        "external id": small,
        "correlation": small,
        "device": st.integers(0, 2),
        "stream": st.sampled_from([0, 7, 4294967295]),
        "bytes": st.integers(0, 2**40) | st.just("12"),
        "grid": st.just([2, 3, 4]),
        "block": st.just([32, 1, 1]),
        "Collective name": st.just("allreduce"),
        "In msg nelems": small,
        "Input Dims": st.just([[8, 3], []]),
        "Input type": st.just(["float", ""]),
        "Sequence number": small,
        "other": st.recursive(small | st.text(max_size=3), lambda x: st.lists(x, max_size=2)),
    },
)


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Duration events in thousandths of a us, among flows and metadata."""
    rows = draw(st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 30_000)), max_size=25))
    made: list[dict[str, Any]] = []
    categories = draw(st.sampled_from([OLD, NEW]))
    for start, dur in rows:
        made.append(
            {
                "ph": "X",
                "cat": draw(st.sampled_from(categories)),
                "name": draw(st.sampled_from(["a", "b", "ProfilerStep#1", "\u00fc \"'\\ {"])),
                "pid": draw(st.sampled_from([0, 1, "word"])),
                "tid": draw(st.sampled_from([1, "stream 7"])),
                "ts": start / 1000 if start % 1000 else start // 1000,
                "dur": dur / 1000 if dur % 1000 else dur // 1000,
                "args": draw(arguments),
            }
        )
        if draw(st.booleans()):
            made.append({"ph": "s", "cat": "ac2g", "id": 1, "pid": 0, "tid": 1, "ts": 3})
    return made


layouts = st.sampled_from([(None, "head"), (None, "list"), (2, "head"), (1, "tail"), (4, "list")])


def text_of(made: list[dict[str, Any]], layout: tuple[int | None, str]) -> bytes:
    indent, root = layout
    whole: Any = {"schemaVersion": 1, "traceEvents": made, "traceName": "x"}
    if root == "tail":
        whole = {"traceEvents": made, "list": [{"ph": "X"}, {"a": [{"b": {}}]}]}
    return json.dumps(made if root == "list" else whole, indent=indent).encode()


def content(trace: Trace) -> list[tuple[Any, ...]]:
    """Rows without the numbers that depend on the order of first sight."""
    table = [*trace.names, None]
    words = [[table[i] for i in getattr(trace, key).tolist()] for key in ("name", "dims", "types")]
    tracks = [trace.tracks[i] for i in trace.track.tolist()]
    numbers = [getattr(trace, key).tolist() for key in NUMBERS]
    return list(zip(tracks, *words, *numbers, strict=True))


@given(events(), layouts)
def test_the_slow_reader_agrees(made: list[dict[str, Any]], layout: tuple[int | None, str]) -> None:
    data = text_of(made, layout)
    trace, expected = read(io.BytesIO(data)), rows_of(data)
    for key in NUMBERS:
        values = [int(row[key]) for row in expected]
        assert getattr(trace, key).tolist() == values, key
    assert [trace.names[i] for i in trace.name.tolist()] == [row["name"] for row in expected]
    assert trace.source.events == len(made)


@given(events(), st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(made: list[dict[str, Any]], random: Any) -> None:
    rows = {e["ts"]: e for e in made if e["ph"] == "X"}
    # Of two at one time, two of one id, or two devices on one track the file's order decides.
    own = {"device": 0, "stream": 7}
    made = [
        event | {"args": event["args"] | own | {"External id": i + 1}}
        for i, event in enumerate(rows.values())
    ]
    there = read(io.BytesIO(json.dumps(made).encode()))
    random.shuffle(made)
    again = read(io.BytesIO(json.dumps(made).encode()))
    assert content(there) == content(again)


@given(events(), layouts, st.integers(20, 300))
def test_where_pieces_end_does_not_matter(
    made: list[dict[str, Any]], layout: tuple[int | None, str], size: int
) -> None:
    data = text_of(made, layout)
    whole = read(io.BytesIO(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "PIECE", size)
        patch.setattr(blocks, "PIECE", size)
        pieces = read(io.BytesIO(data))
        packed = read(io.BytesIO(gzip.compress(data)))
    # Names are numbered block by block: compare what they say, not their numbers.
    assert content(pieces) == content(whole) == content(packed)
    assert pieces.coverage == whole.coverage == packed.coverage
    assert pieces.metadata == whole.metadata


def sound(data: bytes) -> None:
    """Reading gives a Trace that later stages can rely on, or one clear line."""
    try:
        trace = read(io.BytesIO(data), limits=LIMITS)
    except TraceError:
        return
    n = len(trace)
    assert (np.diff(trace.start) >= 0).all()
    assert (trace.dur >= 0).all()
    assert 0.0 <= trace.coverage.read_fraction <= 1.0
    for link in (trace.launch, trace.parent, trace.op):
        assert len(link) == n
        assert ((link >= -1) & (link < n)).all()
    child = np.flatnonzero(trace.parent >= 0)
    assert (trace.parent[child] < child).all()
    assert np.isin(trace.cat[trace.parent[child]], HOST_CATS).all()
    assert all(0 <= i < len(trace.names) for i in trace.name.tolist())


@given(events(), layouts, st.data())
def test_damage_never_crashes(
    made: list[dict[str, Any]], layout: tuple[int | None, str], data: st.DataObject
) -> None:
    text = bytearray(text_of(made, layout))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        junk = data.draw(
            st.binary(max_size=6)
            | st.sampled_from(
                [b'"', b"{", b"}]", b"\\", b"[" * 2000, b"NaN", b"\n[W] x\n", b"1e999"]
            )
        )
        text[at : at + data.draw(st.integers(0, 12))] = junk
    sound(bytes(text[: data.draw(st.integers(0, len(text)) | st.just(len(text)))]))


@given(events(), st.data())
def test_damage_of_a_gz_never_crashes(made: list[dict[str, Any]], data: st.DataObject) -> None:
    packed = bytearray(gzip.compress(text_of(made, (2, "head")), mtime=0))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(0, 255))
    sound(bytes(packed[: data.draw(st.integers(1, len(packed)) | st.just(len(packed)))]))


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    sound(data)
    sound(b'{"traceEvents": [' + data)


@given(events(), layouts, st.integers(0, 3000))
def test_events_before_a_cut_are_exact(
    made: list[dict[str, Any]], layout: tuple[int | None, str], at: int
) -> None:
    data = text_of(made, layout)
    if layout[1] == "tail" or at >= len(data):
        return
    whole = sorted((r["start"], r["dur"], r["name"]) for r in rows_of(data))
    try:
        cut = read(io.BytesIO(data[:at]))
    except TraceError:
        return
    names = [cut.names[i] for i in cut.name.tolist()]
    for row in zip(cut.start.tolist(), cut.dur.tolist(), names, strict=True):
        assert row in whole
