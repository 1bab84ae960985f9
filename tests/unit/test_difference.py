"""Two scans side by side: whether they compare, what changed, and what is only chance."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from detector import diff
from detector.errors import DetectorError
from detector.render import difference as shown
from detector.report import (
    Finding,
    Fix,
    LedgerRow,
    ProgramOp,
    Report,
    SourceLine,
    StepInfo,
    to_json,
)
from detector.report_diff import difference
from detector.report_diff.difference import compare, expected
from tests.sample_reports import EVIL, HOSTILE, NOT_ANALYZABLE, TYPICAL

MM = ProgramOp("aten::mm", "[[64, 8], [8, 8]]", 12.0)


def scanned(*lengths_us: float, findings=(), leads=(), loader=0.0, program=(MM,)) -> Report:
    """A scan whose steps take so long, ``loader`` of which the data loader."""
    ends = [sum(lengths_us[: i + 1]) for i in range(len(lengths_us))]
    steps = [
        StepInfo(f"s{i}", e - d, e) for i, (e, d) in enumerate(zip(ends, lengths_us, strict=True))
    ]
    total, n = ends[-1], len(lengths_us)
    rows = tuple(
        LedgerRow(cause, cause, "host", sum(us), sum(us) / total, (), tuple(us))
        for cause, us in (
            ("loader", [loader * d for d in lengths_us]),
            ("compute", [(1 - loader) * d for d in lengths_us]),
        )
    )
    source = replace(TYPICAL.source, steps=tuple(steps), program=program, path=f"{n}.json")
    return Report(
        source=source,
        summary=replace(TYPICAL.summary, analyzed_us=total),
        ledger=rows,
        findings=tuple(findings),
        leads=tuple(leads),
    )


def finding(savings_us: float, pattern: str = "input-dataloader-sync", **more: object) -> Finding:
    """Saves so much of each of four steps."""
    values = {
        "id": f"{pattern}-id",
        "pattern": pattern,
        "side": "cpu",
        "start_us": 0.0,
        "end_us": 1.0,
        "estimated_savings_us": 4 * savings_us,
        "by_step_us": (savings_us,) * 4,
        "fix": Fix("", "", (SourceLine("data.py", 3, "load"),)),
    }
    return Finding(**{**values, **more})  # type: ignore[arg-type]


SLOW = scanned(100.0, 101.0, 99.0, 100.0, findings=[finding(30.0)], loader=0.3)
FAST = scanned(70.0, 71.0, 69.0, 70.0)


def statuses(before: Report, after: Report) -> list[str]:
    return [change.status for change in compare(before, after).findings]


def test_a_repaired_finding_is_gone_and_its_savings_are_realized():
    d = compare(SLOW, FAST)
    assert [(c.status, c.pattern) for c in d.findings] == [("gone", "input-dataloader-sync")]
    assert d.predicted_us == pytest.approx(30.0)
    assert d.realized_us == pytest.approx(30.0)
    assert d.step is not None
    assert d.step.is_sure
    assert d.ledger[0].cause == "loader"
    assert d.ledger[0].time.by == pytest.approx(-30.0)


def test_the_other_way_round_it_is_new():
    assert statuses(FAST, SLOW) == ["new"]
    assert compare(FAST, SLOW).realized_us == pytest.approx(-30.0)


def test_a_trace_beside_itself_shows_nothing():
    d = compare(SLOW, SLOW)
    assert statuses(SLOW, SLOW) == ["same"]
    assert d.step is not None
    assert (d.step.by, d.step.is_sure, d.predicted_us) == (0.0, False, 0.0)


def test_less_than_steps_vary_is_no_change():
    noisy = scanned(80.0, 120.0, 90.0, 110.0), scanned(75.0, 118.0, 92.0, 113.0)
    step = compare(*noisy).step
    assert step is not None
    assert not step.is_sure
    assert "takes as long as before" in shown.verdict(compare(*noisy))


def test_a_finding_near_the_least_that_is_reported_is_neither_gone_nor_new():
    small = replace(SLOW, findings=(finding(2.1),))  # 2 % of the time is the least for a fault
    assert statuses(small, FAST) == ["unsure"]
    assert statuses(FAST, small) == ["unsure"]


def test_a_finding_that_saves_less_or_more_is_better_or_worse():
    less = replace(SLOW, findings=(finding(15.0),))
    assert statuses(SLOW, less) == ["better"]
    assert statuses(less, SLOW) == ["worse"]
    assert compare(SLOW, less).predicted_us == pytest.approx(15.0)


def test_a_finding_that_is_a_lead_now_is_gone_only_with_its_savings():
    assert statuses(SLOW, replace(FAST, leads=(finding(29.0),))) == ["same"]
    assert statuses(SLOW, replace(FAST, leads=(finding(5.0),))) == ["gone"]


def test_the_same_pattern_at_another_place_is_another_finding():
    other = finding(30.0, id="x", fix=Fix("", "", (SourceLine("eval.py", 3, "load"),)))
    assert statuses(SLOW, replace(SLOW, findings=(other,))) == ["gone", "new"]


def test_what_nobody_looked_for_is_not_gone():
    row = replace(TYPICAL.not_checked[0], pattern="input-dataloader-sync")
    blind = replace(FAST, not_checked=(row,))
    assert statuses(SLOW, blind) == ["unsure"]
    assert "checked in one trace only: input-dataloader-sync" in compare(SLOW, blind).notes


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ([ProgramOp("aten::mm", "[[64, 8], [8, 8]]", 3.0)], "the programs differ: 25 %"),
        ([ProgramOp("aten::mm", "[[128, 8], [8, 8]]", 12.0)], "another batch size or model"),
    ],
)
def test_another_program_is_not_comparable(program, why):
    d = compare(SLOW, scanned(70.0, 70.0, 70.0, program=program))
    assert not d.comparable
    assert why in d.why_not[0]
    assert shown.verdict(d).startswith("Not comparable: ")
    assert d.findings == ()


def test_shapes_that_change_with_every_step_do_not_make_another_program():
    ragged = [ProgramOp("aten::mm", f"[[{n}, 8], [8, 8]]", 3.0) for n in (60, 61, 62)]
    assert compare(
        SLOW, scanned(70.0, 70.0, 70.0, program=[replace(MM, calls=3.0), *ragged])
    ).comparable


def test_what_cannot_be_analyzed_or_has_no_steps_is_not_comparable():
    assert "cannot be analyzed" in compare(NOT_ANALYZABLE, SLOW).why_not[0]
    bare = replace(SLOW, source=replace(SLOW.source, steps=()))
    assert compare(bare, SLOW).why_not == ("only one of the traces has steps",)


def test_two_steps_give_no_interval_and_a_note():
    d = compare(scanned(100.0, 101.0), scanned(70.0, 71.0))
    assert d.step is not None
    assert d.step.interval is None
    assert any("fewer than 3 steps" in note for note in d.notes)


def test_what_was_to_be_fixed():
    assert expected(compare(SLOW, FAST), ["input-dataloader-sync"]) == []
    assert expected(compare(SLOW, SLOW), ["input-dataloader-sync"]) == [
        "input-dataloader-sync: still found (same)"
    ]
    assert expected(compare(SLOW, FAST), ["host-gc-pause"]) == ["host-gc-pause: not found before"]
    with pytest.raises(DetectorError, match="no pattern 'x'"):
        expected(compare(SLOW, FAST), ["x"])


# -- shown -----------------------------------------------------------------------------------------


def test_every_form_says_what_went_and_what_it_gained():
    d = compare(SLOW, FAST)
    for text in (shown.render(d, width=80), shown.markdown(d), shown.html(d)):
        for part in ("gone", "Data loading blocks training", "data.py:3 load", "loader"):
            assert part in " ".join(text.replace("\\", "").split())
    assert max(map(len, shown.render(d, width=80).splitlines())) <= 80
    written = json.loads(shown.to_json(d))
    assert written["comparable"]
    assert written["findings"][0]["status"] == "gone"
    assert written["predicted_us"] == pytest.approx(30.0)


def test_names_of_a_trace_do_no_harm():
    steps = TYPICAL.source.steps
    evil = replace(HOSTILE, source=replace(HOSTILE.source, steps=steps))
    d = compare(evil, replace(TYPICAL, findings=()))
    assert d.comparable
    text = shown.render(d)
    assert "\x1b" not in text
    page = shown.html(d)
    assert "<script" not in page
    assert "<img" not in page
    assert "<script" not in shown.markdown(d)
    assert EVIL not in text


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """Two reports as files: a comparison takes them for the traces that they are of."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.json").write_text(to_json(SLOW))
    (tmp_path / "fast.json").write_text(to_json(FAST))
    return ["slow.json", "fast.json"]


def test_the_command_prints_and_writes(reports, capsys, tmp_path):
    assert diff.main([*reports, "--format", "json", "--out", "out"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads((tmp_path / "out/diff.json").read_text())
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(diff.FILES.values())
    assert err.startswith("wrote out: diff.html")


def test_exit_codes(reports, capsys):
    slow, fast = reports
    wanted = ["--expect-fixed", "input-dataloader-sync"]
    assert diff.main([slow, fast, *wanted]) == 0
    assert diff.main([slow, slow, *wanted]) == 1
    assert "--expect-fixed input-dataloader-sync: still found" in capsys.readouterr().err
    assert diff.main([slow, "gone.json"]) == 2
    assert diff.main([slow, fast, "--expect-fixed", "nothing"]) == 2


def test_under_expect_fixed_what_cannot_be_compared_is_no_pass(reports, tmp_path):
    (tmp_path / "other.json").write_text(to_json(NOT_ANALYZABLE))
    assert diff.main([reports[0], "other.json"]) == 0
    assert diff.main([reports[0], "other.json", "--expect-fixed", "input-dataloader-sync"]) == 2


def test_draws_are_the_same_every_time():
    assert compare(SLOW, FAST) == compare(SLOW, FAST)
    assert difference.DRAWS >= 1_000
