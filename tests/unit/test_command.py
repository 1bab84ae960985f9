"""The command: which word runs what, and the pages of patterns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from detector import rules
from detector.__main__ import main
from detector.patterns import BY_ID, IDS

ROOT = Path(__file__).resolve().parents[2]


def test_every_pattern_is_listed_in_both_formats(capsys):
    assert main(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(IDS)
    assert main(["rules", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in rows] == list(IDS)
    assert rows[0]["title"] == BY_ID[IDS[0]].title


@pytest.mark.parametrize("pattern", IDS)
def test_a_patterns_page_says_how_to_see_and_to_change_it(pattern, capsys):
    assert main(["rule", pattern]) == 0
    text = capsys.readouterr().out
    for part in (BY_ID[pattern].title, BY_ID[pattern].look, BY_ID[pattern].fix):
        assert part in text
    assert "](" not in text.split("\n## ")[0], "a terminal has no use for a relative link"


@pytest.mark.parametrize(
    ("word", "hint"),
    [("input-dataloader-sinc", "did you mean input-dataloader-sync?"),
     ("readback", "did you mean sync-"), ("zzz", "`trace-scan rules` lists them")],
)  # fmt: skip
def test_a_pattern_that_does_not_exist_is_one_line_with_a_hint(word, hint, capsys):
    assert rules.show([word]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert hint in line


def test_a_word_that_is_no_command_is_a_trace(capsys):
    assert main(["gone.json"]) == 2
    assert "gone.json: no such file" in capsys.readouterr().err


def test_python_m_detector_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "detector", "rule", IDS[0]],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(f"# {BY_ID[IDS[0]].title}")
