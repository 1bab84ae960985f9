"""Broken and hostile files: what is intact is read exactly, and what is not is counted."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from detector.errors import TraceError
from detector.kineto import Limits, read
from detector.trace import Cat, Trace
from tests.reader_paths import PATHS, reading

CUT = "unreadable event"


@pytest.fixture(params=PATHS, autouse=True, scope="module")
def _path(request: pytest.FixtureRequest) -> Iterator[None]:
    with reading(compiled=request.param):
        yield


def event(number: int, **changes: Any) -> str:
    """A cpu_op named op<number>, from 10 x number us on, 5 us long."""
    values = {
        "ph": "X",
        "cat": "cpu_op",
        "name": f"op{number}",
        "pid": 1,
        "tid": 2,
        "ts": number * 10,
        "dur": 5,
        "args": {"External id": number},
    }
    kept = {key: value for key, value in (values | changes).items() if value is not ...}
    return json.dumps(kept)


def trace_text(*events: str) -> str:
    return '{"schemaVersion": 1, "traceEvents": [' + ", ".join(events) + '], "traceName": "x"}'


def read_text(text: str | bytes, limits: Limits | None = None) -> Trace:
    data = text.encode() if isinstance(text, str) else text
    return read(io.BytesIO(data), limits=limits or Limits())


def rows(trace: Trace) -> list[tuple[str, int, int]]:
    names = [trace.names[i] for i in trace.name.tolist()]
    times = zip(trace.start.tolist(), trace.dur.tolist(), strict=True)
    return [(name, start, dur) for name, (start, dur) in zip(names, times, strict=True)]


ONE, TWO, THREE = (f"op{i}" for i in (1, 2, 3))
INTACT = trace_text(event(1), event(2), event(3))
SWAP = event(2)

# (what, the file, the names read, what repaired names, what dropped names)
DAMAGED: list[tuple[str, str | bytes, list[str], set[str], set[str]]] = [
    ("intact", INTACT, [ONE, TWO, THREE], set(), set()),
    (
        "cut in an event",
        INTACT[:-60],
        [ONE, TWO],
        {"no closing bracket"},
        {"cut off event"},
    ),
    ("no closing bracket", INTACT[:-20], [ONE, TWO, THREE], {"no closing bracket"}, set()),
    ("ends with a comma", f"[{event(1)},", [ONE], {"no closing bracket"}, set()),
    ("list root", f"[{event(1)}, {event(2)}]", [ONE, TWO], set(), set()),
    ("list root of Chrome, never closed", f"[\n{event(1)}", [ONE], {"no closing bracket"}, set()),
    ("one comma too many", INTACT.replace("}], ", "},], "), [ONE, TWO, THREE], set(), set()),
    (
        "NaN and infinities in arguments",
        trace_text(event(1).replace('"External id": 1', '"bw": NaN, "x": -Infinity, "y": inf')),
        [ONE],
        {"NaN or infinity", "number"},
        set(),
    ),
    (
        "NaN as a time",
        trace_text(event(1), SWAP.replace("20,", "NaN,")),
        [ONE],
        {"NaN or infinity"},
        {"no time stamp"},
    ),
    (
        "unescaped quotes",
        trace_text(event(1), SWAP.replace("op2", 'a "b" c')),
        [ONE, 'a "b" c'],
        {"unescaped quote or backslash"},
        set(),
    ),
    (
        "unescaped backslashes",
        trace_text(SWAP.replace("op2", r"C:\python\x.py"), event(3)),
        [r"C:\python\x.py", THREE],
        {"unescaped quote or backslash"},
        set(),
    ),
    (
        "raw control characters",
        trace_text(event(1).replace("op1", "a\nb\x01"), event(2)),
        ["a\nb\x01", TWO],
        {"control character"},
        set(),
    ),
    (
        "Latin-1 beside UTF-8",
        trace_text(event(1), event(2))
        .replace("op2", "\u00fc")
        .encode()
        .replace(b"op1", b"caf\xe9"),
        ["caf\xe9", "\u00fc"],
        {"not UTF-8"},
        set(),
    ),
    (
        "a log line between events",
        INTACT.replace(', {"ph"', ',\nWARNING: {slow} [x]\n{"ph"', 1),
        [ONE, TWO, THREE],
        {"text between events"},
        set(),
    ),
    (
        "a log line in an event",
        trace_text(event(1).replace(', "cat"', ',\n[W1105 collection.cpp] hi\n"cat"'), event(2)),
        [ONE, TWO],
        {"log line"},
        set(),
    ),
    ("a log line before", "[W1105 a.cpp:3] hi\n" + INTACT, [ONE, TWO, THREE], set(), set()),
    ("BOM", b"\xef\xbb\xbf" + INTACT.encode(), [ONE, TWO, THREE], set(), set()),
    ("CRLF", INTACT.replace(", ", ",\r\n"), [ONE, TWO, THREE], set(), set()),
    ("a key twice", trace_text(event(1)[:-1] + ', "name": "again"}'), ["again"], set(), set()),
    ("no arguments", trace_text(event(1, args=...), event(2, args=None)), [ONE, TWO], set(), set()),
    (
        "no thread",
        trace_text(event(1, tid=...), event(2, pid=..., tid="")),
        [ONE, TWO],
        set(),
        set(),
    ),
    ("no time", trace_text(event(1, ts=...), event(2)), [TWO], set(), {"no time stamp"}),
    (
        "a century",
        trace_text(event(1, dur=3e15), event(2)),
        [TWO],
        set(),
        {"duration over 7 days"},
    ),
    (
        "not an object",
        trace_text(event(1), "17", '"x"', event(2)),
        [ONE, TWO],
        {"text between events"},
        set(),
    ),
    (
        "exponents out of range",
        trace_text(event(1).replace("10,", "1e400,"), event(2)),
        [TWO],
        set(),
        {"no time stamp"},
    ),
    (
        "an integer of 5,000 digits",
        trace_text(event(1).replace('id": 1', 'id": ' + "9" * 5000), event(2)),
        [ONE, TWO],
        {"number"},
        set(),
    ),
    (
        "arguments nested 100,000 deep",
        trace_text(event(1).replace('"External id": 1', '"a": ' + "[" * 100_000 + "]" * 100_000)),
        [ONE],
        {"arguments nested too deeply"},
        set(),
    ),
    (
        "nesting that never closes",
        trace_text(event(1).replace('"External id": 1', '"a": ' + "[" * 100_000), event(2)),
        [TWO],
        set(),
        {CUT},
    ),
    ("an empty list", trace_text(), [], set(), set()),
]


@pytest.mark.parametrize(
    ("text", "names", "repaired", "dropped"),
    [pytest.param(*row[1:], id=row[0]) for row in DAMAGED],
)
def test_the_intact_part_is_read_and_the_rest_counted(
    text: str | bytes, names: list[str], repaired: set[str], dropped: set[str]
) -> None:
    trace = read_text(text)
    numbers = {ONE: 1, TWO: 2, THREE: 3}
    assert [name for name, _, _ in rows(trace)] == names
    for name, start, dur in rows(trace):
        if name in numbers:
            assert (start, dur) == (numbers[name] * 10_000, 5_000)
    assert set(trace.coverage.repaired) == repaired
    assert set(trace.coverage.dropped) == dropped
    lost = {"cut off event", CUT} & dropped or "text between events" in repaired
    assert (trace.coverage.read_fraction < 1) == bool(lost)


def test_times_as_text_are_exact() -> None:
    trace = read_text(trace_text(event(1, ts="1712000000000000.123", dur="2.5"), event(2)))
    assert rows(trace)[-1] == (ONE, 1712000000000000123, 2500)
    assert trace.coverage.repaired == {"number as text": 2}


def test_durations_are_never_negative() -> None:
    trace = read_text(trace_text(event(1, dur=-5), event(2, dur=0), event(3, dur=...)))
    assert [dur for _, _, dur in rows(trace)] == [0, 0, 0]
    assert trace.coverage.repaired == {"negative duration": 1, "no duration": 1}


def test_a_two_second_kernel_in_a_35_ms_trace_enters_no_total() -> None:
    host = [event(i, ts=i * 1000) for i in range(35)]
    wild = event(99, cat="kernel", ts=3000, dur=2_000_000, args={"device": 0, "stream": 7})
    trace = read_text(trace_text(*host, wild))
    assert int(trace.end.max()) == 34_005_000
    assert trace.coverage.repaired == {"overlong duration": 1}


def test_a_long_kernel_that_the_host_waits_for_is_believed() -> None:
    host = [event(i, ts=i * 1000) for i in range(35)]
    wait = event(50, cat="cuda_runtime", name="cudaDeviceSynchronize", ts=35_000, dur=1_970_000)
    long = event(99, cat="kernel", ts=3000, dur=2_000_000, args={"device": 0, "stream": 7})
    trace = read_text(trace_text(*host, wait, long))
    assert int(trace.dur.max()) == 2_000_000_000
    assert trace.coverage.repaired == {}


def kernels(*times: tuple[float, float]) -> list[str]:
    args = {"device": 0, "stream": 7}
    return [
        event(i, cat="kernel", ts=ts, dur=dur, args=args | {"correlation": i + 1})
        for i, (ts, dur) in enumerate(times)
    ]


def test_overlaps_of_a_few_us_on_one_stream_stay() -> None:
    trace = read_text(trace_text(*kernels(*[(i * 10, 12) for i in range(50)])))
    assert set(trace.dur.tolist()) == {12_000}
    assert trace.coverage.repaired == {}


def test_a_kernel_cannot_run_through_all_later_ones_of_its_stream() -> None:
    times = [(i * 1000.0, 500.0) for i in range(200)]
    times[20] = (20_000.0, 90_000.0)
    trace = read_text(trace_text(*kernels(*times)))
    assert int(trace.dur.max()) == 1_000_000
    assert trace.coverage.repaired == {"overlapping duration": 1}


MANY = trace_text(*[event(i) for i in range(3000)]).encode()


def test_a_gz_cut_in_the_middle_gives_what_came_before() -> None:
    packed = gzip.compress(MANY)
    trace = read_text(packed[: len(packed) // 2])
    assert 100 < len(trace) < 3000
    assert rows(trace) == [(f"op{i}", i * 10_000, 5_000) for i in range(len(trace))]
    assert trace.coverage.read_fraction < 1
    assert trace.coverage.repaired["truncated gz"] == 1


def test_a_gz_with_a_damaged_block_gives_what_came_before() -> None:
    packed = gzip.compress(MANY[:90_000]) + gzip.compress(MANY[90_000:])
    second = packed.rindex(b"\x1f\x8b")
    broken = packed[: second + 12] + b"\xff" * 40 + packed[second + 52 :]
    trace = read_text(broken)
    assert rows(trace)[:500] == [(f"op{i}", i * 10_000, 5_000) for i in range(500)]
    assert trace.coverage.read_fraction < 1
    assert "damaged gz" in trace.coverage.repaired


def test_members_of_a_gz_follow_one_another_and_zeros_may_pad() -> None:
    packed = gzip.compress(MANY[:70_000]) + gzip.compress(MANY[70_000:]) + b"\0" * 512
    assert len(read_text(packed)) == 3000


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "the file is empty"),
        (b"   \n\t ", "nothing but white space"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 64, "not JSON"),
        (b"\n<!DOCTYPE html><html><body>404</body></html>", "an HTML page, not a trace"),
        (b'{"a": 1}', "JSON without traceEvents"),
        (b'{"traceEvents": null}', "JSON without traceEvents"),
        (b"[1, 2, 3]", "no event in it can be read"),
        (b"\x1f\x8bxxxxxxxxxx", "damaged gz, nothing readable"),
    ],
)
def test_what_is_no_trace_is_one_clear_line(tmp_path: Path, data: bytes, cause: str) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(data)
    with pytest.raises(TraceError) as error:
        read(path)
    assert str(error.value) == f"{path}: {cause}"


def test_a_missing_file_and_a_folder_are_one_line_each(tmp_path: Path) -> None:
    for path, cause in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(TraceError, match=cause) as error:
            read(path)
        assert str(error.value).startswith(str(path))
        assert "\n" not in str(error.value)


SPACES = b" " * 30_000_000


@pytest.mark.parametrize(
    ("data", "limits", "key"),
    [
        (gzip.compress(SPACES, 1), Limits(max_bytes=10_000_000), "max_bytes"),
        (
            gzip.compress(b'{"traceEvents": [' + SPACES, 1),
            Limits(max_event_bytes=5_000_000),
            "max_event_bytes",
        ),
        (
            gzip.compress(b'{"a": "' + SPACES, 1),
            Limits(max_event_bytes=5_000_000),
            "max_event_bytes",
        ),
        (gzip.compress(b"[]" + SPACES, 1), Limits(max_event_bytes=5_000_000), "max_event_bytes"),
        (MANY, Limits(max_events=1000), "max_events"),
    ],
)
def test_a_bomb_meets_a_limit_that_the_error_names(data: bytes, limits: Limits, key: str) -> None:
    with pytest.raises(TraceError, match=rf"\({key}\)$"):
        read_text(data, limits)


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    for limits in (Limits(max_events=10), Limits(max_bytes=1000), Limits()):
        for data in (MANY * 40, gzip.compress(MANY * 40), MANY[:-40]):
            with suppress(TraceError):
                read_text(data, limits)
    assert threading.active_count() == before


def test_a_name_of_ten_megabytes() -> None:
    trace = read_text(trace_text(event(1, name="x" * 10_000_000), event(2)))
    assert [len(name) for name, _, _ in rows(trace)] == [10_000_000, 3]


@pytest.mark.parametrize("name", ["trace", "trace.json.gz", "trace.json.tmp", "trace.txt"])
def test_content_tells_the_format_not_the_suffix(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(INTACT)
    assert len(read(path)) == 3
    path.write_bytes(gzip.compress(INTACT.encode()))
    assert len(read(path)) == 3


def test_a_file_that_vanishes_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(MANY)
    trace = read(path, progress=lambda _: path.unlink(missing_ok=True))
    assert len(trace) == 3000
    assert not path.exists()


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(MANY[:-40])

    def grow(_: float) -> None:
        if path.stat().st_size < len(MANY):
            with path.open("ab") as file:
                file.write(MANY[-40:])

    assert len(read(path, progress=grow)) >= 2999


def test_a_pipe_gives_little_at_a_time() -> None:
    reading, writing = os.pipe()
    os.write(writing, INTACT[:50].encode())
    os.write(writing, INTACT[50:].encode())
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        assert len(read(pipe)) == 3


def test_damage_of_one_event_costs_no_other_of_a_large_file() -> None:
    events = [event(i) for i in range(20_000)]
    events[7_000] = '{"ph": "X", "name": "lost'
    events[13_000] = events[13_000].replace("op13000", 'quo"ted')
    trace = read_text(trace_text(*events))
    assert len(trace) == 19_999
    assert trace.coverage.dropped == {CUT: 1}
    assert trace.coverage.repaired == {"unescaped quote or backslash": 1}
    assert 0.9999 < trace.coverage.read_fraction < 1


def test_a_hundred_thousand_calls_and_kernels_of_one_correlation() -> None:
    count, args = 50_000, {"correlation": 7, "stream": 3}
    calls = [event(i, cat="cuda_runtime", ts=10 * i, dur=2, args=args) for i in range(count)]
    kernels = [event(i, cat="kernel", ts=10 * i + 5, dur=4, args=args) for i in range(count)]
    trace = read_text(trace_text(*calls, *kernels))
    launched = trace.rows(Cat.KERNEL)
    assert len(launched) == count
    assert trace.start[trace.launch[launched]].tolist() == list(range(0, count * 10_000, 10_000))
    assert trace.coverage.kernels_with_launch == 1.0


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("size", [1_500_000, 4_000_000])
def test_what_an_event_holds_is_no_event_however_long(indent: int | None, size: int) -> None:
    inner = json.loads(event(7, ts=7, name="inside"))
    long = event(2, args={"list": [inner] * (size // len(str(inner)))})
    text = trace_text(*[event(1)] * 9000, long, *[event(3)] * 9000)
    trace = read_text(json.dumps(json.loads(text), indent=indent))
    assert [name for name, _, _ in rows(trace)] == [ONE] * 9000 + [TWO] + [THREE] * 9000
    assert trace.coverage.repaired == trace.coverage.dropped == {}
