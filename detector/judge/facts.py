"""What a text about a region may cite: numbers with their units and the words that go with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from detector.evidence import Evidence
from detector.evidence.sheet import EvidenceRow, Item, Unit

Dimension = Literal["percent", "us", "count", "bytes", "rate"]

_DIMENSION: Final[dict[Unit, Dimension]] = {
    "share": "percent",
    "us": "us",
    "count": "count",
    "elements": "count",
    "GB/s": "rate",
    "MB": "bytes",
}
NUMBER: Final = re.compile(
    r"(?<![\w.])(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"(?:\s?(?P<unit>%|percent\b|per cent\b|ns\b|us\b|µs\b|μs\b|ms\b|s\b|seconds?\b|milliseconds?\b"
    r"|microseconds?\b|[KMG]i?B/s|TB/s|[kKMGT]i?B\b|bytes\b|x\b))?(?![\w])"
)
_UNITS: Final[dict[str, tuple[Dimension, float]]] = {
    "%": ("percent", 1),
    "percent": ("percent", 1),
    "per cent": ("percent", 1),
    "ns": ("us", 1e-3),
    "us": ("us", 1),
    "µs": ("us", 1),
    "μs": ("us", 1),
    "microsecond": ("us", 1),
    "ms": ("us", 1e3),
    "millisecond": ("us", 1e3),
    "s": ("us", 1e6),
    "second": ("us", 1e6),
    "bytes": ("bytes", 1),
    "kb": ("bytes", 1e3),
    "kib": ("bytes", 1024),
    "mb": ("bytes", 1e6),
    "mib": ("bytes", 1024**2),
    "gb": ("bytes", 1e9),
    "gib": ("bytes", 1024**3),
    "tb": ("bytes", 1e12),
    "kb/s": ("rate", 1e-6),
    "mb/s": ("rate", 1e-3),
    "gb/s": ("rate", 1),
    "tb/s": ("rate", 1e3),
    "x": ("count", 1),
}
_WORD: Final = re.compile(r"[a-zA-Z]{3,}|h2d|d2h|d2d|gc", re.I)
_STOP: Final = frozenset(
    "the and that with from for this has have are was were its into onto while than then not but "
    "all each per time region share trace rest which these those there here it is".split()
)
# What people call a thing, by what the labels call it.
_SAME: Final = {
    "device": "gpu",
    "cpu": "host",
    "waits": "sync",
    "waiting": "sync",
    "wait": "sync",
    "synchronises": "sync",
    "synchronising": "sync",
    "synchronizes": "sync",
    "synchronizing": "sync",
    "synchronization": "sync",
    "synchronizations": "sync",
    "syncs": "sync",
    "transfers": "copy",
    "transfer": "copy",
    "copies": "copy",
    "memcpy": "copy",
    "memcpys": "copy",
    "dataloader": "loader",
    "launches": "launch",
    "launched": "launch",
    "launching": "launch",
    "readbacks": "read",
    "allreduce": "collect",
    "collectives": "collect",
    "collective": "collect",
    "communication": "collect",
    "allocates": "alloc",
    "allocation": "alloc",
    "allocations": "alloc",
    "garbage": "gc",
    "collection": "gc",
}


@dataclass(frozen=True)
class Fact:
    """A number of the evidence. ``words`` are those of its label; of a named event ``name``.

    ``baseline``: it is of the rest of the trace.
    """

    value: float
    dimension: Dimension
    words: frozenset[str]
    name: str = ""
    baseline: bool = False


def facts_of(evidence: Evidence) -> tuple[Fact, ...]:
    """All that the evidence of a region holds."""
    found = [*_of_rows(evidence.rows), *_of_rows(evidence.context.rows), *_of_place(evidence)]
    for item in (*evidence.items, *evidence.occurring.values()):
        found += _of_item(item)
    return (*found, *_of_where(evidence), *_of_text(evidence.context.text))


def dimension_of(unit: str | None) -> tuple[Dimension, float]:
    """The dimension of a unit, and what it is of the dimension's own; without one: a count."""
    if unit is None:
        return "count", 1.0
    found = _UNITS.get(unit.lower()) or _UNITS.get(unit.lower().removesuffix("s"))
    return found or ("count", 1.0)


def stems(text: str) -> frozenset[str]:
    """The words that mean something, in one form each."""
    return frozenset(
        _stem(word) for word in map(str.lower, _WORD.findall(text)) if word not in _STOP
    )


@lru_cache(maxsize=8_192)
def _stem(word: str) -> str:
    return _SAME.get(word, word)[:5]


def _of_rows(rows: Iterable[EvidenceRow]) -> Iterator[Fact]:
    for row in rows:
        label = stems(row.label)
        scale = 100 if row.unit == "share" else 1
        dimension = _DIMENSION[row.unit]
        yield Fact(row.value * scale, dimension, label)
        if row.rest is not None:
            yield Fact(row.rest * scale, dimension, label, baseline=True)


def _of_item(item: Item) -> Iterator[Fact]:
    name, words = item.name, stems(item.name)
    yield Fact(float(item.count), "count", words, name)
    yield Fact(100 * item.share, "percent", words, name)
    yield Fact(item.total_us, "us", words, name)
    yield Fact(item.mean_us, "us", words, name)
    if item.rest is not None:
        yield Fact(100 * item.rest, "percent", words, name, baseline=True)
    if item.mb:
        yield Fact(item.mb * 1e6, "bytes", words, name)
        yield Fact(1e3 * item.mb / max(item.total_us, 1e-9), "rate", words, name)


def _of_place(evidence: Evidence) -> Iterator[Fact]:
    place = evidence.place
    part = 100 * place.dur_us / max(place.analyzed_us, 1e-9)
    yield Fact(place.dur_us, "us", stems("region place takes long"))
    yield Fact(place.analyzed_us, "us", stems("analyzed time"))
    yield Fact(part, "percent", stems("analyzed time"))
    if place.steps:
        yield Fact(place.step_us, "us", stems("step iteration"))
        for number in (place.steps, place.first_step + 1, place.last_step + 1):
            yield Fact(float(number), "count", stems("step iteration"))
        length = place.dur_us / max(place.step_us, 1e-9)
        yield Fact(length, "count", stems("step iteration"))


def _of_where(evidence: Evidence) -> Iterator[Fact]:
    for line in evidence.where:
        yield Fact(float(line.line), "count", stems("line"), f"{line.file}")


def _of_text(text: str) -> Iterator[Fact]:
    """The numbers of notes and views, each with the words of its line."""
    for line in text.split("\n"):
        words = stems(line)
        for match in NUMBER.finditer(line):
            dimension, scale = dimension_of(match["unit"])
            value = float(match["number"].replace(",", "")) * scale
            yield Fact(value, dimension, words)
            yield Fact(value, dimension, words, baseline=True)  # a line does not say which
