"""The compiled scanner and the pure path read any file to the same trace, or the same error."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import TraceError
from detector.kineto import Limits, read
from detector.trace import Trace
from tests.property.test_kineto import events, layouts, text_of
from tests.reader_paths import assert_same, needs_scanner, reading

pytestmark = needs_scanner
LIMITS = Limits(max_event_bytes=1 << 20)

# What stands in a file where other writers would put something else, or nothing.
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=4),
    st.lists(st.integers(-3, 9) | st.text(max_size=2), max_size=3),
    st.sampled_from(["7", "-1", "stream 7", "X", "B", "s", "cpu_op", "Trace", "ac2g", "new"]),
    st.sampled_from([1e-7, 0.0005, 12.0015, 1712000000000000.25, 4294967295, 2**63, -0.0, 1e15]),
    st.dictionaries(st.sampled_from(["device", "grid", "x"]), st.integers(), max_size=2),
)


@st.composite
def odd_events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events some of whose values are anything, or missing."""
    made = draw(events())
    for event in made:
        for target in (event, event.get("args", {})):
            for key in draw(st.lists(st.sampled_from([*target, "External id"]), max_size=2)):
                if draw(st.booleans()):
                    target[key] = draw(odd)
                else:
                    target.pop(key, None)
    return made


def outcome(data: bytes, compiled: bool) -> Trace | str:
    with reading(compiled):
        try:
            return read(io.BytesIO(data), limits=LIMITS)
        except TraceError as error:
            return str(error)


def compare(data: bytes) -> None:
    one, two = outcome(data, True), outcome(data, False)
    if isinstance(one, Trace) and isinstance(two, Trace):
        assert_same(one, two)
    else:
        assert one == two


@given(events(), layouts)
def test_intact_files(made: list[dict[str, Any]], layout: tuple[int | None, str]) -> None:
    data = text_of(made, layout)
    compare(data)
    compare(gzip.compress(data, mtime=0))


@given(odd_events(), layouts)
def test_odd_values(made: list[dict[str, Any]], layout: tuple[int | None, str]) -> None:
    compare(text_of(made, layout))


@given(events(), layouts, st.data())
def test_damaged_bytes(
    made: list[dict[str, Any]], layout: tuple[int | None, str], data: st.DataObject
) -> None:
    text = bytearray(text_of(made, layout))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        junk = data.draw(
            st.binary(max_size=4)
            | st.sampled_from(
                [b'"', b"{", b"}", b"]", b",", b"\\", b"\\u00fc", b"\xc3\xbc", b"-", b"0", b"1e5"]
            )
        )
        text[at : at + data.draw(st.integers(0, 3))] = junk
    compare(bytes(text))


@pytest.mark.parametrize(
    "event",
    [
        '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":-0,"ts":1,"dur":1}',
        '{"ph":"X","cat":"cpu_op","name":"\\ud800","pid":1,"tid":"\\u0041","ts":1,"dur":1}',
        '{"ph":"X","name":"no category","pid":1,"tid":1,"ts":-1.0005,"dur":1e-3}',
        '{"args":{"stream":4294967295,"grid":[]},"ph":"X","cat":"kernel","name":"k","pid":0,'
        '"tid":7,"ts":5.1234999999,"dur":0.0999}',
        '{"ph":"i","cat":"cpu_op","name":"both","pid":1,"tid":1,"ts":1,"dur":1}',
        '{"ph":"B","cat":"ac2g","name":"both","pid":1,"tid":1,"ts":1}',
        '{"ph":"M","cat":"Trace","name":"both","pid":1,"tid":1,"ts":1}',
        '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":01,"dur":1}',
        '{"ph":"X","cat":"2027","name":"a","pid":9223372036854775808,"tid":1,"ts":1,"dur":1}',
        '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":9e15,"x":1e400}',
        '{"ph":"X","cat":"kernel","name":"a","pid":1,"tid":1,"ts":1,"dur":9223372036854775807,'
        '"args":{"device":99999999999,"correlation":"0007","bytes":1.5,"block":[2147483648,4,9]}}',
    ],
)
def test_corners(event: str) -> None:
    whole = '{"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":2,"dur":1}'
    compare(f"[{event}, {whole}, {whole}]".encode())
