"""Answers from a file, keyed by the evidence: for tests, goldens and repeatable reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from detector.errors import JudgeError
from detector.evidence import Evidence
from detector.judge import Answers, Judge, Verdict, feedback
from detector.taxonomy import NONE, UNCLEAR


def key(evidence: Evidence) -> str:
    """A short hash of what a judge would see."""
    return hashlib.sha256(evidence.text(10_000).encode()).hexdigest()[:16]


class RecordedJudge:
    """Answers from ``path``. Raises JudgeError when the file is no record of answers.

    With ``source`` what the file lacks is asked there and added to it; without, it is unclear.
    """

    names_more = True

    def __init__(self, path: str | Path, source: Judge | None = None) -> None:
        self.path, self.source = Path(path), source
        self.name = f"recorded {self.path.name}"
        self._known = _read(self.path, missing_ok=source is not None)

    def judge(self, evidence: Sequence[Evidence]) -> Answers:
        """See ``Judge``."""
        fresh, warnings = self._ask([one for one in evidence if key(one) not in self._known])
        verdicts = tuple(self._one(one, fresh) for one in evidence)
        unknown = sum(key(one) not in self._known and key(one) not in fresh for one in evidence)
        if unknown:
            warnings = (*warnings, f"{self.path.name} holds no answer for {unknown} regions")
        return Answers(verdicts, warnings)

    def _ask(self, missing: Sequence[Evidence]) -> tuple[dict[str, Verdict], tuple[str, ...]]:
        if self.source is None or not missing:
            return {}, ()
        answers = self.source.judge(missing)
        fresh = dict(zip(map(key, missing), answers.verdicts, strict=True))
        if not answers.warnings:  # what a broken server made unclear is not worth keeping
            self._known = {**self._known, **fresh}
            _write(self.path, self._known)
        return fresh, answers.warnings

    def _one(self, evidence: Evidence, fresh: dict[str, Verdict]) -> Verdict:
        found = self._known.get(key(evidence)) or fresh.get(key(evidence))
        if found is None:
            return feedback.unclear(evidence, "no recorded answer")
        # An answer recorded from an older taxonomy may name what this trace cannot show.
        if found.pattern in evidence.visible or found.pattern in (NONE, UNCLEAR):
            return found
        return feedback.unclear(evidence, "the recorded answer does not fit this trace")


def _read(path: Path, *, missing_ok: bool) -> dict[str, Verdict]:
    if missing_ok and not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Verdict])
    except OSError as error:
        raise JudgeError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise JudgeError(f"{path}: not a record of answers: {error}") from error


def _write(path: Path, known: dict[str, Verdict]) -> None:
    """Complete or not at all."""
    plain = msgspec.to_builtins(dict(sorted(known.items())))
    partial = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial.write_text(json.dumps(plain, indent=1) + "\n", "utf-8")
    partial.replace(path)
