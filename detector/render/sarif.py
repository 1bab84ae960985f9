"""SARIF 2.1.0, for code scanning: a rule per pattern, a result per finding."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import quote

from detector.render import wording
from detector.report import Finding, Report, SourceLine
from detector.taxonomy import PATTERNS, UNCLEAR, Pattern, Severity

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: dict[Severity, str] = {
    "critical": "error",
    "warning": "warning",
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
        driver["version"] = wording.clean(report.tool.version)
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"{_uri(report.source.path)}/"},
        "artifacts": [{"location": {"uri": _uri(report.source.path)}, "roles": ["analysisTarget"]}],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": wording.clean(text, 2000)}}
                    for text in report.warnings
                ],
                "toolConfigurationNotifications": [
                    {
                        "level": "note",
                        "associatedRule": {"id": wording.clean(row.pattern)},
                        "message": {"text": f"not checked: {wording.clean(row.because)}"},
                    }
                    for row in report.not_checked
                ],
            }
        ],
        "results": [_result(report, finding) for finding in wording.by_cost(report)],
        "columnKind": "unicodeCodePoints",
    }


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
        "ruleId": wording.clean(finding.pattern),
        # a result that is no failure has, by the standard, no level
        "kind": "review" if unclear else "fail",
        "level": "none" if unclear else _LEVELS[finding.severity],
        "message": {"text": _message(report, finding)},
        "locations": _locations(report, finding),
        "partialFingerprints": {"findingId/v1": wording.clean(finding.id)},
        "rank": 100 * min(max(finding.share, 0.0), 1.0),
        "properties": {
            "severity": finding.severity,
            "confidence": finding.confidence,
            "recoverable_us": finding.recoverable_us,
            "share": finding.share,
            "start_us": finding.start_us,
            "end_us": finding.end_us,
        },
    }
    index = _RULE_INDEX.get(finding.pattern, len(PATTERNS) if unclear else None)
    return result if index is None else {**result, "ruleIndex": index}


def _message(report: Report, finding: Finding) -> str:
    parts = [
        f"{wording.title(finding)}: {wording.gain(finding)} could come back"
        f" ({wording.confidence(finding.confidence)}).",
        f"{wording.when(report, finding)}.".capitalize(),
        wording.clean(finding.explanation, 2000),
        wording.clean(finding.fix.summary, 1000),
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
        name = wording.clean(line.function)
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
