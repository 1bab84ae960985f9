"""What each output says, and where."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.errors import TraceError
from detector.render import html_page, markdown, overlay, sarif, terminal, wording
from detector.report import Finding, NotChecked, Report, SourceLine, StepInfo, WindowScore
from detector.taxonomy import PATTERNS
from tests.sample_reports import CLEAN, CPU_ONLY, TYPICAL, ZERO

# --- wording -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0 µs"), (0.25, "0.25 µs"), (12.34, "12.3 µs"), (1500, "1.50 ms"), (88_000, "88.0 ms"),
     (412_999, "413 ms"), (1_234_567, "1.23 s"), (-1500, "-1.50 ms"), (4.2e9, "4,200 s")],
)  # fmt: skip
def test_times_read_as_a_person_says_them(us, text):
    assert wording.duration(us) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (48, "48 B"), (5_412_331, "5.41 MB"), (3.2e12, "3.20 TB")]
)
def test_sizes_read_as_a_person_says_them(count, text):
    assert wording.size(count) == text


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [("share", 0.5, "50.0 %"), ("us", 1500.0, "1.50 ms"), ("MB", 3.0, "3.00 MB"),
     ("count", 12.0, "12"), ("GB/s", 9.86, "9.86 GB/s"), ("wait_us", 10, "10.0 µs"),
     ("count", float("nan"), "unknown"), ("", None, "None"),
     ("elements", 4096.0, "4,096 elements")],
)  # fmt: skip
def test_evidence_is_shown_in_its_unit(unit, value, text):
    assert wording.quantity(unit, value) == text


@given(st.text(max_size=400), st.integers(2, 300))
def test_a_cleaned_text_is_one_bounded_printable_line(text, limit):
    out = wording.clean(text, limit)
    assert out.isprintable() or set(out) - {" "} == set()
    assert len(out) <= 6 * limit
    assert "\n" not in out


def test_evidence_begins_with_what_differs_most_and_leaves_out_the_occurrences():
    evidence = {
        "same": {"value": 0.5, "unit": "share", "rest": 0.5},
        "unlike": {"value": 0.9, "unit": "share", "rest": 0.1},
        "occurrences": [{"start_us": 0, "end_us": 1}],
        "drivers": ["x"],
    }
    finding = replace(TYPICAL.findings[0], evidence=evidence)
    rows = wording.evidence(finding, everything=True)
    assert [row.label for row in rows] == ["unlike", "same"]
    assert [row.label for row in wording.evidence(finding)] == ["unlike"]
    named = replace(finding, explanation="same 50 %")
    assert [row.label for row in wording.evidence(named)] == ["same", "unlike"]
    assert rows[0] == wording.Row("unlike", "90.0 %", "elsewhere 10.0 %")


def test_what_the_flagger_went_by_is_told_as_text():
    told = ["the device idles", "a <b>name</b>\x1b[31m"]
    finding = replace(TYPICAL.findings[0], evidence={"drivers": told})
    report = replace(TYPICAL, findings=(finding,))
    page, text = html_page.render(report), markdown.render(report)
    for shown in (page, text):
        assert "looked at" in shown
        assert "the device idles; a" in shown
        assert "<b>name" not in shown
        assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("indices", "text"),
    [((), ""), ((1,), "ProfilerStep#3"), ((0, 1, 2), "ProfilerStep#2–4"),
     ((0, 3), "2 of 4 steps, ProfilerStep#2 first"), ((99,), "")],
)  # fmt: skip
def test_steps_are_named(indices, text):
    assert wording.steps(TYPICAL, indices) == text


def test_a_measure_is_called_by_its_label():
    value = {"value": 0.5, "unit": "share", "rest": 0.1}
    evidence = {"busy": value, "mine": {**value, "label": "my own"}, "other_one": value}
    rows = wording.evidence(replace(TYPICAL.findings[0], evidence=evidence))
    assert [row.label for row in rows] == ["device busy", "my own", "other one"]


def test_steps_whose_names_hold_no_number_are_named_by_both_ends():
    steps = (StepInfo("warm", 0.0, 1.0), StepInfo("hot", 1.0, 2.0))
    report = replace(TYPICAL, source=replace(TYPICAL.source, steps=steps))
    assert wording.steps(report, (0, 1)) == "warm … hot"


def test_a_long_path_keeps_its_end():
    line = SourceLine("/very/" * 40 + "train.py", 41, "step")
    assert wording.place(line).endswith("train.py:41 step")
    assert len(wording.place(line)) < 80


def test_causes_of_not_checked_are_told_once():
    rows = [NotChecked(f"p{i}", "no shapes") for i in range(6)] + [NotChecked("q", "one rank")]
    assert wording.not_checked(rows) == [
        ("no shapes", "p0, p1, p2, p3 and 2 more"),
        ("one rank", "q"),
    ]


def test_findings_come_by_cost():
    assert [f.recoverable_us for f in wording.by_cost(TYPICAL)] == sorted(
        (f.recoverable_us for f in TYPICAL.findings), reverse=True
    )


# --- terminal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    for line in terminal.render(TYPICAL, width=width).splitlines():
        assert len(line) <= width


def test_without_colour_there_is_no_escape_code_and_with_it_the_words_are_the_same():
    import re

    plain = terminal.render(TYPICAL, width=100)
    assert "\x1b" not in plain
    coloured = terminal.render(TYPICAL, width=100, colour=True)
    assert "\x1b[" in coloured
    words = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [x.rstrip() for x in words.splitlines()] == plain.splitlines()


def test_the_terminal_says_what_where_when_and_what_to_change():
    text = terminal.render(TYPICAL, width=120)
    for part in (
        "5.41 MB · 82,113 events · 3,774 kernels · NVIDIA A100-SXM4-80GB · rank 0",
        "4 steps (ProfilerStep#2–5) · judged 413 ms of 560 ms",
        "device busy                     61.2 %   253 ms",
        "! the first of 5 steps compiles and is judged apart",
        "CRITICAL  The host reads single values from the device  sync-scalar-readback",
        "88.0 ms (21.3 %)   high confidence (0.93), host side",
        "4 times in ProfilerStep#2–5, 80.0 ms to 412 ms into the trace",
        "/home/user/project/train.py:41 train_step",
        "if step % 100 == 0: log(total.item())",
        "host waits in aten::item: 82.0 %  (elsewhere 1.0 %)",
        "UNCLEAR",
        "not known   low confidence (0.30)",
        "one rank only: comm-straggler",
    ):
        assert part in text


def test_a_trace_without_a_device_says_so_plainly():
    text = terminal.render(CPU_ONLY, width=120)
    assert "this trace shows no device, so the host itself is judged" in text
    assert "host busy" in text
    assert "device busy" not in text
    assert "Not checked (18 patterns)" in text


def test_a_device_that_is_named_but_not_recorded_is_no_device():
    named = replace(CPU_ONLY, source=replace(CPU_ONLY.source, devices=("ARTEMIS",)))
    assert not wording.has_device(named)
    assert wording.has_device(TYPICAL)


@pytest.mark.parametrize("render", [terminal, markdown, html_page], ids=lambda m: m.__name__)
def test_no_finding_is_told_honestly_with_what_was_checked(render):
    assert "No finding above 1 % of the judged time (32 of 38 patterns checked)." in render.render(
        CLEAN
    )


def test_several_traces_end_in_a_line_each():
    rows = [("a.json", TYPICAL), ("b.json", "b.json: the file is empty"), ("c.json", CLEAN)]
    text = terminal.summary(rows, width=100, colour=False)
    assert "3 traces" in text
    assert "sync-scalar-readback" in text
    assert "the file is empty" in text
    assert "none above 1 %" in text


# --- sarif -------------------------------------------------------------------------------------


def run_of(report: Report) -> dict:
    log = json.loads(sarif.render(report))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    return run


def test_sarif_has_what_the_standard_requires():
    run = run_of(TYPICAL)
    driver = run["tool"]["driver"]
    assert driver["name"]
    assert [r["id"] for r in driver["rules"]] == [*(p.id for p in PATTERNS), "unclear"]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert (result["kind"] == "fail") == (result["level"] != "none")
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert 0 <= result["rank"] <= 100
        for location in result["locations"]:
            place = location["physicalLocation"]
            assert " " not in place["artifactLocation"]["uri"]
            assert place.get("region", {"startLine": 1})["startLine"] >= 1
    assert all(i["executionSuccessful"] for i in run["invocations"])


def test_sarif_points_at_source_lines_and_else_at_the_trace():
    first, second, _ = run_of(TYPICAL)["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "file:///home/user/project/train.py"
    assert place["region"] == {"startLine": 41}
    assert second["locations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": TYPICAL.source.path,
        "index": 0,
    }


def test_sarif_levels_follow_the_severity():
    assert [r["level"] for r in run_of(TYPICAL)["results"]] == ["error", "note", "none"]


@pytest.mark.parametrize(
    ("path", "uri"),
    [("a b/c#.json", "a%20b/c%23.json"), ("/x/ü.py", "file:///x/%C3%BC.py"),
     ("C:\\code\\train.py", "file:///C:/code/train.py"), ("<stdin>", "%3Cstdin%3E")],
)  # fmt: skip
def test_sarif_writes_paths_as_addresses(path, uri):
    assert sarif._uri(path) == uri


def test_several_traces_are_runs_of_one_log():
    assert len(json.loads(sarif.render_all([TYPICAL, CLEAN]))["runs"]) == 2


# --- html --------------------------------------------------------------------------------------


def test_the_page_shows_windows_findings_and_settings():
    html = html_page.render(TYPICAL)
    for part in (
        "cpu score",
        "gpu score",
        "1. sync-scalar-readback",
        "total.item()",
        "&quot;parts",
    ):
        assert part in html


def test_many_windows_share_columns_and_keep_the_worst():
    windows = tuple(WindowScore(float(i), i + 1.0, None, 0.1, 0.1, 0.1) for i in range(5000))
    windows = (*windows[:70], replace(windows[70], cpu_score=0.9), *windows[71:])
    columns = html_page._thinned(windows)
    assert len(columns) <= 500
    assert max(c.cpu_score for c in columns) == 0.9
    assert columns[0].start_us == 0.0
    assert columns[-1].end_us == 5000.0
    assert len(html_page.render(replace(TYPICAL, windows=windows))) < 300_000


# --- overlay -----------------------------------------------------------------------------------

EVENT = '{"ph": "X", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}'


def annotated(text: str, report: Report = TYPICAL, *, gz: bool = False) -> bytes:
    target = io.BytesIO()
    source = gzip.compress(text.encode()) if gz else text.encode()
    overlay.annotate(report, io.BytesIO(source), target)
    return gzip.decompress(target.getvalue())


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"schemaVersion": 1, "traceEvents": [', '], "displayTimeUnit": "ms"}'),
        ('{"note": "\\"traceEvents\\": [", "traceEvents" : [\n', "\n]}"),
        ("[", "]"),
        ("\ufeff  [\n", "]"),
    ],
)
def test_the_overlay_adds_tracks_and_keeps_every_event(before, after, gz):
    whole = json.loads(annotated(before + EVENT + after, gz=gz).decode("utf-8-sig"))
    events = whole if isinstance(whole, list) else whole["traceEvents"]
    assert events[-1] == json.loads(EVENT)
    assert events[:-1] == overlay.events(TYPICAL)
    if isinstance(whole, dict):
        assert {k: v for k, v in whole.items() if k != "traceEvents"} == {
            k: v for k, v in json.loads(before + EVENT + after).items() if k != "traceEvents"
        }


def test_an_empty_list_of_events_stays_json():
    for text in ("[]", '{"traceEvents": [ ]}'):
        json.loads(annotated(text))


def test_the_overlay_needs_no_bracket_in_the_first_piece(monkeypatch):
    monkeypatch.setattr(overlay, "_CHUNK", 7)
    assert json.loads(annotated('{"a": "bcdefghij", "traceEvents": [   ' + EVENT + "]}"))


def test_a_broken_gz_is_copied_up_to_where_it_breaks():
    many = ",".join([EVENT] * 50_000)
    packed = gzip.compress(f"[{many}]".encode())
    target = io.BytesIO()
    overlay.annotate(TYPICAL, io.BytesIO(packed[: len(packed) // 2]), target)
    text = gzip.decompress(target.getvalue()).decode()
    assert text.startswith("[")
    assert EVENT in text


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": 3}'])
def test_a_file_without_events_is_refused(text):
    with pytest.raises(TraceError, match="no list of events"):
        annotated(text)


def test_the_same_report_gives_the_same_bytes():
    first, second = io.BytesIO(), io.BytesIO()
    for target in (first, second):
        overlay.annotate(TYPICAL, io.BytesIO(b"[]"), target)
    assert first.getvalue() == second.getvalue()


spans = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 50)).map(lambda t: (t[0], t[0] + t[1])),
    min_size=1,
    max_size=12,
)


@given(spans)
def test_no_two_slices_of_a_track_overlap(listed):
    occurrences = [{"start_us": a, "end_us": b} for a, b in listed]
    finding = Finding("f", "host-gc-pause", "cpu", 0, 1, evidence={"occurrences": occurrences})
    lanes = overlay._lanes(finding)
    assert sorted(span for lane in lanes for span in lane) == sorted(listed)
    for lane in lanes:
        assert all(a[1] <= b[0] for a, b in pairwise(lane))


def test_slices_lie_on_the_files_own_axis():
    slices = [e for e in overlay.events(TYPICAL) if e["ph"] == "X"]
    assert min(e["ts"] for e in slices) == TYPICAL.findings[0].start_us
    assert all(e["ts"] >= ZERO for e in slices)
