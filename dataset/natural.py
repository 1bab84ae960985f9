"""Natural traces: files that others published, and what is wrong in them, told by hand.

One JSON file a trace in ``natural_labels``: whose trace it is (sha256 and public source), and what
was seen where, each with its reason. The traces stay where they are; a folder's files are matched
by sha256, whatever their names. A test split of their own: nothing is ever trained on them.

Spans are µs on the trace file's own ``ts`` axis. ``unknown`` marks time about which somebody looked
and could not tell; ``healthy`` time that looks suspicious and is not. What neither names was looked
at as well and found sound.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dataset.labels import UNKNOWN, Label, LabelError, LabelRegion, checked

LABELS: Final = Path(__file__).with_name("natural_labels")
SUFFIXES: Final = (".json.gz", ".json")


@dataclass(frozen=True)
class Source:
    """Where a trace is published."""

    repository: str  # owner/name on GitHub
    path: str  # inside the repository; "archive!member" for a file in an archive
    commit: str
    licence: str


@dataclass(frozen=True)
class Verdict:
    """What somebody saw in some spans of a trace, and why they say so."""

    side: str
    reason: str
    spans_us: tuple[tuple[float, float], ...]
    pattern: str = ""  # of the taxonomy, or ``UNKNOWN``; empty for a healthy span


@dataclass(frozen=True)
class Natural:
    """A hand-written label file."""

    name: str
    sha256: str
    source: Source
    labeller: str
    date: str
    remark: str
    regions: tuple[Verdict, ...]
    healthy: tuple[Verdict, ...]
    label: Label


def natural(folder: str | Path) -> Iterator[tuple[Path, Label]]:
    """The trace files below ``folder`` that have a label, by path, each with it."""
    known = {label.sha256: label for label in read_all()}
    for path in sorted(p for p in Path(folder).rglob("*") if p.name.endswith(SUFFIXES)):
        if path.is_file() and (found := known.get(sha256(path))):
            yield path, found.label


def read_all(folder: str | Path = LABELS) -> tuple[Natural, ...]:
    """All label files of a folder, by name; raises LabelError."""
    return tuple(read(path) for path in sorted(Path(folder).glob("*.json")))


def read(path: str | Path) -> Natural:
    """Read and check one label file; raises LabelError naming the file and the fault."""
    path = Path(path)
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        regions = tuple(_verdict(v) for v in raw["regions"])
        found = Natural(
            name=path.stem,
            sha256=raw["sha256"],
            source=Source(**raw["source"]),
            labeller=raw["labeller"],
            date=raw["date"],
            remark=raw["remark"],
            regions=regions,
            healthy=tuple(_verdict(v) for v in raw["healthy"]),
            label=_label(raw, regions),
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LabelError(f"{path}: {type(error).__name__}: {error}") from error
    checked(found.label, str(path))
    return found


def _verdict(raw: dict[str, Any]) -> Verdict:
    spans = tuple((float(start), float(end)) for start, end in raw.pop("spans_us"))
    return Verdict(**raw, spans_us=spans)


def _label(raw: dict[str, Any], verdicts: tuple[Verdict, ...]) -> Label:
    regions = tuple(
        LabelRegion(start, end, verdict.pattern, verdict.side)  # type: ignore[arg-type]
        for verdict in verdicts
        for start, end in verdict.spans_us
    )
    return Label(
        origin="natural",
        pair=f"natural-{raw['pair']}",
        workload=raw["workload"],
        device=raw["device"],
        framework=raw["framework"],
        seed=0,
        step_us=raw["step_us"],
        quality="bad" if any(v.pattern != UNKNOWN for v in verdicts) else "good",
        regions=tuple(sorted(regions, key=lambda r: (r.start_us, r.end_us, r.pattern))),
    )


def sha256(path: Path) -> str:
    """The file's sha256, as hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
