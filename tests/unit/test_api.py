"""The package in Python: scan a file or a profiler, tables, a notebook's frame, recording."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import torch

import detector
from detector.cli.output import emit
from detector.errors import ConfigError, TraceError
from detector.report import from_json

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "train_image_classifier.json.gz"
PLAIN = {"flagger": "rules", "confidence": "constant", "judge": "none"}


@pytest.fixture(scope="module")
def report():
    return detector.scan_trace(EXAMPLE, **PLAIN, overrides=["confidence.cpu=0.9"])


def work(steps: int, mark) -> None:
    layer = torch.nn.Linear(64, 64)
    for _ in range(steps):
        layer(torch.ones(256, 64)).sum().backward()
        mark()


def test_importing_the_package_loads_nothing():
    names = "('numpy', 'msgspec', 'detector.api', 'detector.report')"
    code = f"import sys, detector; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'scan_traces'"):
        detector.scan_traces  # noqa: B018


def test_a_scan_is_the_commands_with_settings_as_words(report):
    assert report.source.path == str(EXAMPLE)
    assert report.tool.config["judge"] == {"_target_": "detector.judge.nothing.NoJudge"}
    assert {f.pattern for f in report.findings} >= {"input-dataloader-sync"}
    with pytest.raises(ConfigError):
        detector.scan_trace(EXAMPLE, no_such_setting=3)
    with pytest.raises(TraceError):
        detector.scan_trace("gone.json", **PLAIN)


def test_parts_are_tables_with_a_row_each(report):
    findings = report.to_pandas()
    assert list(findings["pattern"]) == [f.pattern for f in report.findings]
    assert findings["file"].iloc[0] == report.findings[0].fix.where[0].file
    assert len(report.to_pandas("windows")) == len(report.windows)
    assert report.to_pandas("ledger")["share"].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("part", ["findings", "windows", "ledger"])
def test_a_table_without_rows_has_the_same_columns(report, part):
    full, empty = report.to_pandas(part), replace(report, **{part: ()}).to_pandas(part)
    assert len(empty) == 0
    assert list(empty.columns) == list(full.columns)


def test_a_notebook_gets_the_page_in_a_frame_of_its_own(report):
    frame = report._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts" srcdoc="')  # and no same origin
    inside = frame.split('srcdoc="')[1].split('"')[0]
    assert unescape(inside) == report.to_html()


def test_a_report_beside_itself_shows_no_change(report):
    d = detector.diff_traces(report, report)
    assert d.comparable
    assert not d.of("gone", "new", "better", "worse")
    assert "A step takes as long as before" in str(d)
    assert "<iframe" in d._repr_html_()


def test_a_representation_is_one_line(report):
    d = detector.diff_traces(report, report)
    for one in (report, d):
        assert len(repr(one).splitlines()) == 1
        assert len(repr(one)) < 300


def test_a_notebook_s_output_takes_text(monkeypatch):
    class Notebook:
        said = ""

        def write(self, text: str) -> None:
            self.said += text

    stream = Notebook()
    monkeypatch.setattr("sys.stdout", stream)
    emit("µs\n", machine=False)
    assert stream.said == "µs\n"


def test_recording_marks_steps_keeps_the_trace_and_reports(tmp_path, capsys):
    with detector.profile(tmp_path / "t.json.gz", **PLAIN) as prof:
        work(6, prof.step)
    assert prof.report is not None
    assert len(prof.report.source.steps) >= 4
    assert prof.report.source.program, "shapes were recorded"
    assert prof.report.ledger[0].where[0].file.endswith("test_api.py"), "stacks were recorded"
    assert "Where the analyzed time went" in capsys.readouterr().out
    again = detector.scan_trace(tmp_path / "t.json.gz", **PLAIN)
    assert again.summary == prof.report.summary


def test_what_fails_inside_is_not_reported(capsys):
    prof = detector.profile(**PLAIN)
    with pytest.raises(KeyError), prof:
        raise KeyError
    assert prof.report is None
    assert capsys.readouterr().out == ""


def test_the_handler_of_torchs_profiler_writes_a_folder_for_each_trace(tmp_path, capsys):
    from torch.profiler import schedule

    with torch.profiler.profile(
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=detector.report_to(tmp_path / "runs", **PLAIN),
    ) as prof:
        work(6, prof.step)
    (folder,) = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert from_json((folder / "report.json").read_text()).source.path.startswith(str(tmp_path))
    assert (folder / "report.html").is_file()
    assert f"See {folder}/report.html" in capsys.readouterr().err


def test_a_handler_that_cannot_write_stops_no_training(tmp_path, capsys):
    (tmp_path / "file").write_text("")

    class Nothing:
        step_num = 3

        def export_chrome_trace(self, path: str) -> None:
            raise AssertionError("not reached")

    detector.report_to(tmp_path / "file" / "in")(Nothing())
    assert capsys.readouterr().err.startswith("error: ")
