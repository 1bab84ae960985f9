"""The command line: what it takes for a trace, what it prints where, and its exit codes."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from detector import scan, scan_file
from detector.errors import TraceError
from detector.kineto import Limits
from detector.report import from_json
from tests.sample_reports import CLEAN, NOT_ANALYZABLE, TYPICAL

TRACE = b"""{"schemaVersion": 1, "traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
]}"""


@pytest.fixture(autouse=True)
def pipeline(monkeypatch):
    """Every trace yields the report that a test puts into this list (TYPICAL at first)."""
    result = [TYPICAL]
    fake = ModuleType("detector.pipeline")
    fake.report_on = lambda analysis, **_: replace(  # type: ignore[attr-defined]
        result[0], source=replace(result[0].source, path=analysis.trace.source.path)
    )
    monkeypatch.setitem(sys.modules, "detector.pipeline", fake)
    stages = scan_file.Stages({}, Limits(), {})
    monkeypatch.setattr(scan_file, "stages_of", lambda _: stages)
    monkeypatch.setattr(scan_file, "_stages", lambda *_: stages)
    return result


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trace(folder):
    (folder / "a.json").write_bytes(TRACE)
    return "a.json"


def errors(capsys) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_trace_is_scanned_and_the_result_alone_is_on_standard_output(trace, capsys):
    assert scan.main([trace, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert from_json(out).source.path == trace
    assert err == ""


@pytest.mark.parametrize("form", scan.FORMATS)
def test_every_format_prints_the_finding(trace, capsys, form):
    assert scan.main([trace, "--format", form]) == 0
    assert "sync-scalar-readback" in capsys.readouterr().out


@pytest.mark.parametrize(("level", "code"), [("info", 1), ("high", 1), ("critical", 1), (None, 0)])
def test_fail_on_turns_a_finding_into_exit_code_one(trace, level, code):
    assert scan.main([trace, *(["--fail-on", level] if level else [])]) == code


def test_fail_on_says_nothing_about_what_is_less_severe(trace, pipeline):
    pipeline[0] = replace(TYPICAL, findings=TYPICAL.findings[1:])  # medium, and info
    assert scan.main([trace, "--fail-on", "high"]) == 0
    pipeline[0] = replace(TYPICAL, findings=())  # leads alone
    assert scan.main([trace, "--fail-on", "info"]) == 0


def test_under_fail_on_a_trace_that_cannot_be_analyzed_is_exit_code_two(trace, pipeline, capsys):
    pipeline[0] = NOT_ANALYZABLE
    assert scan.main([trace]) == 0
    out, err = capsys.readouterr()
    assert "Cannot be analyzed" in out
    assert err == ""
    assert scan.main([trace, "--fail-on", "critical"]) == 2
    (line,) = errors(capsys)
    assert line == (
        f"error: {trace}: cannot be analyzed: the GPU's records are missing for 83 % of the time"
    )


def test_a_word_with_an_equals_sign_is_a_setting_unless_it_is_a_file(folder, capsys):
    name = "lr=0.1.json"
    (folder / name).write_bytes(TRACE)
    assert scan.main([name, "window.parts=4", "--format", "json"]) == 0
    assert from_json(capsys.readouterr().out).source.path == name


def test_options_may_stand_between_traces_and_settings(trace, capsys):
    assert scan.main(["window=time", "--format", "json", trace, "window.count=9"]) == 0
    assert from_json(capsys.readouterr().out).source.path == trace


@pytest.mark.parametrize("word", ["windw=time", "window=tim", "window.parts=many", "window.prts=3"])
def test_a_wrong_setting_is_one_line_that_names_the_key(trace, capsys, word):
    assert scan.main([trace, word]) == 2
    (line,) = errors(capsys)
    assert line.startswith("error: ")
    assert word.split("=")[0] in line


ROOT = Path(__file__).parents[2]

BAD = {
    "nothing.json": None,
    "empty.json": b"",
    "picture.json": b"\x89PNG\r\n\x1a\n" + bytes(64),
    "other.json": b'{"hello": 1}',
    "broken.json.gz": b"\x1f\x8b\x08\x00garbage",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_trace_is_one_line_that_names_the_file(folder, capsys, name):
    if BAD[name] is not None:
        (folder / name).write_bytes(BAD[name])
    assert scan.main([name, "--out", "out"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith(f"error: {name}: ")
    assert not [p for p in Path("out").rglob("*") if p.is_file()]


def test_no_word_at_all_is_an_error(capsys):
    assert scan.main([]) == 2
    assert "no TRACE" in errors(capsys)[0]


def test_a_folder_is_searched_by_content(folder, capsys):
    (folder / "deep").mkdir()
    (folder / "deep" / "x.json.tmp").write_bytes(TRACE)
    (folder / "y.trace.gz").write_bytes(gzip.compress(TRACE))
    (folder / "settings.json").write_bytes(b'{"a": 1}')
    (folder / "picture.gz").write_bytes(gzip.compress(b"\x89PNG"))
    (folder / "notes.txt").write_bytes(TRACE)
    assert scan.main([".", "--format", "json"]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert [r["source"]["path"] for r in reports] == ["deep/x.json.tmp", "y.trace.gz"]


def test_a_folder_without_traces_says_so(folder, capsys):
    (folder / "settings.json").write_bytes(b'{"a": 1}')
    assert scan.main([str(folder)]) == 2
    assert "no trace among the files of this folder (1 with a name in .json" in errors(capsys)[0]


def test_a_glob_is_expanded_and_each_file_is_scanned_once(folder, capsys):
    for name in ("a.json", "b.json"):
        (folder / name).write_bytes(TRACE)
    assert scan.main(["*.json", "a.json", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert scan.main(["*.gz"]) == 2
    assert errors(capsys) == ["error: *.gz: nothing matches"]


@pytest.mark.usefixtures("folder")
def test_standard_input_is_read(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TRACE))))
    assert scan.main(["-", "--format", "json", "--out", "out"]) == 0
    assert from_json(capsys.readouterr().out).source.path == "<stdin>"
    assert b"aten::add" in gzip.decompress(Path("out/annotated.json.gz").read_bytes())


@pytest.mark.usefixtures("trace")
def test_one_unreadable_trace_among_several_does_not_stop_the_rest(folder, capsys):
    (folder / "b.json").write_bytes(b"")
    (folder / "c.json").write_bytes(TRACE)
    code = scan.main(["a.json", "b.json", "gone.json", "c.json", "--out", "out"])
    out, err = capsys.readouterr()
    assert code == 2
    *failed, wrote = err.splitlines()
    assert sorted(line.split(":")[1].strip() for line in failed) == ["b.json", "gone.json"]
    assert wrote.startswith("wrote out")
    assert "4 traces" in out
    assert sorted(p.name for p in Path("out").iterdir()) == [
        "a",
        "c",
        "index.html",
        "report.sarif",
        "summary.json",
    ]
    rows = {row["trace"]: row for row in json.loads(Path("out/summary.json").read_text())}
    assert rows["a.json"]["top_finding"] == "sync-scalar-readback"
    assert rows["a.json"]["estimated_savings_us"] == TYPICAL.summary.estimated_savings_us
    assert "error" in rows["b.json"]


def test_out_holds_the_four_files_whole(trace):
    assert scan.main([trace, "--out", "deep/out"]) == 0
    out = Path("deep/out")
    names = ["annotated.json.gz", "report.html", "report.json", "report.sarif"]
    assert sorted(p.name for p in out.iterdir()) == names
    assert from_json((out / "report.json").read_text()).findings == TYPICAL.findings
    assert len(json.loads(gzip.decompress((out / names[0]).read_bytes()))["traceEvents"]) > 1


def test_traces_of_one_name_get_folders_of_their_own(folder):
    for d in ("x", "y"):
        (folder / d).mkdir()
        (folder / d / "rank.pt.trace.json").write_bytes(TRACE)
    assert scan.main(["x", "y", "--out", "out"]) == 0
    names = ["index.html", "rank", "rank-2", "report.sarif", "summary.json"]
    assert sorted(p.name for p in Path("out").iterdir()) == names
    # what --out wrote is not taken for a trace of the user's
    assert scan.main(["out"]) == 2


def test_out_never_writes_over_the_trace(folder, capsys):
    (folder / "report.json").write_bytes(TRACE)
    assert scan.main(["report.json", "--out", "."]) == 2
    assert "write over the trace" in errors(capsys)[0]
    assert (folder / "report.json").read_bytes() == TRACE


def test_a_folder_that_cannot_be_made_is_one_line(trace, folder, capsys):
    (folder / "file").write_text("")
    assert scan.main([trace, "--out", "file"]) == 2
    assert errors(capsys) == ["error: file: file exists"]


def test_a_write_that_fails_leaves_nothing_half_written(trace, monkeypatch, capsys):
    from detector.render import overlay

    def fails(_, __, target):
        target.write(b"half")
        raise TraceError("a.json: no list of events")

    monkeypatch.setattr(overlay, "annotate", fails)
    assert scan.main([trace, "--out", "out"]) == 2
    assert len(errors(capsys)) == 1
    names = [p.name for p in Path("out").iterdir()]
    assert "annotated.json.gz" not in names
    assert not [n for n in names if n.endswith(".part")]


def test_a_fault_of_the_program_keeps_its_traceback_and_is_not_exit_code_one(
    trace, monkeypatch, capsys
):
    def fails(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(sys.modules["detector.pipeline"], "report_on", fails)
    assert scan.main([trace, "--fail-on", "info"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "error: a.json: internal error: ZeroDivisionError: oops" in err


def test_control_codes_of_a_file_name_do_not_reach_the_terminal(folder, capsys):
    name = "\x1b[31m.json"
    (folder / name).write_bytes(TRACE)
    assert scan.main([name, "\x1b]0;gone"]) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err


def test_color_is_only_for_terminals_that_want_it(monkeypatch):
    from detector.cli import output

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.view().color
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.view().color


def test_a_terminal_without_utf8_gets_plain_letters():
    code = "import sys; from detector.cli.output import emit; emit('1 µs … █', False)"
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    assert run("-c", code, env=env).stdout == "1 us ... #"


def test_no_finding_is_said_in_words(trace, pipeline, capsys):
    pipeline[0] = CLEAN
    assert scan.main([trace, "--fail-on", "info"]) == 0
    assert "No finding above 1 %" in capsys.readouterr().out


def test_addresses_in_the_report_hold_no_password():
    secret = {"judge": {"base_url": "http://me:secret@host/v1", "n": 1}}
    assert scan_file.without_secrets(secret) == {
        "judge": {"base_url": "http://***@host/v1", "n": 1}
    }


# Two steps in which the device waits for the host.
STEPS = json.dumps(
    {
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100"}],
        "traceEvents": [
            {"ph": "X", "pid": 1, "tid": 1, "ts": s * 1000.0, "dur": 1000.0,
             "cat": "user_annotation", "name": f"ProfilerStep#{s}"}
            for s in range(4)
        ]
        + [
            {"ph": "X", "pid": 1, "tid": 1, "ts": s * 1000.0 + 10, "dur": 980.0,
             "cat": "cpu_op", "name": "aten::mm", "args": {"External id": s}}
            for s in range(4)
        ]
        + [
            {"ph": "X", "pid": 1, "tid": 1, "ts": s * 1000.0 + 20, "dur": 5.0,
             "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": s + 1}}
            for s in range(4)
        ]
        + [
            {"ph": "X", "pid": 0, "tid": 7, "ts": s * 1000.0 + 30, "dur": 100.0, "cat": "kernel",
             "name": "sgemm", "args": {"correlation": s + 1, "stream": 7, "device": 0}}
            for s in range(4)
        ],
    }
)  # fmt: skip


def test_the_real_stages_scan_a_trace_in_a_process_of_their_own(folder):
    (folder / "a.json").write_text(STEPS)
    models = ["judge=none", "flagger=rules", "confidence=constant"]
    words = ["a.json", *models, "--format", "json", "--out", "out"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = run("-W", "error", "-m", "detector.scan", *words, env=env)
    assert done.returncode == 0
    assert done.stderr.startswith("wrote out: report.html")
    report = from_json(done.stdout)
    assert report.source.kernels == 4
    assert [s.name for s in report.source.steps][-1] == "ProfilerStep#3"
    assert report.tool.config["judge"] == {"_target_": "detector.judge.nothing.NoJudge"}
    assert report == from_json(Path("out/report.json").read_text())
    again = run("-m", "detector.scan", "out/annotated.json.gz", *words[1:6], env=env)
    assert from_json(again.stdout).summary == report.summary


def run(*words: str, **more) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)


def test_importing_the_entry_point_loads_nothing_heavy():
    heavy = ["torch", "transformers", "lightgbm", "datasets", "pandas", "hydra", "rich", "numpy"]
    code = f"import sys, detector.scan; print([m for m in {heavy} if m in sys.modules])"
    assert run("-W", "error", "-c", code).stdout.strip() == "[]"


def test_help_names_the_settings_and_exit_codes_and_version_is_one_line():
    text = run("-m", "detector.scan", "--help").stdout
    for word in ("--fail-on", "judge=embedded|none", "window=steps|time", "exit code"):
        assert word in text
    assert run("-m", "detector.scan", "--version").stdout.count("\n") == 1


BROKEN_PIPE = """
import os, sys
from detector.cli.output import Output
from detector.cli.targets import Target
from tests.sample_reports import TYPICAL
out = Output("terminal", None, several=False)
sys.stdin.readline()
out.add(Target("a", None), TYPICAL, None)
out.add(Target("a", None), TYPICAL, None)
sys.exit(7)
"""


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_reader_that_goes_away_is_no_error():
    child = subprocess.Popen(
        [sys.executable, "-c", BROKEN_PIPE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout and child.stdin and child.stderr  # noqa: PT018
    child.stdout.close()
    child.stdin.write(b"go\n")
    child.stdin.close()
    assert child.wait(timeout=60) == 7
    assert child.stderr.read() == b""
    child.stderr.close()
