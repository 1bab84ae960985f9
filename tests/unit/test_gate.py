"""The gate: which patterns count, what the baseline knew, and what fails a build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from detector import scan, scan_file
from detector.cli import gate
from detector.cli.gate import Gate, gate_of
from detector.errors import ConfigError
from detector.kineto import Limits
from detector.patterns import IDS
from detector.report import LEVELS, Finding, Report, SourceLine, to_json
from tests.sample_reports import NOT_ANALYZABLE, TYPICAL

READBACK, FILL, PAUSE = TYPICAL.findings


def ids(findings: list[Finding]) -> list[str]:
    return [finding.pattern for finding in findings]


def test_a_finding_fails_at_its_own_level_and_those_below():
    report = replace(TYPICAL, findings=(FILL,))  # medium
    assert [bool(Gate(level).failing(report)) for level in LEVELS] == [True] * 3 + [False] * 2
    assert Gate(None).failing(report) == []


def test_leads_and_what_cannot_be_analyzed_fail_no_level():
    assert Gate("info").failing(replace(TYPICAL, findings=())) == []
    assert Gate("info").failing(replace(NOT_ANALYZABLE, findings=())) == []


@pytest.mark.parametrize(
    ("select", "ignore", "left"),
    [
        ((), (), [READBACK, FILL, PAUSE]),
        (("sync",), (), [READBACK]),
        (("sync", "host-gc-pause"), (), [READBACK, PAUSE]),
        ((), ("memory-zero-grad-fill",), [READBACK, PAUSE]),
        (("sync", "memory"), ("sync-scalar-readback",), [FILL]),
    ],
)
def test_what_is_left_out_is_listed_as_not_checked(select, ignore, left):
    report = Gate(select=select, ignore=ignore).chosen(TYPICAL)
    assert list(report.findings) == left
    assert report.summary.estimated_savings_us == pytest.approx(
        sum(f.estimated_savings_us for f in left)
        if select or ignore
        else TYPICAL.summary.estimated_savings_us
    )
    blind = {row.pattern for row in report.not_checked}
    assert blind.isdisjoint(ids(left))
    assert {f.pattern for f in TYPICAL.findings} - set(ids(left)) <= blind
    assert len(report.not_checked) == len(blind) <= len(IDS)


def test_only_what_the_baseline_lacks_fails():
    known = Gate("info", known=(READBACK,)).failing(TYPICAL)
    assert known == [FILL, PAUSE]


def test_a_finding_is_known_by_any_of_its_places_and_not_by_another_pattern_there():
    here, there = SourceLine("train.py", 3, "step"), SourceLine("loss.py", 9, "loss")
    old = replace(READBACK, id="a", fix=replace(READBACK.fix, where=(here, there)))
    moved = replace(READBACK, id="b", fix=replace(READBACK.fix, where=(replace(there, line=99),)))
    elsewhere = replace(moved, fix=replace(moved.fix, where=(SourceLine("x.py", 1, "f"),)))
    other = replace(moved, pattern="sync-explicit")
    report = replace(TYPICAL, findings=(moved, elsewhere, other))
    assert Gate("info", known=(old,)).failing(report) == [elsewhere, other]


# -- pyproject.toml --------------------------------------------------------------------------------


def project(folder: Path, table: str) -> Path:
    (folder / "pyproject.toml").write_text(f"[tool.trace-scan]\n{table}\n")
    inner = folder / "src" / "deep"
    inner.mkdir(parents=True)
    return inner


def test_the_nearest_table_is_read_and_the_command_line_comes_first(tmp_path):
    table = 'fail-on = "high"\nselect = ["sync"]\noverrides = ["judge=none"]'
    inner = project(tmp_path, table)
    (inner / "pyproject.toml").write_text("[tool.other]\n")
    assert gate_of(None, [], [], None, inner) == Gate("high", ("sync",), (), (), ("judge=none",))
    said = gate_of("low", ["memory,host"], [], None, inner)
    assert (said.level, said.select) == ("low", ("memory", "host"))
    assert gate_of("never", [], [], None, inner).level is None


def test_a_baseline_is_named_from_the_file_that_names_it(tmp_path):
    inner = project(tmp_path, 'baseline = "known.json"')
    (tmp_path / "known.json").write_text(to_json(TYPICAL))
    assert set(ids(list(gate_of(None, [], [], None, inner).known))) == {
        f.pattern for f in (*TYPICAL.findings, *TYPICAL.leads)
    }


def test_the_list_that_several_traces_give_is_a_baseline(tmp_path):
    file = tmp_path / "all.json"
    file.write_text(f"[{to_json(replace(TYPICAL, leads=()))}, {to_json(Report())}]")
    assert len(gate.read_baseline(file)) == len(TYPICAL.findings)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("fail_on = 'high'", "tool.trace-scan: Object contains unknown field `fail_on`"),
        ("fail-on = 'awful'", "tool.trace-scan: Invalid enum value 'awful' - at `$.fail-on`"),
        ("select = 'sync'", "tool.trace-scan: Expected `array`, got `str` - at `$.select`"),
        ("ignore = ['sync-scalar-readbac']", "did you mean sync-scalar-readback?"),
        ("baseline = 3", "tool.trace-scan: Expected `str | null`, got `int` - at `$.baseline`"),
        ("baseline = 'pyproject.toml'", "no report to compare with"),
        ("= 3", "pyproject.toml: "),
    ],
)
def test_what_is_wrong_with_a_table_is_one_line_that_names_the_key(tmp_path, table, said):
    with pytest.raises(ConfigError) as caught:
        gate_of(None, [], [], None, project(tmp_path, table))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value).strip()


# -- through the command ---------------------------------------------------------------------------


@pytest.fixture
def scanned(tmp_path, monkeypatch):
    """A folder with a trace, every scan of which gives TYPICAL."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scan_file, "stages_of", lambda _: scan_file.Stages({}, Limits(), {}))
    monkeypatch.setattr(scan_file, "scan", lambda *_: scan_file.Scanned(TYPICAL))
    (tmp_path / "a.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    return tmp_path


def test_a_failure_says_what_failed_and_where(scanned, capsys):
    assert scan.main(["a.json", "--fail-on", "medium", "--ignore", "memory"]) == 1
    out, err = capsys.readouterr()
    first, line = err.splitlines()
    assert first == "failed: 1 finding at or above medium (--fail-on medium)"
    assert line == "  sync-scalar-readback: critical, saves 88.0 ms (21 %), train.py:41 train_step"
    assert "memory-zero-grad-fill" in out.split("Not checked")[1]


def test_with_its_own_report_as_baseline_nothing_fails(scanned, capsys):
    assert scan.main(["a.json", "--format", "json", "--fail-on", "never"]) == 0
    (scanned / "known.json").write_text(capsys.readouterr().out)
    assert scan.main(["a.json", "--fail-on", "info", "--baseline", "known.json"]) == 0
    assert scan.main(["a.json", "--fail-on", "info", "--baseline", "gone.json"]) == 2
