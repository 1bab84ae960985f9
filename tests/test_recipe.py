"""The recipe of CONTRIBUTING.md, followed for a made-up pattern in a copy of the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ID = "host-tea-break"
STEP_US = 3_000
BREAK_US = 1_000

SIGNAL = """
    Signal(
        "tea-break",
        "Breaks for tea",
        lambda s: np.array(
            [i for i in s.host_events if s.trace.names[s.trace.name[i]] == "tea"], np.int64
        ),
    ),
"""
PATTERN = f'''
    Pattern(
        id="{ID}",
        kind="fault",
        side="cpu",
        needs=("device", "host"),
        signal="tea-break",
        repair=lambda s, rows: Repair(remove=rows),
        assumes="nobody is thirsty",
        explains=("dispatch",),
        title="The host takes a tea break",
        what="The host drinks tea while the GPU waits.",
        look="the annotation tea",
        costs="The time of the break.",
        repaired="The breaks go.",
        harmless="Four o'clock.",
        advice=(Advice("Drink tea after the step.", "if not training: tea()"),),
        facts=("idle_python", "busy"),
        cites="op",
    ),
'''


def steps() -> list[dict[str, Any]]:
    """Six steps of 2 ms of work that the device waits for after a break of 1 ms."""
    events: list[dict[str, Any]] = []

    def event(cat: str, name: str, ts: float, dur: float, **args: object) -> None:
        tid = 7 if cat == "kernel" else 1
        row = {"ph": "X", "cat": cat, "name": name, "pid": 0 if tid == 7 else 1, "tid": tid}
        events.append({**row, "ts": ts, "dur": dur, "args": args})

    for i in range(6):
        at, number = i * STEP_US, 10 * i + 1
        event("user_annotation", f"ProfilerStep#{i}", at, STEP_US)
        event("user_annotation", "tea", at + 1, BREAK_US - 2)
        event("cpu_op", "aten::mm", at + BREAK_US, 20, **{"External id": number})
        event("cuda_runtime", "cudaLaunchKernel", at + BREAK_US + 5, 5, correlation=number)
        where = {"device": 0, "stream": 7, "correlation": number, "External id": number}
        event("kernel", "gemm", at + BREAK_US + 15, STEP_US - BREAK_US - 20, **where)
    return events


def follow(checkout: Path) -> None:
    """Steps 1 and 2: a signal, and a pattern at the end of its family."""
    signals = checkout / "detector" / "signals" / "host.py"
    start, end = re.split(r"^SIGNALS: Final = \(\n", signals.read_text(), flags=re.M)
    signals.write_text(f"{start}SIGNALS: Final = (\n{SIGNAL}{end}")
    family = checkout / "detector" / "patterns" / "host.py"
    family.write_text(f"{family.read_text().rstrip().removesuffix(')')}{PATTERN})\n")


@pytest.fixture
def grown(checkout: Path) -> Path:
    """A checkout with one pattern more, its page written, and a trace that shows it."""
    follow(checkout)
    run(checkout, "scripts/pattern_pages.py")
    gpu = {"id": 0, "name": "Tesla V100", "computeMajor": 7, "computeMinor": 0}
    trace = {"deviceProperties": [gpu], "traceEvents": steps()}
    (checkout / "trace.json").write_text(json.dumps(trace))
    return checkout


def run(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def scan(checkout: Path, form: str) -> str:
    # Without the models: their classes lack the new pattern until they are trained again.
    chosen = ("flagger=rules", "confidence=constant", "judge=none", "--format", form)
    return run(checkout, "-m", "detector.scan", "trace.json", *chosen)


def test_a_pattern_is_added_by_the_recipe(grown: Path) -> None:
    (finding,) = (f for f in json.loads(scan(grown, "json"))["findings"] if f["pattern"] == ID)
    assert finding["occurrences"] >= 4
    per_break = finding["estimated_savings_us"] / finding["occurrences"]
    assert per_break == pytest.approx(BREAK_US, rel=0.1)
    assert finding["explanation"].startswith(
        "The host drinks tea while the GPU waits. The costliest place takes "
    )
    assert finding["fix"]["summary"].startswith("Drink tea after the step.")
    assert finding["fix"]["code"] == "if not training: tea()"
    for form in ("markdown", "terminal", "sarif"):
        assert "The host takes a tea break" in scan(grown, form), form
    page = (grown / "docs" / "patterns" / f"{ID}.md").read_text()
    assert "This assumes that nobody is thirsty." in page
    assert f"({ID}.md)" in (grown / "docs" / "patterns" / "README.md").read_text()
    prompt = "from detector.judge import schema; print(schema.system_prompt(schema.IDS))"
    assert f"- {ID} (host): The host drinks tea" in run(grown, "-c", prompt)
    spelled = [p for p in (grown / "detector").rglob("*.py") if ID in p.read_text()]
    assert {p.relative_to(grown).parts[1] for p in spelled} == {"patterns"}
