"""How every renderer says the same thing: titles, savings, steps, the lines above the findings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from detector.patterns import BY_ID
from detector.render.clean import clean
from detector.render.ledger import has_device, place
from detector.report import (
    Finding,
    LedgerPlace,
    LedgerRow,
    NotChecked,
    Report,
    SourceLine,
    occurrences,
)
from detector.report.events import TopEvent
from detector.report.job import Job
from detector.taxonomy import NONE
from detector.units import duration, percent, plural, rounded, size

LEDGER = "Where the analyzed time went"
LEADS = "Leads, less likely than not"
UNSIZED = "Named by the language model alone; no replay says that it saves time here"
UNEXPLAINED = "Not explained by a finding"
_MEMORY = "memory bandwidth"
_SHARED = 0.3  # of the estimated savings: where the least is less, other repairs save most of it
_LINKED = 0.95  # of the GPU's events that link to a launch
_WHOLE = 0.95  # of the analyzed time: nothing saves that, so no end of a range is given
_WIDE = 0.1  # of the estimated savings: a range that is narrower is not worth a word


def confidence(value: float) -> str:
    """Words and the number; the words never stand alone."""
    word = "high" if value >= 0.85 else "fair" if value >= 0.6 else "low"
    return f"{word} confidence ({value:.2f})"


def title(finding: Finding) -> str:
    """What the finding is called."""
    pattern = BY_ID.get(finding.pattern)
    return pattern.title if pattern else clean(finding.pattern)


def nature(report: Report, finding: Finding) -> str:
    """Fault or opportunity, whose side it is on, and how sure the judge is."""
    side = "host side" if finding.side == "cpu" else "GPU side"
    parts = [finding.kind, *([side] if has_device(report) else [])]
    if report.job is not None and finding.ranks:
        parts.append(on_ranks(report.job, finding))
    return ", ".join([*parts, confidence(finding.confidence)])


def on_ranks(job: Job, finding: Finding) -> str:
    """``on all 8 ranks``, ``on rank 3 alone``, ``on ranks 0, 3 and 5``."""
    if len(finding.ranks) == len(job.ranks):
        return f"on all {len(job.ranks)} ranks"
    if len(finding.ranks) == 1:
        return f"on rank {finding.ranks[0]} alone"
    listed = sorted(finding.ranks)
    shown = ", ".join(map(str, listed[:8]))
    more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
    return f"on ranks {shown}{more}"


def candidates(finding: Finding, most: int = 3) -> str:
    """The patterns that were considered, likeliest first."""
    ranked = sorted(finding.candidates, key=lambda c: -c.probability)[:most]
    likely = [c for c in ranked if c.probability >= 0.05] or ranked[:1]
    names = ["no fault" if c.pattern == NONE else clean(c.pattern) for c in likely]
    return ", ".join(f"{n} {c.probability:.2f}" for n, c in zip(names, likely, strict=True))


def source_line(line: SourceLine, limit: int = 62) -> str:
    """``…/package/train.py:41 train_step``; a long path loses its beginning."""
    where = f"{clean(line.file, 4096)}:{line.line}"
    if len(where) > limit:
        where = "…" + where[-(limit - 1) :]
    return f"{where} {clean(line.function, limit)}".rstrip()


def steps(report: Report, indices: Sequence[int]) -> str:
    """The names of these steps, a run of them as first–last; empty where there are none."""
    known = sorted({i for i in indices if 0 <= i < len(report.source.steps)})
    names = [clean(report.source.steps[i].name, 60) for i in known]
    if not names:
        return ""
    if len(names) == 1:
        return names[0]
    if known[-1] - known[0] + 1 != len(known):
        return f"{len(names)} of {len(report.source.steps)} steps, {names[0]} first"
    return _run(names[0], names[-1])


def _run(first: str, last: str) -> str:
    a, b = re.fullmatch(r"(.*?)(\d+)", first), re.fullmatch(r"(.*?)(\d+)", last)
    if a and b and a[1] == b[1]:
        return f"{a[1]}{a[2]}–{b[2]}"
    return f"{first} … {last}"


def when(report: Report, finding: Finding) -> str:
    """How often, in which steps, and the span from the start of the trace."""
    zero = report.source.span_us[0]
    often = _often(finding)
    named = steps(report, finding.steps)
    inside = f" in {named}" if named else ""
    if not often:
        often, inside = (f"throughout {named}", "") if named else ("many times", "")
    if report.job is not None and finding.ranks and finding.ranks[0] != report.job.reference:
        return f"{often}{inside}, on rank {finding.ranks[0]}"  # another trace's axis
    start = max(finding.start_us - zero, 0.0)  # of a job: another rank may be earlier
    span = f"{duration(start)} to {duration(finding.end_us - zero)}"
    return f"{often}{inside}, {span} into the trace"


def _often(finding: Finding) -> str:
    """``6 times``, ``1,495 kernels``; empty where the number would tell nothing."""
    count = max(finding.occurrences, len(occurrences(finding)))
    if count == 1:
        return "once"
    pattern = BY_ID.get(finding.pattern)
    noun = pattern.counted if pattern else "times"
    return f"{count:,} {noun}" if noun else ""


def facts(report: Report) -> str:
    """What was read, on one line: size, events, kernels, devices, rank."""
    s = report.source
    parts = [size(s.bytes), plural(s.events, "event"), plural(s.kernels, "kernel")]
    parts += [clean(d, 60) for d in s.devices[:2]]
    parts += [f"and {len(s.devices) - 2} more devices"] if len(s.devices) > 2 else []
    parts += [f"rank {s.rank}"] if s.rank is not None else []
    return " · ".join(parts)


def extent(report: Report) -> str:
    """Steps and analyzed time, on one line."""
    whole = report.summary.trace_us or report.source.span_us[1] - report.source.span_us[0]
    analyzed = f"analyzed {duration(report.summary.analyzed_us)} of {duration(whole)}"
    count = len(report.source.steps)
    named = steps(report, range(count))
    return f"{plural(count, 'step')} ({named}) · {analyzed}" if count else f"no steps · {analyzed}"


def coverage(report: Report) -> list[str]:
    """What is odd about what was read; empty when nothing is."""
    c, out = report.source.coverage, []
    if c.read_fraction < 1:
        out.append(f"{percent(c.read_fraction)} of what the file holds could be read")
    for what, counts in (("repaired", c.repaired), ("left out", c.dropped)):
        if counts:
            out.append(f"{what}: {_counts(counts)}")
    if report.source.kernels and c.kernels_with_op < _LINKED * c.kernels_with_launch:
        out.append(f"{rounded(c.kernels_with_op)} of the GPU's events link to an op")
    return out


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{clean(why, 80)} {n:,}" for why, n in counts.items())


def not_checked(report: Report, most: int = 4) -> list[tuple[str, str]]:
    """(cause, patterns) for each cause; long lists name the first ``most``.

    Empty where nothing at all was checked: the verdict says why.
    """
    by_cause: dict[str, list[str]] = {}
    for row in report.not_checked if report.analyzable else ():
        by_cause.setdefault(cause(row), []).append(clean(row.pattern, 60))
    return [
        (cause, ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else ""))
        for cause, ids in by_cause.items()
    ]


def cause(row: NotChecked) -> str:
    """Why a pattern was not checked, as ``not_checked`` groups by it."""
    return clean(row.because)


def first_sentence(text: str) -> tuple[str, str]:
    """The first sentence of an explanation, and the rest of it."""
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z])", text.strip(), maxsplit=1)
    return parts[0], parts[1] if len(parts) > 1 else ""


def verdict(report: Report) -> str:
    """The line above the findings, or instead of them: what was found, and in how much."""
    if not report.analyzable:
        return f"Cannot be analyzed: {_inside(report.why_not or 'no reason given')}."
    checked = len(BY_ID) - len({row.pattern for row in report.not_checked} & set(BY_ID))
    tail = f"{_apart(report)}; {checked} of {len(BY_ID)} patterns checked."
    count = len(report.findings)
    if not count:
        return f"No finding above 1 % of the analyzed time{tail}"
    s = report.summary
    share = s.estimated_savings_us / s.analyzed_us if s.analyzed_us else 0.0
    saved = f"{duration(s.estimated_savings_us)} of {duration(s.analyzed_us)} ({rounded(share)})"
    return f"{plural(count, 'finding')}: estimated savings {saved}{tail}"


def bound(report: Report) -> str:
    """What bounds a trace without a finding, and how far it is from computing all the time."""
    if not report.analyzable or report.findings or not report.ledger:
        return ""
    largest = max(report.ledger, key=lambda row: row.us)
    busy = sum(row.share for row in report.ledger if row.group == "busy")
    device, work, ranked = "CPU", "ops", report.top_ops
    if has_device(report):
        device, work, ranked = "GPU", "kernels", report.top_kernels
    most = f", most in {place(largest.where[0])}" if largest.where else ""
    label = clean(largest.label or largest.cause, 80).removeprefix(f"{device} busy: ")
    parts = [f"Bound by {label}, {rounded(largest.share)} of the time{most}."]
    if busy < 0.005:
        return f"{parts[0]} The {device} computes nothing."
    if largest.group != "busy":
        parts.append(f"The {device} computes {rounded(busy)} of the time.")
    left = max(1 - busy, 0.0)
    most_left = f"At most {rounded(left)}" if left >= 0.005 else "Nothing"
    parts.append(f"{most_left} can be saved without faster {work}.")
    if ranked and (speed := reached(ranked[0])):
        parts.append(f"The heaviest, {clean(ranked[0].name, 60)}, reaches {speed}.")
    return " ".join(parts)


def _apart(report: Report) -> str:
    """What else the report lists."""
    return f"; {plural(len(report.leads), 'lead')}" if report.leads else ""


def reached(row: TopEvent) -> str:
    """``632 TFLOP/s, 64 % of the bf16 peak``; ``1,857 GB/s, 55 % of the memory's``; empty where
    shapes do not tell."""
    if not row.gb_per_s:
        return ""
    computes = row.tflop_per_s and row.limit != _MEMORY
    figure = _rate(row.tflop_per_s) if computes else f"{row.gb_per_s:,.0f} GB/s"
    of = "memory" if row.limit == _MEMORY else clean(row.limit.removesuffix(" arithmetic"), 20)
    if not of:
        return figure
    if row.peak_share > 1:
        return f"{figure}, above {of} peak"
    return f"{figure}, {rounded(row.peak_share)} of {of} peak"


def shapes(row: TopEvent) -> str:
    """``[32, 256, 14, 14], [1024, 256, 1, 1]``: the inputs that are tensors with dimensions."""
    return ", ".join(re.findall(r"\[\d[\d, ]*\]", row.shapes))


def _rate(tflop_per_s: float) -> str:
    if tflop_per_s < 1:
        return f"{1000 * tflop_per_s:,.0f} GFLOP/s"
    return f"{tflop_per_s:,.1f} TFLOP/s" if tflop_per_s < 100 else f"{tflop_per_s:,.0f} TFLOP/s"


def peaks(report: Report) -> str:
    """The peaks that the tables compare with, and where they stand; empty where there are none."""
    rows = (*report.top_kernels, *report.top_ops)
    if not any(row.gb_per_s for row in rows):
        return ""
    counted = "Rates take the recorded shapes, each input and output moved once, and no masks."
    if any(row.peak_share > 1 for row in rows):
        counted += " Above a peak: caches, or an algorithm with fewer operations (Winograd)."
    if (p := report.peaks) is None:
        return counted
    types = {"fp32": p.fp32_tflop_per_s, "TF32": p.tf32_tflop_per_s, "fp16": p.fp16_tflop_per_s,
             "bf16": p.bf16_tflop_per_s}  # fmt: skip
    figures = [f"{peak:g} TFLOP/s {name}" for name, peak in types.items() if peak]
    figures.append(f"{p.bandwidth_gb_per_s:,.0f} GB/s memory")
    return f"{counted} Peaks by the data sheet: {', '.join(figures)} ({clean(p.source, 200)})."


def record_instead(report: Report) -> str:
    """What to record where a trace cannot be analyzed; empty otherwise."""
    wanted = None if report.analyzable else report.record_instead
    return f"Instead: {_inside(wanted)}." if wanted else ""


def _inside(sentence: str) -> str:
    """A sentence as part of another: no capital at its start, unless of an acronym, no stop."""
    text = clean(sentence, 1000).rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def findings(report: Report) -> list[Finding]:
    """The findings to show, the largest savings first; none where the trace cannot be analyzed."""
    return by_savings(report.findings) if report.analyzable else []


def by_savings(found: Sequence[Finding]) -> list[Finding]:
    """The largest estimated savings first, by their share: ranks of a job take unlike long."""
    return sorted(found, key=lambda f: (-f.share, f.start_us, f.pattern))


def savings(finding: Finding) -> str:
    """``30.2 ms (31 %)``."""
    return f"{duration(finding.estimated_savings_us)} ({rounded(finding.share)})"


def savings_range(finding: Finding) -> str:
    """What is likely saved, and how much of it other findings save too."""
    (low, high), best = finding.savings_range_us, finding.estimated_savings_us
    if high - low <= _WIDE * best:
        return ""
    everything = best / finding.share if finding.share else high + 1.0  # the analyzed time
    end = f"to {duration(high)}" if high < _WHOLE * everything else "or more"
    likely = f"likely {duration(low)} {end}"
    if low >= _SHARED * best:
        return likely
    much = "almost all" if low < _WIDE * best else "most"
    if 0 < finding.savings_alone_us < _SHARED * best:
        return f"{likely}; {much} of it only once other findings or leads are repaired"
    return f"{likely}; {much} of it overlaps with other findings or leads"


def one_line(finding: Finding) -> str:
    """``PATTERN: critical, saves 31 ms (33 %), data.py:109 decode_picture``."""
    where = _at(finding)
    return f"{clean(finding.pattern)}: {finding.severity}, saves {savings(finding)}{where}"


def _at(finding: Finding) -> str:
    """``, data.py:109 decode_picture``; empty without a source line."""
    at = finding.fix.where[0] if finding.fix.where else None
    return f", {place(LedgerPlace(at.function, at.file, at.line))}" if at else ""


def leads(report: Report) -> list[tuple[str, str, str]]:
    """(title, pattern, the rest of the line) of each lead, the largest savings first."""
    return [
        (title(lead), clean(lead.pattern), _lead(lead))
        for lead in (by_savings(report.leads) if report.analyzable else [])
    ]


def _lead(lead: Finding) -> str:
    return f"saves {savings(lead)}, confidence {lead.confidence:.2f}{_at(lead)}"


def unsized(report: Report) -> list[tuple[str, str, str]]:
    """(title, pattern, the rest of the line) of what a model names beside the candidates."""
    begun = report.source.span_us[0]
    return [
        (
            BY_ID[one.pattern].title if one.pattern in BY_ID else clean(one.pattern),
            clean(one.pattern),
            f"{duration(one.start_us - begun)} into the trace, confidence {one.confidence:.2f}:"
            f" {first_sentence(clean(one.explanation, 1000))[0]}",
        )
        for one in report.judging.unsized
    ]


def unexplained(report: Report) -> list[str]:
    """``21 % of the time (20.1 ms): host: framework Python, most in layers.py:95 forward``."""
    return [_lost(row) for row in report.unexplained] if report.analyzable else []


def _lost(row: LedgerRow) -> str:
    most = f", most in {place(row.where[0])}" if row.where else ""
    label = clean(row.label or row.cause, 80).removeprefix("unexplained: ")
    return f"{rounded(row.share)} of the time ({duration(row.us)}): {label}{most}"


def shared_folder(labels: Sequence[str]) -> str:
    """The folder that all of these lie in, with its last separator; empty without one."""
    common = os.path.commonprefix(labels)  # noqa: RUF071 - separators of either system
    return common[: max(common.rfind("/"), common.rfind("\\")) + 1]
