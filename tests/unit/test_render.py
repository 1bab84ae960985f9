"""What each output says, and where."""

from __future__ import annotations

import gzip
import io
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector import units
from detector.errors import TraceError
from detector.jobs.logs import CommReport
from detector.jobs.volumes import Profile, ProfileRow
from detector.logs.anomaly import Anomaly
from detector.patterns import BY_ID, PATTERNS
from detector.render import (
    comm,
    html_overview,
    html_page,
    index_page,
    ledger,
    markdown,
    measures,
    overlay,
    sarif,
    terminal,
    wording,
)
from detector.render.clean import clean
from detector.report import (
    Finding,
    Fix,
    LedgerPlace,
    LedgerRow,
    NotChecked,
    Report,
    SourceLine,
    StepInfo,
    WindowScore,
)
from detector.report.events import TopEvent
from tests.sample_reports import (
    CLEAN,
    CPU_ONLY,
    EVIL,
    EXCERPT,
    HOSTILE,
    NOT_ANALYZABLE,
    TYPICAL,
    ZERO,
)

# --- wording -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0 µs"), (0.25, "0.25 µs"), (12.34, "12.3 µs"), (1500, "1.50 ms"), (88_000, "88.0 ms"),
     (412_999, "413 ms"), (1_234_567, "1.23 s"), (-1500, "-1.50 ms"), (4.2e9, "4,200 s")],
)  # fmt: skip
def test_times_read_as_a_person_says_them(us, text):
    assert units.duration(us) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (48, "48 B"), (5_412_331, "5.41 MB"), (3.2e12, "3.20 TB")]
)
def test_sizes_read_as_a_person_says_them(count, text):
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [("share", 0.5, "50.0 %"), ("us", 1500.0, "1.50 ms"), ("MB", 3.0, "3.00 MB"),
     ("count", 12.0, "12"), ("GB/s", 9.86, "9.86 GB/s"), ("wait_us", 10, "10.0 µs"),
     ("count", float("nan"), "unknown"), ("", None, "None"),
     ("elements", 4096.0, "4,096 elements")],
)  # fmt: skip
def test_evidence_is_shown_in_its_unit(unit, value, text):
    assert measures.quantity(unit, value) == text


@given(st.text(max_size=400), st.integers(2, 300))
def test_a_cleaned_text_is_one_bounded_printable_line(text, limit):
    out = clean(text, limit)
    assert out.isprintable() or set(out) - {" "} == set()
    assert len(out) <= 6 * limit
    assert "\n" not in out


def test_evidence_begins_with_what_differs_most_and_leaves_out_the_occurrences():
    evidence = {
        "same": {"value": 0.5, "unit": "share", "rest": 0.5},
        "unlike": {"value": 0.9, "unit": "share", "rest": 0.1},
        "occurrences": [{"start_us": 0, "end_us": 1}],
        "top_features": ["x"],
    }
    finding = replace(TYPICAL.findings[0], evidence=evidence)
    rows = measures.measures(finding, everything=True)
    assert [row.label for row in rows] == ["unlike", "same"]
    assert [row.label for row in measures.measures(finding)] == ["unlike"]
    named = replace(finding, explanation="same 50 %")
    assert [row.label for row in measures.measures(named)] == ["same"]
    assert rows[0] == measures.Row("unlike", "90.0 %", "baseline 10.0 %")


def test_a_label_is_not_cited_by_a_longer_one_that_ends_with_it():
    def row(label, value):
        return {"label": label, "value": value, "unit": "share", "rest": 0.6}

    evidence = {"a": row("kernels", 0.65), "b": row("kernel time in fp32 kernels", 0.68)}
    said = "The costliest place takes 1.00 ms; there, kernel time in fp32 kernels 68 %."
    finding = replace(TYPICAL.findings[0], evidence=evidence, explanation=said)
    assert [row.label for row in measures.measures(finding)] == ["kernel time in fp32 kernels"]


def test_the_top_features_are_shown_as_text():
    features = ["the GPU idles", "a <b>name</b>\x1b[31m"]
    finding = replace(TYPICAL.findings[0], evidence={"top_features": features})
    report = replace(TYPICAL, findings=(finding,))
    shown = html_page.render(report)
    assert "top features" in shown
    assert "the GPU idles; a" in shown
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
    evidence = {"mine": {**value, "label": "my own"}, "other_one": value}
    rows = measures.measures(replace(TYPICAL.findings[0], evidence=evidence))
    assert [row.label for row in rows] == ["my own", "other one"]


def test_steps_whose_names_hold_no_number_are_named_by_both_ends():
    steps = (StepInfo("warm", 0.0, 1.0), StepInfo("steady", 1.0, 2.0))
    report = replace(TYPICAL, source=replace(TYPICAL.source, steps=steps))
    assert wording.steps(report, (0, 1)) == "warm … steady"


def test_a_long_path_keeps_its_end():
    line = SourceLine("/very/" * 40 + "train.py", 41, "step")
    assert wording.source_line(line).endswith("train.py:41 step")
    assert len(wording.source_line(line)) < 80


def test_causes_of_not_checked_are_named_once():
    rows = [NotChecked(f"p{i}", "no shapes") for i in range(6)] + [NotChecked("q", "one rank")]
    assert wording.not_checked(replace(TYPICAL, not_checked=tuple(rows))) == [
        ("no shapes", "p0, p1, p2, p3 and 2 more"),
        ("one rank", "q"),
    ]


def test_findings_come_by_estimated_savings():
    shown = wording.findings(replace(TYPICAL, findings=TYPICAL.findings[::-1]))
    assert shown == list(TYPICAL.findings)


OVERLAPS = "overlaps with other findings or leads"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (90.0, 100.0, ""),
        (89.0, 100.0, "likely 89.0 µs to 100 µs"),
        (20.0, 150.0, "likely 20.0 µs to 150 µs; most of it overlaps with other findings or leads"),
        (
            0.0,
            120.0,
            "likely 0 µs to 120 µs; almost all of it overlaps with other findings or leads",
        ),
    ],
)
def test_a_range_is_put_into_words_where_it_is_wider_than_a_tenth_of_the_savings(low, high, text):
    finding = replace(TYPICAL.findings[0], estimated_savings_us=100.0, savings_range_us=(low, high))
    assert wording.savings_range(finding) == text


def test_savings_that_need_other_repairs_are_no_overlap():
    finding = replace(
        TYPICAL.findings[0],
        estimated_savings_us=100.0,
        savings_range_us=(5.0, 200.0),
        savings_alone_us=10.0,
        share=0.1,
    )
    assert wording.savings_range(finding) == (
        "likely 5.00 µs to 200 µs; almost all of it only once other findings or leads are repaired"
    )


def test_a_range_never_ends_at_all_there_is():
    """Nothing saves all of the analyzed time."""
    finding = replace(
        TYPICAL.findings[0], estimated_savings_us=500.0, savings_range_us=(250.0, 990.0), share=0.5
    )
    assert wording.savings_range(finding) == "likely 250 µs or more"


@pytest.mark.parametrize(
    ("pattern", "count", "said"),
    [
        ("compute-fp32-matmul", 1_495, "1,495 kernels in "),
        ("input-dataloader-sync", 6, "6 times in "),
        ("input-dataloader-sync", 1, "once in "),
        ("host-launch-bound", 23_032, "throughout ProfilerStep#"),
    ],
)
def test_occurrences_are_counted_by_their_name(pattern, count, said):
    finding = replace(TYPICAL.findings[0], pattern=pattern, occurrences=count, evidence={})
    assert wording.when(TYPICAL, finding).startswith(said)


def test_a_measure_that_does_not_stand_out_gets_no_line_of_its_own():
    def shown(value, rest):
        row = {"label": "GPU busy", "value": value, "unit": "share", "rest": rest}
        finding = replace(
            TYPICAL.findings[0], pattern="host-python-overhead", evidence={"busy": row},
            explanation="",
        )  # fmt: skip
        return len(measures.further(finding))

    assert (shown(0.4, 0.2), shown(0.4, None)) == (1, 1)
    assert (shown(0.22, 0.2), shown(0.1, 0.2), shown(0.002, 0.0)) == (0, 0, 0)


def test_a_loader_is_named_whole():
    loader = LedgerPlace("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "", 0)
    assert ledger.place(loader) == loader.function
    kernel = LedgerPlace("void at::native::fill_kernel<int>(lambda(int)#1)", "", 0)
    assert ledger.place(kernel) == "fill_kernel"


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.87, "783 GB/s, 87 % of memory peak"), (1.38, "783 GB/s, above memory peak")],
)
def test_a_rate_above_the_peak_is_no_share_of_it(share, said):
    """Caches serve a part, or an algorithm computes less than its shapes say."""
    row = TopEvent("k", 1, 10.0, gb_per_s=783.0, peak_share=share, limit="memory bandwidth")
    assert wording.reached(row) == said
    report = replace(CLEAN, top_kernels=(row,), top_ops=())
    assert ("Above a peak" in wording.peaks(report)) == (share > 1)


def test_shapes_are_those_of_tensors():
    row = TopEvent("k", 1, 10.0, shapes="[[], [32, 1024, 14, 14], [[256, 3], []], [0], []]")
    assert wording.shapes(row) == "[32, 1024, 14, 14], [256, 3], [0]"


def test_the_verdict_says_how_much_the_findings_save_together():
    assert wording.verdict(TYPICAL) == (
        "3 findings: estimated savings 112 ms of 413 ms (27 %); 2 leads; 32 of 38 patterns checked."
    )


def test_an_unexplained_cause_is_one_sentence_with_its_place():
    assert wording.unexplained(TYPICAL) == [
        "13 % of the time (52.0 ms): host: framework Python, most in layers.py:95 forward",
        "6.1 % of the time (25.2 ms): no host event recorded",
    ]


# --- the ledger --------------------------------------------------------------------------------


def row(cause: str, group: str, share: float, label: str = "", *where: LedgerPlace) -> LedgerRow:
    return LedgerRow(cause, label or cause, group, share * 1000, share, where)


def lines_of(*rows: LedgerRow, report: Report = TYPICAL) -> list[tuple[str, float]]:
    shown = ledger.lines(replace(report, ledger=rows))
    return [("  " * line.is_cause + line.label, round(line.share, 6)) for line in shown]


@pytest.mark.parametrize("report", [TYPICAL, CPU_ONLY], ids=["gpu", "cpu"])
def test_the_groups_of_the_ledger_add_up_to_the_analyzed_time(report):
    lines = ledger.lines(report)
    groups = [line for line in lines if not line.is_cause]
    assert sum(line.share for line in groups) == pytest.approx(1.0)
    assert sum(line.us for line in groups) == pytest.approx(report.summary.analyzed_us)


def test_causes_below_one_per_cent_are_one_row_of_their_group():
    rows = (
        row("queue", "device", 0.02),
        row("python", "host", 0.9, "host: Python of the program"),
        row("call", "host", 0.009),
        row("loader", "host", 0.001),
        row("nothing", "unexplained", 0.07, "unexplained: no host event recorded"),
    )
    assert lines_of(*rows) == [
        ("GPU idle: the host is late", 0.91),
        ("  Python of the program", 0.9),
        ("  other", 0.01),
        ("GPU idle: launched work not started", 0.02),
        ("  queue", 0.02),
        ("GPU idle: unexplained", 0.07),
        ("  no host event recorded", 0.07),
    ]


def test_a_cause_that_only_repeats_its_group_is_not_shown_twice():
    rows = (row("compute", "busy", 1.0, "GPU busy: compute"),)
    assert lines_of(*rows) == [("GPU busy: compute", 1.0)]


def test_a_trace_without_a_gpu_never_speaks_of_one():
    text = " ".join(line.label for line in ledger.lines(CPU_ONLY))
    assert "CPU busy" in text
    assert "CPU idle" in text
    assert "GPU" not in text


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (LedgerPlace("step", "/a/b/train.py", 41), "train.py:41 step"),
        (LedgerPlace("step", "C:\\b\\train.py", 41), "train.py:41 step"),
        (LedgerPlace("aten::mm"), "aten::mm"),
        (LedgerPlace("Memcpy HtoD (Pageable -> Device)"), "Memcpy HtoD (Pageable -> Device)"),
        (LedgerPlace("void at::native::(anonymous namespace)::fill<4>(int)"), "fill"),
        (LedgerPlace("ampere_sgemm_128x64_nn"), "ampere_sgemm_128x64_nn"),
    ],
)
def test_a_place_is_short(where, text):
    assert ledger.place(where) == text


# --- terminal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    for line in terminal.render(TYPICAL, width=width).splitlines():
        assert len(line) <= width


def test_without_color_there_is_no_escape_code_and_with_it_the_words_are_the_same():

    plain = terminal.render(TYPICAL, width=100)
    assert "\x1b" not in plain
    colored = terminal.render(TYPICAL, width=100, color=True)
    assert "\x1b[" in colored
    words = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert [x.rstrip() for x in words.splitlines()] == plain.splitlines()


def test_the_terminal_says_what_where_when_and_what_to_change():
    text = terminal.render(TYPICAL, width=120)
    for part in (
        "5.41 MB · 82,113 events · 3,774 kernels · NVIDIA A100-SXM4-80GB · rank 0",
        "4 steps (ProfilerStep#2–5) · analyzed 413 ms of 560 ms",
        "GPU busy: compute                       55.9 %   231 ms  █████████",
        "  framework Python                      12.6 %  52.0 ms  layers.py:95 forward",
        "analyzed time                          100.0 %   413 ms",
        "! the first of 5 steps compiles; it is left out",
        f"CRITICAL  {BY_ID['sync-scalar-readback'].title}  sync-scalar-readback",
        "88.0 ms (21 %); likely 61.1 ms to 95.4 ms",
        "fault, host side, high confidence (0.93)",
        "4 times in ProfilerStep#2–5, 80.0 ms to 412 ms into the trace",
        "/home/user/project/train.py:41 train_step",
        "if step % 100 == 0: log(total.item())",
        "assumes  nobody needs the value now",
        "host waits in aten::item: 82.0 %  (baseline 1.0 %)",
        "INFO",
        "Leads, less likely than not",
        "saves 19.8 ms (4.8 %), confidence 0.34, layers.py:95 forward",
        "Not explained by a finding",
        "one rank only: comm-straggler",
    ):
        assert part in text


def test_the_verdict_and_a_line_for_each_finding_come_first_on_one_screen():
    screen = terminal.render(TYPICAL, width=80).splitlines()[:24]
    for finding in TYPICAL.findings:
        assert any(BY_ID[finding.pattern].title[:20] in line for line in screen)
    assert any(line.startswith("Where the analyzed time went") for line in screen)


def test_why_and_the_numbers_beside_it_do_not_repeat_each_other():
    said = "Here: mean wait 82.1 ms; synchronizing calls 12."
    one = replace(TYPICAL.findings[0], explanation=said)
    (row,) = measures.further(one)
    assert (row.label, row.value) == ("host waits in aten::item", "82.0 %")
    assert "also     host waits in aten::item" in terminal.render(replace(TYPICAL, findings=(one,)))
    cited = replace(one, explanation="host waits in aten::item 82 %.")
    assert measures.further(cited) == []  # only measures of the pattern are shown


def test_code_keeps_its_lines_on_a_narrow_terminal():
    code = "if step % 100 == 0 and some_other_condition_of_this_program(): log(total.item())"
    one = replace(TYPICAL.findings[0], fix=replace(TYPICAL.findings[0].fix, code=code))
    assert code in terminal.render(replace(TYPICAL, findings=(one,)), width=60)


def test_a_trace_without_a_finding_says_what_bounds_it():
    text = " ".join(terminal.render(CLEAN, width=100).split())
    assert "Bound by compute, 56 % of the time" in text
    assert "At most 44 % can be saved without faster kernels." in text
    assert "The heaviest, volta_sgemm_128x64_nn, reaches 8.9 TFLOP/s, 57 % of fp32 peak." in text
    assert "Bound by compute, 56 % of the time" in html_page.render(CLEAN)
    assert "nearest finding" not in html_page.render(CLEAN)
    assert "nearest finding" in html_page.render(TYPICAL)
    assert wording.bound(TYPICAL) == wording.bound(NOT_ANALYZABLE) == ""


def test_a_trace_that_cannot_be_analyzed_shows_no_ledger():
    blind = replace(NOT_ANALYZABLE, ledger=TYPICAL.ledger)
    for form in (terminal.render, markdown.render, html_page.render):
        assert "analyzed time went" not in form(blind)
        assert "analyzed time went" in form(TYPICAL)


def test_several_traces_share_their_folder_in_one_line():
    rows = [("runs/a/1.json", TYPICAL), ("runs/b/2.json", "no such file")]
    text = terminal.summary(rows, width=80, color=False)
    assert text.startswith("2 traces in runs/\n")
    assert text.count("runs/") == 1
    assert max(map(len, text.splitlines())) <= 80


def test_a_trace_without_a_device_says_so_plainly():
    text = terminal.render(CPU_ONLY, width=120)
    assert "CPU busy: compute" in text
    assert "CPU idle" in text
    assert "GPU" not in text
    assert "Not checked (18 patterns)" in text


def test_a_device_that_is_named_but_not_recorded_is_no_device():
    named = replace(CPU_ONLY, source=replace(CPU_ONLY.source, devices=("ARTEMIS",)))
    assert not ledger.has_device(named)
    assert ledger.has_device(TYPICAL)


@pytest.mark.parametrize("render", [terminal, markdown, html_page], ids=lambda m: m.__name__)
def test_a_trace_that_cannot_be_analyzed_gets_the_reason_and_no_finding(render):
    text = " ".join(render.render(NOT_ANALYZABLE).replace("&#x27;", "'").split())
    assert "Cannot be analyzed: the GPU's records are missing for 83 % of the time." in text
    assert "Instead: record a few steps with a larger profiler buffer" in text
    for finding in (*NOT_ANALYZABLE.findings, *NOT_ANALYZABLE.leads):
        assert finding.pattern not in text
    for part in ("Leads", "Not explained", "Not checked"):
        assert part not in text


@pytest.mark.parametrize("render", [terminal, markdown, html_page], ids=lambda m: m.__name__)
def test_the_parts_of_a_report_come_in_order(render):
    text = render.render(TYPICAL)
    titles = [BY_ID[f.pattern].title for f in TYPICAL.findings[:2]]
    if render is terminal:  # they stand in the overview, too
        titles = [f"1  CRITICAL  {titles[0]}", f"2  MEDIUM  {titles[1]}"]
    # the page says the verdict before anything else
    first = ["3 findings", "analyzed 413 ms"]
    parts = [
        *(first if render is html_page else first[::-1]),
        "here the analyzed time went", "GPU idle", *titles,
        "Leads, less likely than not", "Not explained by a finding", "Not checked",
    ]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize("render", [terminal, markdown, html_page], ids=lambda m: m.__name__)
def test_no_finding_is_said_with_what_was_checked(render):
    verdict = "No finding above 1 % of the analyzed time; 32 of 38 patterns checked."
    assert verdict in render.render(CLEAN)


def test_several_traces_end_in_a_line_each():
    rows = [("a.json", TYPICAL), ("b.json", "b.json: the file is empty"), ("c.json", CLEAN)]
    text = terminal.summary([*rows, ("d.json", NOT_ANALYZABLE)], width=160, color=False)
    assert "4 traces" in text
    assert "Cannot be analyzed" in text
    assert text.splitlines()[1].split("  ")[0] == "trace"
    assert "savings" in text
    assert "112 ms (27 %)" in text
    assert BY_ID["sync-scalar-readback"].title in text
    assert "the file is empty" in text
    assert "none above 1 %" in text


# --- sarif -------------------------------------------------------------------------------------


def run_of(report: Report) -> dict:
    log = json.loads(sarif.render([report]))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    return run


def test_sarif_has_what_the_standard_requires():
    run = run_of(TYPICAL)
    driver = run["tool"]["driver"]
    assert driver["name"]
    assert [r["id"] for r in driver["rules"]] == [p.id for p in PATTERNS]
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
    assert second["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}


def test_sarif_levels_follow_the_severity():
    assert [r["level"] for r in run_of(TYPICAL)["results"]] == ["error", "warning", "note"]


def test_sarif_of_a_trace_that_cannot_be_analyzed_is_no_success():
    run = run_of(NOT_ANALYZABLE)
    assert run["results"] == []
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"]
    first = invocation["toolExecutionNotifications"][0]
    assert first["level"] == "error"
    assert "missing for 83 % of the time. Instead: record a few steps" in first["message"]["text"]


def test_leads_are_no_results():
    leads = {lead.pattern for lead in TYPICAL.leads}
    assert leads.isdisjoint(result["ruleId"] for result in run_of(TYPICAL)["results"])


@pytest.mark.parametrize(
    ("path", "uri"),
    [("a b/c#.json", "a%20b/c%23.json"), ("/x/ü.py", "file:///x/%C3%BC.py"),
     ("C:\\code\\train.py", "file:///C:/code/train.py"), ("<stdin>", "%3Cstdin%3E")],
)  # fmt: skip
def test_sarif_writes_paths_as_addresses(path, uri):
    assert sarif._uri(path) == uri


def test_what_several_traces_show_is_one_result_of_one_run():
    larger = replace(TYPICAL.findings[0], estimated_savings_us=1e6)
    other = replace(TYPICAL, findings=(larger,), source=replace(TYPICAL.source, path="b.json"))
    (run,) = json.loads(sarif.render([TYPICAL, other, CLEAN]))["runs"]
    assert [r["occurrenceCount"] for r in run["results"]] == [2, 1, 1]
    assert run["results"][0]["properties"]["traces"] == ["b.json", TYPICAL.source.path]
    assert "In 2 traces." in run["results"][0]["message"]["text"]
    assert len(run["artifacts"]) == len(run["invocations"]) == 3


def test_what_names_a_run_and_a_result_knows_neither_time_nor_path():
    later = replace(
        TYPICAL,
        source=replace(TYPICAL.source, path="tomorrow.json"),
        findings=tuple(replace(f, start_us=f.start_us + 1e9) for f in TYPICAL.findings),
    )
    runs = run_of(TYPICAL), run_of(later)
    assert runs[0]["automationDetails"] == runs[1]["automationDetails"]
    prints = [[r["partialFingerprints"] for r in run["results"]] for run in runs]
    assert prints[0] == prints[1]


def test_every_result_has_a_line_and_its_rule_the_patterns_page():
    run = run_of(TYPICAL)
    for result in run["results"]:
        for location in result["locations"]:
            assert location["physicalLocation"]["region"]["startLine"] >= 1
    results = {result["ruleId"] for result in run["results"]}
    for rule in run["tool"]["driver"]["rules"]:
        whole = BY_ID[rule["id"]].harmless in rule["help"]["markdown"]
        assert whole == (rule["id"] in results)


def test_a_rule_links_its_page_where_the_package_names_an_address(monkeypatch):
    monkeypatch.setattr(sarif.addresses, "_pages", lambda: "https://docs.example/patterns/")
    rules = run_of(TYPICAL)["tool"]["driver"]["rules"]
    assert all(r["helpUri"] == f"https://docs.example/patterns/{r['id']}.md" for r in rules)


# --- html --------------------------------------------------------------------------------------


def test_the_page_shows_windows_findings_and_settings():
    html = html_page.render(TYPICAL)
    for part in (
        "cpu score",
        "gpu score",
        "1. sync-scalar-readback",
        "total.item()",
        "&quot;parts",
        "record: <code>record_shapes=True</code>",
        "volta_sgemm_128x64_nn",
        "[32, 256], [256]</td>",
        "4 steps, median 103 ms",
        "<title>ProfilerStep#3: 103 ms</title>",
    ):
        assert part in html


def test_the_bar_of_a_step_is_its_time_by_group_of_the_ledger():
    rows = (
        replace(row("compute", "busy", 0.5), by_step_us=(50.0, 60.0)),
        replace(row("python", "host", 0.3), by_step_us=(30.0, 20.0)),
        replace(row("call", "host", 0.2), by_step_us=(20.0, 20.0)),
    )
    steps = (StepInfo("a", 0.0, 100.0), StepInfo("b", 100.0, 200.0))
    source = replace(TYPICAL.source, steps=steps)
    lines = html_overview.steps(replace(TYPICAL, source=source, ledger=rows))
    bars = [
        (kind, float(tall))
        for line in lines
        for kind, tall in re.findall(r'class="(g-\w+)".*? height="([\d.]+)"', line)
    ]
    assert bars == [("g-busy", 50.0), ("g-host", 50.0), ("g-busy", 60.0), ("g-host", 40.0)]


def test_a_page_of_a_trace_without_a_gpu_speaks_of_none():
    html = html_page.render(CPU_ONLY)
    assert "host score" in html
    assert "gpu score" not in html
    assert "GPU time" not in html


def test_a_card_says_why_in_a_sentence_and_folds_the_rest_away():
    text = "It waits. Here: waits 3. More."
    evidence = {
        f"measure {i}": {"value": 1.0 - i / 100, "unit": "share", "rest": 0.0} for i in range(9)
    }
    finding = replace(TYPICAL.findings[0], explanation=text, evidence=evidence)
    html = html_page.render(replace(TYPICAL, findings=(finding,)))
    card, _, folded = html.partition("<article")[2].partition("<summary>Show all metrics (9)")
    assert '<p class="why">It waits.</p>' in card
    assert card.count("measure ") == 5
    assert "Here: waits 3. More." in folded
    assert folded.count("measure ") == 9


@pytest.mark.parametrize(
    ("text", "parts"),
    [("", ("", "")), ("One", ("One", "")), ("One. Two. Three.", ("One.", "Two. Three.")),
     ("It takes 1.5 ms. here", ("It takes 1.5 ms. here", ""))],
)  # fmt: skip
def test_the_first_sentence_ends_before_a_capital(text, parts):
    assert wording.first_sentence(text) == parts


def test_without_source_lines_a_card_names_the_module():
    finding = replace(TYPICAL.findings[1], fix=Fix("Change it.", "", (), ("Net", "Block_<3>")))
    html = html_page.render(replace(TYPICAL, findings=(finding,)))
    assert "module <code>Net &gt; Block_&lt;3&gt;</code>" in html


# --- html: the timeline ------------------------------------------------------------------------


def drawn(report: Report) -> dict:
    """What the page's script works on."""
    block = html_page.render(report).partition('id="data">')[2].partition("</script>")[0]
    return json.loads(block)


def test_the_timeline_draws_the_findings_excerpt():
    data = drawn(TYPICAL)
    assert list(data["timelines"]) == ["1"]  # the others have no excerpt
    timeline = data["timelines"]["1"]
    assert timeline["length"] == 1000.0
    assert timeline["names"] == list(EXCERPT.names)
    assert [track["label"] for track in timeline["tracks"]] == ["thread 17 (main)", "stream 7"]
    assert timeline["tracks"][0]["at_fault"] == [1]


def test_a_timeline_says_what_it_leaves_out_and_lists_what_is_at_fault():
    html = html_page.render(TYPICAL)
    for part in (
        "1.00 ms from 62.0 ms into the trace; the part of 4.00 ms with the most occurrences; "
        "43 events in 4 bars: pale bars join short events; 7 events of deeper calls and other "
        "tracks are not drawn",
        "Events at fault in this place (1)",
        "<td>cudaStreamSynchronize</td><td>+100 µs</td><td>800 µs</td><td>thread 17 (main)</td>",
        'data-act="next"',
    ):
        assert part in html


def test_a_click_on_the_overview_is_looked_up_in_the_occurrences():
    overview = drawn(TYPICAL)["overview"]
    assert [row["number"] for row in overview["findings"]] == [1, 2, 3]
    assert len(overview["findings"][0]["spans"]) == 4
    assert overview["start"] < overview["end"]
    assert drawn(NOT_ANALYZABLE)["overview"] is None


def test_findings_without_an_excerpt_have_no_timeline():
    findings = tuple(replace(finding, excerpt=None) for finding in TYPICAL.findings)
    html = html_page.render(replace(TYPICAL, findings=findings))
    assert "<canvas" not in html
    assert drawn(replace(TYPICAL, findings=findings))["timelines"] == {}


# --- html: several traces ----------------------------------------------------------------------


def test_the_index_links_each_trace_and_names_their_folder_once():
    rows = [
        ("runs/x/a.json", TYPICAL, "a"),
        ("runs/x/b.json", CLEAN, "b"),
        ("runs/x/c.json", "the file is empty", ""),
        ("runs/x/d.json", NOT_ANALYZABLE, "d"),
    ]
    html = index_page.render(rows)
    assert html.count("runs/x/") == 1
    for part in (
        "4 traces, 1 with findings",
        '<a href="a/report.html">a.json</a>',
        "112 ms (27 %)",
        BY_ID["sync-scalar-readback"].title,
        "No finding above 1 % of the analyzed time",
        "the file is empty",
        "Cannot be analyzed",
    ):
        assert part in html
    assert "<script" not in html
    assert "script-src" not in html


def test_a_hostile_name_in_the_index_is_text():
    html = index_page.render([(EVIL, HOSTILE, 'a"b'), (EVIL, EVIL, "")])
    assert "<img" not in html
    assert "<script" not in html
    assert 'href="a%22b/report.html"' in html
    assert "\x1b" not in html


def test_many_windows_share_columns_and_keep_the_worst():
    windows = tuple(WindowScore(float(i), i + 1.0, None, 0.1, 0.1, 0.1) for i in range(5000))
    windows = (*windows[:70], replace(windows[70], cpu_score=0.9), *windows[71:])
    columns = html_overview.thinned(windows)
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


def test_a_number_is_never_apart_from_its_unit():
    finding = replace(TYPICAL.findings[0], explanation="it takes 12 % and 3.20 ms of 7 steps " * 9)
    for width in range(60, 90):
        text = terminal.render(replace(TYPICAL, findings=(finding,)), width=width)
        assert not re.search(r"\d\n\s*(%|ms)", text)
        assert "\ue000" not in text


# --- communication -----------------------------------------------------------------------------


def _table_row(gbs: float, group: str = "") -> ProfileRow:
    return ProfileRow("AllReduce", "float", group, 8, 1 << 20, 1, 1 << 18, 1 << 20, "", "", 0, 9.0,
                      gbs, 240.0)  # fmt: skip


def test_runs_of_one_kind_and_size_take_one_line():
    rows = tuple(_table_row(gbs, f"run {gbs}") for gbs in (240.0, 20.0, 200.0))
    text = comm.render(CommReport((), Profile(()), Profile(rows), (), ()))
    (line,) = (line for line in text.splitlines() if "AllReduce" in line)
    assert line.split() == (
        "AllReduce 3 × 1.05 MB float 8 ranks 20.0 to 240.0 GB/s, median 200.0".split()
    )
    one = comm.render(CommReport((), Profile(()), Profile((_table_row(20.0),)), (), ()))
    assert "20.0 GB/s (best 240.0)" in one
    best = comm.render(CommReport((), Profile(()), Profile((_table_row(240.0),)), (), ()))
    assert best.rstrip().endswith("240.0 GB/s")


def test_anomalies_of_one_kind_do_not_hide_the_others():
    found = [Anomaly("failed-run", f"run {i} failed") for i in range(29)]
    found.append(Anomaly("hang", "rank 3 hangs"))
    text = comm.render(CommReport((), Profile(()), Profile(()), tuple(found), ()))
    assert text.count("failed-run: run ") == comm.MOST_ALIKE
    assert "failed-run: 24 more, see --format json" in text
    assert "hang: rank 3 hangs" in text
