"""How every renderer says the same thing: units, names from the trace, steps, causes.

Names in a trace are untrusted. ``clean`` makes them harmless as text; each renderer escapes what
its own format gives a meaning to.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from detector.report import Finding, NotChecked, Report, SourceLine, Summary, occurrences
from detector.taxonomy import BY_ID, NONE, PATTERNS, UNCLEAR

LONGEST_NAME = 240
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: object, limit: int = LONGEST_NAME) -> str:
    """One line of visible characters: control codes, bidi marks and the like as ``\\x1b``."""
    out = str(text)[: limit + 1].replace("\n", " ").replace("\t", " ")
    if not out.isprintable():
        out = "".join(_visible(c) if unicodedata.category(c) in _HIDDEN else c for c in out)
    return out if len(out) <= limit else out[: limit - 1] + "…"


def _visible(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def clean_lines(text: str, most: int = 40) -> list[str]:
    """The lines of a piece of code, each cleaned; indentation kept."""
    lines = text.expandtabs(4).splitlines()
    return [clean(line) for line in lines[:most]] + (["…"] if len(lines) > most else [])


def duration(us: float) -> str:
    """µs as a person reads them: ``12.3 ms``."""
    for least, divisor, unit in ((1e6, 1e6, "s"), (1e3, 1e3, "ms"), (0.0, 1.0, "µs")):
        if abs(us) >= least:
            return f"{_digits(us / divisor)} {unit}"
    return f"{us} µs"  # not a number


def _digits(value: float) -> str:
    """Three digits, or all before the point: 1.23, 12.3, 123, 1,234."""
    if not value:
        return "0"
    after = next((n for n, least in ((0, 99.95), (1, 9.995), (2, 0.1)) if abs(value) >= least), 3)
    return f"{value:,.{after}f}" if abs(value) >= 0.001 else f"{value:.1g}"


def percent(share: float) -> str:
    """A share as per cent with one decimal: ``12.3 %``."""
    return f"{share * 100:.1f} %"


def size(count: float) -> str:
    """Bytes as a person reads them: ``5.4 MB``."""
    if abs(count) < 1000:
        return f"{count:.0f} B"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{_digits(count)} {unit}"
        count /= 1000
    return f"{_digits(count)} TB"


def plural(count: int, noun: str) -> str:
    """``1 event``, ``2,000 events``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def confidence(value: float) -> str:
    """Words and the number; the words never stand alone."""
    word = "high" if value >= 0.85 else "fair" if value >= 0.6 else "low"
    return f"{word} confidence ({value:.2f})"


def title(finding: Finding) -> str:
    """What the finding is called; an unclear one says so."""
    if finding.pattern == UNCLEAR:
        return "Suspicious, but the judge gave no clear answer"
    pattern = BY_ID.get(finding.pattern)
    return pattern.title if pattern else clean(finding.pattern)


def grade(finding: Finding) -> str:
    """The severity, or that there is none as nothing is clear."""
    return "unclear" if finding.pattern == UNCLEAR else finding.severity


SIDES = {"cpu": "host side", "gpu": "device side"}


def candidates(finding: Finding, most: int = 3) -> str:
    """The patterns that were considered, likeliest first."""
    ranked = sorted(finding.candidates, key=lambda c: -c.probability)[:most]
    likely = [c for c in ranked if c.probability >= 0.05] or ranked[:1]
    names = ["no fault" if c.pattern == NONE else clean(c.pattern) for c in likely]
    return ", ".join(f"{n} {c.probability:.2f}" for n, c in zip(names, likely, strict=True))


def place(line: SourceLine, limit: int = 62) -> str:
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
    count = max(finding.occurrences, len(occurrences(finding)))
    often = "once" if count == 1 else f"{count:,} times"
    named = steps(report, finding.steps)
    inside = f" in {named}" if named else ""
    span = f"{duration(finding.start_us - zero)} to {duration(finding.end_us - zero)}"
    return f"{often}{inside}, {span} into the trace"


@dataclass(frozen=True)
class Row:
    """One line of a table: what, how much, and beside what."""

    label: str
    value: str
    beside: str = ""


def evidence(finding: Finding, most: int = 8, *, everything: bool = False) -> list[Row]:
    """The numbers behind a finding: first those that its explanation names, then those that most
    exceed the rest of the trace; those that do not, only where ``everything`` is asked for.

    ``evidence`` holds ``{key: {"value", "unit", "rest"}}``, beside plain values.
    """
    measured = [
        (_label_of(key, value), value)
        for key, value in finding.evidence.items()
        if isinstance(value, Mapping) and value.get("value") is not None
    ]
    if not everything:
        measured = [(k, v) for k, v in measured if k in finding.explanation or _telling(v) > 0]
    measured.sort(key=lambda pair: (pair[0] not in finding.explanation, -_telling(pair[1])))
    rows = [_measured(key, value) for key, value in measured]
    rows += [
        Row(_label(key), quantity(key, value))
        for key, value in finding.evidence.items()
        if isinstance(value, str | int | float)
    ]
    return rows[:most]


def drivers(finding: Finding) -> str:
    """What spoke most for the region, in words; empty where the report does not say."""
    told = finding.evidence.get("drivers")
    return "; ".join(clean(str(one), 120) for one in told) if isinstance(told, list) else ""


def _telling(row: Mapping[str, object]) -> float:
    """How much a measure says: shares by what they exceed, others by their ratio; a lack, less."""
    value, rest = (x if isinstance(x, int | float) else 0.0 for x in _pair(row))
    more = value - rest
    far = more if row.get("unit") == "share" else 0.2 * more / max(abs(value), abs(rest), 1e-9)
    return far if far > 0 else -0.1 * far


def _pair(row: Mapping[str, object]) -> tuple[object, object]:
    return row.get("value"), row.get("rest")


def _measured(label: str, row: Mapping[str, object]) -> Row:
    unit = str(row.get("unit", ""))
    value, rest = _pair(row)
    beside = f"elsewhere {quantity(unit, rest)}" if rest is not None else ""
    return Row(clean(label, 80), quantity(unit, value), beside)


def _label_of(key: str, row: Mapping[str, object]) -> str:
    """What a measure is called: by the report itself, by the table of measures, or by its key."""
    return str(row.get("label") or _labels().get(key) or _label(key))


@lru_cache(maxsize=1)
def _labels() -> Mapping[str, str]:
    from detector.evidence.measures import MEASURES

    return {spec.key: spec.label for spec in MEASURES}


def _label(key: str) -> str:
    return clean(re.sub(r"_(us|ns|ms|share|bytes)$", "", key).replace("_", " "), 80)


def quantity(unit: str, value: object) -> str:
    """A value in the unit that ``unit`` is or ends with (``us``, ``wait_us``, ``share``)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        known = isinstance(value, Mapping | list | tuple)
        return clean(json.dumps(value, ensure_ascii=False, default=str) if known else value, 100)
    if isinstance(value, float) and not math.isfinite(value):
        return "unknown"
    kind = unit.rsplit("_", 1)[-1]
    scale = {"us": 1.0, "µs": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6}
    if kind in scale:
        return duration(value * scale[kind])
    if kind in ("share", "fraction", "%"):
        return percent(value / 100 if kind == "%" else value)
    if kind in ("bytes", "B", "MB"):
        return size(value * 1e6 if kind == "MB" else value)
    number = f"{value:,.0f}" if value == int(value) else _digits(value)
    plain = kind in ("", "count", "1", "ratio") or "_" in unit
    return number if plain else f"{number} {clean(unit, 20)}".rstrip()


def has_device(report: Report) -> bool:
    """Whether the trace shows any device work; without it the host itself is judged.

    A trace may name a device and still hold no record of it: then nothing that needs a device
    could be checked.
    """
    blind = {row.pattern for row in report.not_checked}
    if all(pattern.id in blind for pattern in PATTERNS if "device" in pattern.needs):
        return False
    return bool(report.source.kernels or report.source.devices)


def budget(report: Report) -> list[tuple[str, float, float]]:
    """Where the judged time went: (what, share, µs)."""
    s: Summary = report.summary
    who = "device" if has_device(report) else "host"
    rows = [
        (f"{who} busy", s.device_busy),
        ("copies that nothing hides", s.exposed_copy),
        ("collectives that nothing hides", s.exposed_comm),
        (f"{who} idle", s.device_idle),
    ]
    if not has_device(report):
        rows = [rows[0], rows[3]]
    return [(what, share, share * s.judged_us) for what, share in rows]


def facts(report: Report) -> str:
    """What was read, on one line: size, events, kernels, devices, rank."""
    s = report.source
    parts = [size(s.bytes), plural(s.events, "event"), plural(s.kernels, "kernel")]
    parts += [clean(d, 60) for d in s.devices[:2]]
    parts += [f"and {len(s.devices) - 2} more devices"] if len(s.devices) > 2 else []
    parts += [f"rank {s.rank}"] if s.rank is not None else []
    return " · ".join(parts)


def extent(report: Report) -> str:
    """Steps and judged time, on one line."""
    span = report.source.span_us[1] - report.source.span_us[0]
    judged = f"judged {duration(report.summary.judged_us)} of {duration(span)}"
    count = len(report.source.steps)
    named = steps(report, range(count))
    return f"{plural(count, 'step')} ({named}) · {judged}" if count else f"no step · {judged}"


def coverage(report: Report) -> list[str]:
    """What is odd about what was read; empty when nothing is."""
    c, out = report.source.coverage, []
    if c.read_fraction < 1:
        out.append(f"{percent(c.read_fraction)} of what the file holds could be read")
    out += [f"{what}: {_counts(of)}" for what, of in _mended(c.repaired, c.dropped) if of]
    if report.source.kernels and min(c.kernels_with_launch, c.kernels_with_op) < 0.995:
        launch, op = percent(c.kernels_with_launch), percent(c.kernels_with_op)
        out.append(f"{launch} of the device's events link to their launch, {op} to their op")
    return out


def _mended(
    repaired: Mapping[str, int], dropped: Mapping[str, int]
) -> Iterable[tuple[str, Mapping[str, int]]]:
    return (("repaired", repaired), ("left out", dropped))


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{clean(why, 80)} {n:,}" for why, n in counts.items())


def not_checked(rows: Sequence[NotChecked], most: int = 4) -> list[tuple[str, str]]:
    """(cause, patterns) for each cause; long lists name the first ``most``."""
    by_cause: dict[str, list[str]] = {}
    for row in rows:
        by_cause.setdefault(clean(row.because), []).append(clean(row.pattern, 60))
    return [
        (cause, ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else ""))
        for cause, ids in by_cause.items()
    ]


def verdict(report: Report) -> str:
    """The line above the findings, or instead of them: what was found, said honestly."""
    checked = len(BY_ID) - len({row.pattern for row in report.not_checked} & set(BY_ID))
    of = f"{checked} of {len(BY_ID)} patterns checked"
    certain = sum(f.pattern != UNCLEAR for f in report.findings)
    if not certain:
        also = "; what looks suspicious stays unclear" if report.findings else ""
        return f"No finding above 1 % of the judged time{also} ({of})."
    s = report.summary
    share = s.recoverable_us / s.judged_us if s.judged_us else 0.0
    back = f"{duration(s.recoverable_us)} of {duration(s.judged_us)} ({percent(share)})"
    unclear = len(report.findings) - certain
    also = f"; {unclear} more unclear" if unclear else ""
    return f"{plural(certain, 'finding')}: {back} could come back{also}; {of}."


def gain(finding: Finding) -> str:
    """The time a finding can give back, as time and share; an unclear one does not know."""
    if finding.pattern == UNCLEAR and not finding.recoverable_us:
        return "not known"
    return f"{duration(finding.recoverable_us)} ({percent(finding.share)})"


def by_cost(report: Report) -> list[Finding]:
    """The findings, the dearest first."""
    return sorted(report.findings, key=lambda f: (-f.recoverable_us, f.start_us, f.pattern))
