"""Source files of a report as paths of the checkout."""

from __future__ import annotations

from dataclasses import replace

from detector.render.source_paths import located
from detector.report import Fix, SourceLine
from tests.sample_reports import TYPICAL


def with_files(path: str, *files: str):
    where = tuple(SourceLine(file, 3, "f") for file in files)
    finding = replace(TYPICAL.findings[0], fix=Fix("", "", where))
    return replace(TYPICAL, findings=(finding,), source=replace(TYPICAL.source, path=path))


def files_of(report) -> list[str]:
    return [line.file for line in report.findings[0].fix.where]


def test_a_file_that_the_checkout_holds_once_gets_its_path(tmp_path):
    for name in ("src/train.py", "a/data.py", "b/data.py", ".venv/lib/loss.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    report = with_files("t.json", "train.py", "data.py", "loss.py", "gone.py")
    (found,) = located([report], tmp_path)
    assert files_of(found) == ["src/train.py", "data.py", "loss.py", "gone.py"]


def test_traces_go_by_their_path_in_the_checkout_and_others_by_their_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [
        "runs/t.json",
        str(tmp_path / "runs" / "t.json"),
        "/elsewhere/secret/u.json",
        "<stdin>",
    ]
    found = located([with_files(path) for path in paths], tmp_path)
    assert [r.source.path for r in found] == ["runs/t.json", "runs/t.json", "u.json", "<stdin>"]


def test_nothing_else_changes(tmp_path):
    report = with_files("t.json", "gone.py")
    (found,) = located([report], tmp_path)
    assert replace(found, source=report.source) == report
