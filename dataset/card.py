"""The data set's card: what ``card.md`` says, with the figures of one build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

from dataset.publish import configurations
from dataset.splits import PARTS, SCHEMES, groups
from detector.features import COLUMNS
from detector.patterns import IDS

TEMPLATE: Final = Path(__file__).with_name("card.md")
ORIGINS: Final = ("recorded", "injected", "simulated", "natural")
SIZES: Final = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))
UNMEASURED: Final = "Not measured yet: `python -m dataset.realism FOLDER` writes the table here."

About = Mapping[str, Any]  # a trace in the manifest


def text(manifest: Mapping[str, Any], realism: str = UNMEASURED) -> str:
    """The card of a finished build. ``manifest``: what `build` writes; ``realism``: the table of
    `dataset.realism`."""
    traces: Sequence[About] = manifest["traces"]
    injected = [t for t in traces if t["origin"] == "injected" and t["patterns"]]
    windows = sum(t["windows"] for t in traces)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        size=next((word for most, word in SIZES if windows < most), "100K<n<1M"),
        configs="\n".join(_configs(manifest)),
        traces=len(traces),
        patterns=len({p for t in traces for p in t["patterns"]}),
        features=len(COLUMNS),
        tables=_table(_sizes(manifest["tables"])),
        origins=_table(_origins(traces)),
        every=sum(t["extent"] == "every" for t in injected),
        faulty=len(injected),
        schemes=_schemes(traces),
        counts=_by_pattern(traces),
        devices=_table(sorted(Counter(t["device"] for t in traces).items())),
        licences=_table(_licences(traces)),
        realism=realism,
    )


def _configs(manifest: Mapping[str, Any]) -> Iterable[str]:
    """The front matter's list of configurations, their parts and their files."""
    traces: Sequence[About] = manifest["traces"]
    found = groups({scheme: [t[scheme] for t in traces] for scheme in SCHEMES})
    for one in configurations(manifest["tables"], found):
        yield f"- config_name: {one.name}"
        yield from ["  default: true"] if one.name == "windows" else []
        yield "  data_files:"
        for part, files in one.files.items():
            yield f"  - split: {part}"
            yield "    path:"
            yield from (f"    - {file}" for file in files)


def _table(rows: Iterable[Sequence[object]]) -> str:
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def _sizes(tables: Mapping[str, Mapping[str, int]]) -> list[Sequence[object]]:
    meaning = {
        "traces": "a trace",
        "regions": "a labeled span",
        "windows": "a cut of a step",
        "candidates": "a pattern that the product would find",
        "evidence": "a place in a trace, as text",
    }
    return [(f"`{n}`", meaning[n], sum(parts.values())) for n, parts in tables.items()]


def _origins(traces: Sequence[About]) -> list[Sequence[object]]:
    meaning = {
        "recorded": "a real program ran, with and without a fault",
        "injected": "a real trace, a fault put in by replay",
        "simulated": "no device ran anything",
        "natural": "a real trace of others, labeled by hand",
    }
    found = []
    for origin in ORIGINS:
        mine = [t for t in traces if t["origin"] == origin]
        found.append((origin, meaning[origin], len(mine), sum(bool(t["patterns"]) for t in mine)))
    return found


def _schemes(traces: Sequence[About]) -> str:
    rows: list[Sequence[object]] = [("scheme", *PARTS), ("---",) * (len(PARTS) + 1)]
    for scheme in SCHEMES:
        count = Counter(t[scheme] for t in traces)
        rows.append((f"`{scheme}`", *(count[part] for part in PARTS)))
    return _table(rows)


def _by_pattern(traces: Sequence[About]) -> str:
    """Traces by pattern: by origin, then by part of the main split."""
    parts = PARTS[:-1]
    rows: list[Sequence[object]] = [("pattern", *ORIGINS, "all", *parts)]
    rows.append(("---",) * len(rows[0]))
    for pattern in (*IDS, "none"):
        mine = [t for t in traces if pattern in (t["patterns"] or ["none"])]
        origin, part = Counter(t["origin"] for t in mine), Counter(t["split"] for t in mine)
        rows.append((pattern, *(origin[o] for o in ORIGINS), len(mine), *(part[p] for p in parts)))
    return _table(rows)


def _licences(traces: Sequence[About]) -> list[Sequence[object]]:
    count = Counter((t["base"], t["licence"]) for t in traces if t["base"])
    return [(base, licence, n) for (base, licence), n in sorted(count.items())]
