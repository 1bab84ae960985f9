"""SARIF 2.1.0, for code scanning: a rule per pattern, a result per finding.

Leads are no results: who fails a build on a result wants one that is likelier than not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import quote

from detector.patterns import PATTERNS, Pattern
from detector.render import addresses, pattern_page, wording
from detector.render.clean import clean
from detector.report import Finding, Report, SourceLine
from detector.taxonomy import Severity
from detector.units import plural

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: dict[Severity, str] = {
    "critical": "error",
    "high": "error",
    "medium": "warning",
    "low": "note",
    "info": "note",
}
_RULE_INDEX = {pattern.id: i for i, pattern in enumerate(PATTERNS)}

Json = dict[str, object]


def render(reports: Sequence[Report]) -> str:
    """Several traces as one run: code scanning takes one run of a tool for each upload.

    What several traces show is one result: the largest of them, with the number of traces.
    """
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(reports)]}
    return json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _run(reports: Sequence[Report]) -> Json:
    shown = {f.pattern for report in reports for f in wording.findings(report)}
    rules = [_rule(pattern, whole=pattern.id in shown) for pattern in PATTERNS]
    driver: Json = {"name": "trace-scan", "rules": rules}
    if version := next((report.tool.version for report in reports if report.tool.version), ""):
        driver["version"] = clean(version)
    return {
        "tool": {"driver": driver},
        # the same in every run, so that a later upload replaces this one
        "automationDetails": {"id": "trace-scan/"},
        "artifacts": [
            {"location": {"uri": _uri(report.source.path)}, "roles": ["analysisTarget"]}
            for report in reports
        ],
        "invocations": [_invocation(report) for report in reports],
        "results": [_result(*same) for same in _each_once(reports)],
        "columnKind": "unicodeCodePoints",
    }


def _invocation(report: Report) -> Json:
    return {
        # no result of a trace that cannot be analyzed does not mean that it is clean
        "executionSuccessful": report.analyzable,
        "toolExecutionNotifications": _notifications(report),
        "toolConfigurationNotifications": [
            {
                "level": "note",
                "associatedRule": {"id": clean(row.pattern)},
                "message": {"text": f"not checked: {clean(row.because)}"},
            }
            for row in report.not_checked
        ],
    }


def _notifications(report: Report) -> list[Json]:
    why = f"{wording.verdict(report)} {wording.record_instead(report)}".rstrip()
    fatal: list[Json] = [] if report.analyzable else [{"level": "error", "message": {"text": why}}]
    return fatal + [
        {"level": "warning", "message": {"text": clean(text, 2000)}} for text in report.warnings
    ]


def _rule(pattern: Pattern, *, whole: bool) -> Json:
    """``whole``: with its page, which only a rule with results is worth."""
    text = f"{pattern.fix}\n\n{pattern.code}\n\nIn the trace: {pattern.look}"
    short = f"{pattern.fix}\n\n```python\n{pattern.code}\n```\n\nIn the trace: {pattern.look}"
    markdown = pattern_page.page(pattern, linked=False) if whole else short
    rule: Json = {
        "id": pattern.id,
        "name": "".join(word.capitalize() for word in pattern.id.split("-")),
        "shortDescription": {"text": pattern.title},
        "fullDescription": {"text": pattern.what},
        "help": {"text": text, "markdown": markdown},
        "defaultConfiguration": {"level": "warning"},
        "properties": {"tags": ["performance", "pytorch", pattern.side]},
    }
    address = addresses.page_of(pattern.id)
    return {**rule, "helpUri": address} if address else rule


Found = tuple[int, Report, Finding]  # a finding, its report and the place of that in the list


def _each_once(reports: Sequence[Report]) -> list[tuple[list[Found], Sequence[Report]]]:
    """The findings by id, in the order they are first met; of each the largest comes first."""
    found: dict[str, list[Found]] = {}
    for number, report in enumerate(reports):
        for finding in wording.findings(report):
            found.setdefault(finding.id, []).append((number, report, finding))
    for same in found.values():
        same.sort(key=lambda item: -item[2].estimated_savings_us)
    return [(same, reports) for same in found.values()]


def _result(same: Sequence[Found], reports: Sequence[Report]) -> Json:
    number, report, finding = same[0]
    result: Json = {
        "ruleId": clean(finding.pattern),
        "kind": "fail",
        "level": _LEVELS[finding.severity],
        "message": {"text": _message(report, finding, len(same) if len(reports) > 1 else 0)},
        "locations": _locations(report, number, finding),
        "partialFingerprints": {"findingId/v1": clean(finding.id)},
        "occurrenceCount": len(same),
        "rank": 100 * min(max(finding.share, 0.0), 1.0),
        "properties": {
            "severity": finding.severity,
            "confidence": finding.confidence,
            "kind": finding.kind,
            "estimated_savings_us": finding.estimated_savings_us,
            "savings_range_us": list(finding.savings_range_us),
            "share": finding.share,
            "start_us": finding.start_us,
            "end_us": finding.end_us,
            "traces": [clean(other.source.path) for _, other, _ in same],
        },
    }
    index = _RULE_INDEX.get(finding.pattern)
    return result if index is None else {**result, "ruleIndex": index}


def _message(report: Report, finding: Finding, traces: int) -> str:
    parts = [
        f"{wording.title(finding)}: estimated savings {wording.savings(finding)}"
        f" ({wording.confidence(finding.confidence)}).",
        f"In {plural(traces, 'trace')}." if traces else "",
        f"{wording.when(report, finding)}.".capitalize(),
        clean(finding.explanation, 2000),
        clean(finding.fix.summary, 1000),
    ]
    return " ".join(part for part in parts if part)


def _locations(report: Report, number: int, finding: Finding) -> list[Json]:
    """The lines of the program where they are known, else the trace itself, at its first line:
    code scanning shows no result without a line."""
    lines = [_line(line) for line in finding.fix.where if line.file]
    trace = {"uri": _uri(report.source.path), "index": number}
    place = {"artifactLocation": trace, "region": {"startLine": 1}}
    return lines or [{"physicalLocation": place}]


def _line(line: SourceLine) -> Json:
    place: Json = {
        "artifactLocation": {"uri": _uri(line.file)},
        "region": {"startLine": max(line.line, 1)},
    }
    location: Json = {"physicalLocation": place}
    if line.function:
        name = clean(line.function)
        location["logicalLocations"] = [{"name": name, "kind": "function"}]
    return location


def _uri(path: str) -> str:
    """A file as SARIF wants it: percent-encoded, absolute ones with their scheme."""
    windows = PureWindowsPath(path)
    if windows.drive and windows.root:
        return "file:///" + quote(windows.as_posix(), safe="/:")
    quoted = quote(path.encode("utf-8", "replace"), safe="/")
    return f"file://{quoted}" if PurePosixPath(path).is_absolute() else quoted
