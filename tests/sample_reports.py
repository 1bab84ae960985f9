"""Made-up reports that renderers and entry points are tested with."""

from __future__ import annotations

from dataclasses import replace

from detector.report import (
    Candidate,
    CoverageInfo,
    Finding,
    Fix,
    NotChecked,
    Report,
    SourceInfo,
    SourceLine,
    StepInfo,
    Summary,
    Tool,
    WindowScore,
)
from detector.taxonomy import BY_ID

ZERO = 1_700_000_000_000_000.0  # an absolute time stamp, as newer traces have
STEP = 103_250.0  # µs


def _finding(pattern: str, number: int, share: float, severity: str, **more: object) -> Finding:
    row = BY_ID[pattern]
    judged = 4 * STEP
    at = [ZERO + 60_000 + i * STEP + number * 20_000 for i in range(4)]
    occurrences = [{"start_us": t, "end_us": t + share * STEP} for t in at]
    values = {
        "id": f"{pattern}-{number}",
        "pattern": pattern,
        "side": row.side,
        "start_us": at[0],
        "end_us": at[-1] + share * STEP,
        "steps": (0, 1, 2, 3),
        "score": 0.97,
        "confidence": 0.93,
        "severity": severity,
        "recoverable_us": share * judged,
        "share": share,
        "occurrences": 4,
        "evidence": {"occurrences": occurrences},
        "explanation": row.what,
        "fix": Fix(row.fix, row.code),
        "candidates": (Candidate(pattern, 0.93), Candidate("sync-explicit", 0.05)),
    }
    return Finding(**{**values, **more})  # type: ignore[arg-type]


_READBACK = _finding("sync-scalar-readback", 1, 0.213, "critical")
TYPICAL = Report(
    tool=Tool("0.1.0", "lightgbm 1", "embedded 1", "1", {"window": {"parts": 8}}),
    source=SourceInfo(
        "runs/resnet50/worker0.1700000000.pt.trace.json.gz",
        "ab" * 32,
        5_412_331,
        82_113,
        3_774,
        ("NVIDIA A100-SXM4-80GB",),
        0,
        (ZERO, ZERO + 560_100.0),
        tuple(
            StepInfo(
                f"ProfilerStep#{i + 2}", ZERO + 60_000 + i * STEP, ZERO + 60_000 + (i + 1) * STEP
            )
            for i in range(4)
        ),
        CoverageInfo(0.998, {"number that is not finite": 3}, {}, 0.97, 0.9),
    ),
    summary=Summary(4 * STEP, 0.612, 0.041, 0.0, 0.388, 0.27 * 4 * STEP),
    windows=tuple(
        WindowScore(
            ZERO + 60_000 + i * STEP / 8,
            ZERO + 60_000 + (i + 1) * STEP / 8,
            i // 8,
            (i % 8) / 8,
            (i % 8) / 8,
            (i % 5) / 10,
        )
        for i in range(32)
    ),
    findings=(
        replace(
            _READBACK,
            evidence={
                **_READBACK.evidence,
                "host waits in aten::item": {"value": 0.82, "unit": "share", "rest": 0.01},
                "synchronising calls": {"value": 12.0, "unit": "count", "rest": 0.0},
                "mean wait": {"value": 82113.2, "unit": "us", "rest": None},
                "drivers": ["sync_share", "item_count"],
                "device_idle_share": 0.38,
                "copied_bytes": 48,
            },
            fix=replace(
                _READBACK.fix,
                where=(
                    SourceLine("/home/user/project/train.py", 41, "train_step"),
                    SourceLine("/home/user/project/metrics/" + "deeply/" * 12 + "running.py", 7,
                               "RunningMean.update"),
                ),
            ),
        ),
        _finding("memory-zero-grad-fill", 2, 0.057, "low", confidence=0.71),
        replace(_finding("host-gc-pause", 3, 0.021, "info"), pattern="unclear", confidence=0.3,
                 explanation="", fix=Fix(), steps=(2,), occurrences=1, evidence={},
                recoverable_us=0.0, share=0.0),
    ),
    not_checked=(
        NotChecked("comm-straggler", "one rank only"),
        *(NotChecked(p, "the trace has no shapes") for p in (
            "compute-misaligned-gemm", "infer-kv-cat", "memory-dtype-churn",
            "compute-underfilled", "compute-unfused-attention")),
    ),
    warnings=("the first of 5 steps compiles and is judged apart",),
)  # fmt: skip

CLEAN = replace(TYPICAL, findings=(), summary=replace(TYPICAL.summary, recoverable_us=0.0))

CPU_ONLY = replace(
    CLEAN,
    source=replace(TYPICAL.source, kernels=0, devices=(), rank=None, steps=()),
    summary=Summary(400_000.0, 0.9, 0.0, 0.0, 0.1, 0.0),
    not_checked=tuple(
        NotChecked(p.id, "the trace has no device records")
        for p in BY_ID.values()
        if "device" in p.needs
    ),
    warnings=("no step is marked: bursts of work are taken for steps",),
)

# Every text that a trace or a language model can put into a report, hostile in each format's way.
EVIL = (
    "</script><script>alert(1)</script><img src=http://x.example/p.png onerror=alert(2)>"
    "\x1b[31mred\x1b]0;title\x07 [bold]rich[/bold] [link=http://x]l[/] :boom: \u202egnp.exe\u202c "
    "| cell | `code` ```\n\n# Heading\n![i](http://x/y) [l](javascript:alert(1)) --> & "
    "\u2028 \x00 \x9b1m"
)
HOSTILE = replace(
    TYPICAL,
    tool=Tool(EVIL, EVIL, EVIL, EVIL, {EVIL: EVIL}),
    source=replace(
        TYPICAL.source,
        path=EVIL,
        devices=(EVIL,),
        steps=tuple(replace(s, name=EVIL) for s in TYPICAL.source.steps),
        coverage=CoverageInfo(0.5, {EVIL: 1}, {EVIL: 2}, 0.1, 0.1),
    ),
    findings=(
        replace(
            TYPICAL.findings[0],
            id=EVIL,
            pattern=EVIL,
            explanation=EVIL,
            fix=Fix(EVIL, EVIL, (SourceLine(EVIL, 1, EVIL),)),
            evidence={EVIL: EVIL, EVIL + "2": {"value": EVIL, "unit": EVIL, "rest": EVIL}},
            candidates=(Candidate(EVIL, 0.5),),
        ),
    ),
    not_checked=(NotChecked(EVIL, EVIL),),
    warnings=(EVIL,),
)
