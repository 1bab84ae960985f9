"""Made-up reports that renderers and entry points are tested with."""

from __future__ import annotations

from dataclasses import replace

from detector.patterns import BY_ID
from detector.report import (
    Candidate,
    CoverageInfo,
    Finding,
    Fix,
    LedgerPlace,
    LedgerRow,
    NotChecked,
    Report,
    SourceInfo,
    SourceLine,
    StepInfo,
    Summary,
    Tool,
    WindowScore,
)
from detector.report.events import Excerpt, ExcerptTrack, Peaks, TopEvent

ZERO = 1_700_000_000_000_000.0  # an absolute time stamp, as newer traces have
STEP = 103_250.0  # µs


def _finding(pattern: str, number: int, share: float, severity: str, **more: object) -> Finding:
    row = BY_ID[pattern]
    analyzed = 4 * STEP
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
        "estimated_savings_us": share * analyzed,
        "savings_range_us": (share * analyzed, share * analyzed),
        "share": share,
        "assumes": "nobody needs the value now",
        "occurrences": 4,
        "evidence": {"occurrences": occurrences},
        "explanation": row.what,
        "fix": Fix(row.fix, row.code),
        "candidates": (Candidate(pattern, 0.93), Candidate("sync-explicit", 0.05)),
    }
    return Finding(**{**values, **more})  # type: ignore[arg-type]


def _cause(cause: str, label: str, group: str, share: float, *where: LedgerPlace) -> LedgerRow:
    return LedgerRow(cause, label, group, share * 4 * STEP, share, where)


_METRICS = LedgerPlace("RunningMean.update", "/home/user/project/metrics/running.py", 7)
_FORWARD = LedgerPlace("forward", "/home/user/project/models/layers.py", 95, 52_000.0)
_READBACK = _finding("sync-scalar-readback", 1, 0.213, "critical")
EXCERPT = Excerpt(
    ZERO + 62_000,
    ZERO + 63_000,
    (ZERO + 61_000, ZERO + 65_000),
    50,
    7,
    ("aten::item", "cudaStreamSynchronize", "aten::add", "vectorized_elementwise_kernel"),
    ((100.0, 900.0),),
    (
        ExcerptTrack("thread 17 (main)", False, (-20.0, 100.0, 940.0), (930.0, 800.0, 40.0),
                     (930.0, 800.0, 40.0), (0, 1, 0), (0, 1, 2), (1, 1, 1), (1,)),
        ExcerptTrack("stream 7", True, (0.0,), (400.0,), (120.0,), (0,), (3,), (40,), ()),
    ),
)  # fmt: skip
TYPICAL = Report(
    tool=Tool("0.1.0", "lightgbm 1", "lightgbm 1", "embedded 1", "1", {"window": {"parts": 8}}),
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
        coverage=CoverageInfo(0.998, {"number that is not finite": 3}, {}, 0.97, 0.9),
    ),
    summary=Summary(4 * STEP, 560_100.0, 0.612, 0.041, 0.012, 0.388, 0.27 * 4 * STEP),
    ledger=(
        _cause("compute", "GPU busy: compute", "busy", 0.557,
               LedgerPlace("void at::native::vectorized_elementwise_kernel<4, at::native::"
                           "CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, float)")),
        _cause("framework", "host: framework Python", "host", 0.126, _FORWARD),
        _cause("sync-scalar", "host: waits for a single value", "host", 0.113, _METRICS),
        _cause("nothing", "unexplained: no host event recorded", "unexplained", 0.061),
        _cause("copy", "exposed copy", "exposed", 0.041, LedgerPlace("Memcpy HtoD")),
        _cause("queue", "between queued kernels", "device", 0.034),
        _cause("call", "host: launch and other runtime calls", "host", 0.025,
               LedgerPlace("cudaLaunchKernel")),
        _cause("device-stall", "unexplained: work was launched and did not begin", "unexplained",
               0.013),
        _cause("rank-wait", "exposed communication: waiting for other ranks", "exposed", 0.012),
        _cause("python", "host: Python of the program", "host", 0.006),
        _cause("dispatch", "host: op dispatch", "host", 0.005),
        _cause("latency", "launch latency", "device", 0.005),
        _cause("fill", "GPU busy: fill", "busy", 0.002),
    ),
    unexplained=(
        _cause("framework", "host: framework Python", "host", 0.126, _FORWARD),
        _cause("nothing", "unexplained: no host event recorded", "unexplained", 0.061),
    ),
    top_kernels=(
        TopEvent("volta_sgemm_128x64_nn", 225, 55_313.0, 0.0, "[[32, 256], [256]]", 8.95, 122.0,
                 0.57, "fp32 arithmetic"),
        TopEvent("vectorized_elementwise_kernel", 3_090, 39_814.0, 0.0, "", 0.0, 784.0, 0.87,
                 "memory bandwidth"),
    ),
    peaks=Peaks(15.7, 0.0, 125.0, 0.0, 900.0, "https://www.nvidia.com/en-us/data-center/v100/"),
    top_ops=(TopEvent("aten::addmm", 755, 62_204.0, 128_460.0, "[[32, 256], [256]]"),),
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
                "sync_scalar": {"label": "host waits in aten::item", "value": 0.82, "unit": "share",
                                "rest": 0.01},
                "synchronizing calls": {"value": 12.0, "unit": "count", "rest": 0.0},
                "mean wait": {"value": 82113.2, "unit": "us", "rest": None},
                "kernels": {"value": 310.0, "unit": "count", "rest": 612.0},
                "top_features": ["host synchronizes", "reads of single values"],
                "gpu_idle_share": 0.38,
                "copied_bytes": 48,
            },
            savings_range_us=(0.148 * 4 * STEP, 0.231 * 4 * STEP),
            fix=replace(
                _READBACK.fix,
                where=(
                    SourceLine("/home/user/project/train.py", 41, "train_step"),
                    SourceLine("/home/user/project/metrics/" + "deeply/" * 12 + "running.py", 7,
                               "RunningMean.update"),
                ),
            ),
            excerpt=EXCERPT,
        ),
        _finding("memory-zero-grad-fill", 2, 0.057, "medium", confidence=0.71,
                 assumes="gradients set to None cost nothing"),
        _finding("host-gc-pause", 3, 0.021, "info", confidence=0.55, explanation="", fix=Fix(),
                 steps=(2,), occurrences=1, evidence={}, assumes=""),
    ),
    leads=(
        _finding("host-python-overhead", 4, 0.048, "low", confidence=0.34, kind="opportunity",
                 fix=Fix("", "", (SourceLine("/home/user/project/models/layers.py", 95,
                                             "forward"),))),
        _finding("compute-unfused-elementwise", 5, 0.031, "low", confidence=0.22,
                 kind="opportunity"),
    ),
    not_checked=(
        NotChecked("comm-straggler", "one rank only"),
        *(NotChecked(p, "the trace has no shapes", "record_shapes=True") for p in (
            "compute-misaligned-gemm", "infer-kv-cat", "memory-dtype-churn",
            "compute-underfilled", "compute-unfused-attention")),
    ),
    warnings=("the first of 5 steps compiles; it is left out",),
)  # fmt: skip

CLEAN = replace(
    TYPICAL,
    findings=(),
    leads=(),
    unexplained=(),
    summary=replace(TYPICAL.summary, estimated_savings_us=0.0),
)

NOT_ANALYZABLE = replace(
    CLEAN,
    analyzable=False,
    why_not="The GPU's records are missing for 83 % of the time",
    record_instead="Record a few steps with a larger profiler buffer, after warm-up steps",
    # what a careless stage might leave behind: none of it may be shown
    findings=TYPICAL.findings,
    leads=TYPICAL.leads,
    unexplained=TYPICAL.unexplained,
)

CPU_ONLY = replace(
    CLEAN,
    source=replace(TYPICAL.source, kernels=0, devices=(), rank=None, steps=()),
    summary=Summary(400_000.0, 560_100.0, 0.553, 0.0, 0.0, 0.447, 0.0),
    ledger=(
        LedgerRow("cpu-compute", "CPU busy: compute", "busy", 221_200.0, 0.553,
                  (LedgerPlace("aten::convolution"),)),
        LedgerRow("loader", "host: data loader", "host", 126_000.0, 0.315,
                  (LedgerPlace("decode_picture", "data.py", 109, 126_000.0),)),
        LedgerRow("framework", "host: framework Python", "host", 51_200.0, 0.128, (_FORWARD,)),
        LedgerRow("nothing", "unexplained: no host event recorded", "unexplained", 1_600.0, 0.004),
    ),
    not_checked=tuple(
        NotChecked(p.id, "the trace has no device records")
        for p in BY_ID.values()
        if "device" in p.needs
    ),
    warnings=("no step markers: bursts of activity are taken for steps",),
)  # fmt: skip

# Every text that a trace or a language model can put into a report, hostile in each format's way.
EVIL = (
    "</script><script>alert(1)</script><img src=http://x.example/p.png onerror=alert(2)>"
    "\x1b[31mred\x1b]0;title\x07 [bold]rich[/bold] [link=http://x]l[/] :boom: \u202egnp.exe\u202c "
    "| cell | `code` ```\n\n# Heading\n![i](http://x/y) [l](javascript:alert(1)) --> & "
    "\u2028 \x00 \x9b1m"
)
HOSTILE = replace(
    TYPICAL,
    tool=Tool(EVIL, EVIL, EVIL, EVIL, EVIL, {EVIL: EVIL}),
    source=replace(
        TYPICAL.source,
        path=EVIL,
        devices=(EVIL,),
        steps=tuple(replace(s, name=EVIL) for s in TYPICAL.source.steps),
        coverage=CoverageInfo(0.5, {EVIL: 1}, {EVIL: 2}, 0.1, 0.1),
    ),
    ledger=(LedgerRow(EVIL, EVIL, EVIL, 1.0, 1.0, (LedgerPlace(EVIL, EVIL, 3, 1.0),)),),
    unexplained=(LedgerRow(EVIL, EVIL, "host", 1.0, 1.0, (LedgerPlace(EVIL, EVIL, 3, 1.0),)),),
    leads=(replace(TYPICAL.leads[0], pattern=EVIL, fix=Fix("", "", (SourceLine(EVIL, 1, EVIL),))),),
    findings=(
        replace(
            TYPICAL.findings[0],
            id=EVIL,
            pattern=EVIL,
            explanation=EVIL,
            assumes=EVIL,
            fix=Fix(EVIL, EVIL, (SourceLine(EVIL, 1, EVIL),)),
            evidence={EVIL: EVIL, EVIL + "2": {"value": EVIL, "unit": EVIL, "rest": EVIL}},
            candidates=(Candidate(EVIL, 0.5),),
            excerpt=replace(
                EXCERPT,
                names=(EVIL,) * 4,
                tracks=tuple(replace(track, label=EVIL) for track in EXCERPT.tracks),
            ),
        ),
    ),
    not_checked=(NotChecked(EVIL, EVIL, EVIL),),
    top_kernels=(TopEvent(EVIL, 1, 1.0, 1.0, EVIL, 1.0, 1.0, 1.0, EVIL),),
    top_ops=(TopEvent(EVIL, 1, 1.0, 1.0, EVIL, 1.0, 1.0, 1.0, EVIL),),
    warnings=(EVIL,),
)
HOSTILE_NOT_ANALYZABLE = replace(HOSTILE, analyzable=False, why_not=EVIL, record_instead=EVIL)
