"""The annotated trace is a file of the Trace Event Format; its own slices nest on their tracks."""

from __future__ import annotations

import gzip
import io
import json
from collections import defaultdict
from pathlib import Path

import pytest

from detector.api import scan_trace
from detector.render import overlay
from tests.trace_event_format import complaints

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_image_classifier.json.gz"


@pytest.fixture(scope="module")
def annotated():
    report = scan_trace(EXAMPLE, judge="none")
    out = io.BytesIO()
    with EXAMPLE.open("rb") as source:
        overlay.annotate(report, source, out)
    return json.loads(gzip.decompress(out.getvalue()))


def test_the_annotated_trace_passes_the_checker(annotated):
    assert list(complaints(annotated)) == []


def test_the_slices_that_were_added_nest(annotated):
    own = [e for e in annotated["traceEvents"] if e.get("pid") == overlay.PID and e["ph"] == "X"]
    tracks = defaultdict(list)
    for event in own:
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert own
    for spans in tracks.values():
        open_: list[float] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ and open_[-1] <= start:
                open_.pop()
            assert not open_ or end <= open_[-1] + 1e-3
            open_.append(end)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"ph": "X", "name": "a", "ts": 0, "pid": 1, "tid": 1}, "X with dur None"),
        ({"ph": "X", "name": "a", "ts": 0, "dur": -1, "pid": 1, "tid": 1}, "a negative duration"),
        ({"ph": "X", "name": 1, "ts": 0, "dur": 1, "pid": 1, "tid": 1}, "X with name 1"),
        ({"ph": "i", "name": "a", "ts": 0}, "no pid or tid"),
        ({"ph": "M", "name": "process_name", "args": {}}, "metadata without a value"),
        ({"ph": "?"}, "unknown phase '?'"),
        (7, "no object"),
    ],
)
def test_the_checker_sees_what_is_wrong(event, said):
    assert list(complaints({"traceEvents": [event]})) == [f"event 0: {said}"]
