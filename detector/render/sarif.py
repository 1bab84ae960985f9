"""SARIF 2.1.0, for code scanning: a rule per pattern, a result per finding.

Leads are no results: who fails a build on a result wants one that is likelier than not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import quote

from detector.patterns import PATTERNS, Pattern
from detector.render import wording
from detector.render.clean import clean
from detector.report import Finding, Report, SourceLine
from detector.taxonomy import UNCLEAR, Severity

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


def render(report: Report) -> str:
    """One trace as one run."""
    return render_all([report])


def render_all(reports: Sequence[Report]) -> str:
    """Several traces, a run each."""
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(report) for report in reports]}
    return json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _run(report: Report) -> Json:
    rules = [*map(_rule, PATTERNS), _unclear_rule()]
    driver: Json = {"name": "trace-antipattern-detector", "rules": rules}
    if report.tool.version:
        driver["version"] = clean(report.tool.version)
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"{_uri(report.source.path)}/"},
        "artifacts": [{"location": {"uri": _uri(report.source.path)}, "roles": ["analysisTarget"]}],
        "invocations": [
            {
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
        ],
        "results": [_result(report, finding) for finding in wording.findings(report)],
        "columnKind": "unicodeCodePoints",
    }


def _notifications(report: Report) -> list[Json]:
    why = f"{wording.verdict(report)} {wording.record_instead(report)}".rstrip()
    fatal: list[Json] = [] if report.analyzable else [{"level": "error", "message": {"text": why}}]
    return fatal + [
        {"level": "warning", "message": {"text": clean(text, 2000)}} for text in report.warnings
    ]


def _rule(pattern: Pattern) -> Json:
    text = f"{pattern.fix}\n\n{pattern.code}\n\nIn the trace: {pattern.look}"
    markdown = f"{pattern.fix}\n\n```python\n{pattern.code}\n```\n\nIn the trace: {pattern.look}"
    return {
        "id": pattern.id,
        "name": "".join(word.capitalize() for word in pattern.id.split("-")),
        "shortDescription": {"text": pattern.title},
        "fullDescription": {"text": pattern.what},
        "help": {"text": text, "markdown": markdown},
        "defaultConfiguration": {"level": "warning"},
        "properties": {"tags": ["performance", "pytorch", pattern.side]},
    }


def _unclear_rule() -> Json:
    what = "Windows that look suspicious and that no judge could name."
    return {"id": UNCLEAR, "name": "Unclear", "shortDescription": {"text": what}}


def _result(report: Report, finding: Finding) -> Json:
    unclear = finding.pattern == UNCLEAR
    result: Json = {
        "ruleId": clean(finding.pattern),
        # a result that is no failure has, by the standard, no level
        "kind": "review" if unclear else "fail",
        "level": "none" if unclear else _LEVELS[finding.severity],
        "message": {"text": _message(report, finding)},
        "locations": _locations(report, finding),
        "partialFingerprints": {"findingId/v1": clean(finding.id)},
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
        },
    }
    index = _RULE_INDEX.get(finding.pattern, len(PATTERNS) if unclear else None)
    return result if index is None else {**result, "ruleIndex": index}


def _message(report: Report, finding: Finding) -> str:
    parts = [
        f"{wording.title(finding)}: estimated savings {wording.savings(finding)}"
        f" ({wording.confidence(finding.confidence)}).",
        f"{wording.when(report, finding)}.".capitalize(),
        clean(finding.explanation, 2000),
        clean(finding.fix.summary, 1000),
    ]
    return " ".join(part for part in parts if part)


def _locations(report: Report, finding: Finding) -> list[Json]:
    """The lines of the program where they are known, else the trace itself."""
    lines = [_line(line) for line in finding.fix.where if line.file]
    return lines or [{"physicalLocation": {"artifactLocation": _trace(report)}}]


def _line(line: SourceLine) -> Json:
    place: Json = {"artifactLocation": {"uri": _uri(line.file)}}
    if line.line >= 1:
        place["region"] = {"startLine": line.line}
    location: Json = {"physicalLocation": place}
    if line.function:
        name = clean(line.function)
        location["logicalLocations"] = [{"name": name, "kind": "function"}]
    return location


def _trace(report: Report) -> Json:
    return {"uri": _uri(report.source.path), "index": 0}


def _uri(path: str) -> str:
    """A file as SARIF wants it: percent-encoded, absolute ones with their scheme."""
    windows = PureWindowsPath(path)
    if windows.drive and windows.root:
        return "file:///" + quote(windows.as_posix(), safe="/:")
    quoted = quote(path.encode("utf-8", "replace"), safe="/")
    return f"file://{quoted}" if PurePosixPath(path).is_absolute() else quoted
