"""What the page says of the whole product: files that scripts left, where they are there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from detector.comparison.markdown import interval, number, quartiles, table
from detector.errors import DetectorError

Found = Mapping[str, Any]


def read(folder: Path) -> list[str]:
    """The parts of the page that come from ``folder``: what scripts wrote, and ``errors.md``, which
    is written by hand. Raises DetectorError for a file that is not what its script writes."""
    parts = []
    for name, (title, part) in _PARTS.items():
        if (file := folder / name).is_file():
            try:
                parts += [f"## {title}", *part(json.loads(file.read_text()))]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DetectorError(f"{file}: write it anew ({error!r})") from error
    by_hand = folder / "errors.md"
    return [*parts, by_hand.read_text().strip()] if by_hand.is_file() else parts


def product_part(told: Found) -> Iterator[str]:
    """``scripts/end_to_end.py``: findings held against labels."""
    yield (
        f"Made by `python scripts/end_to_end.py FOLDER`: parts {', '.join(told['parts'])} of the "
        f"scheme `{told['scheme']}`, flagger {told['flagger']}, judge {told['judge']}. "
        f"{told['trained_on']}"
    )
    yield (
        "A finding is right where it lies on a labelled region of its pattern, wrong where it "
        "does not and at least half of it is known. Recall is the share of labelled (trace, "
        "pattern) pairs with such a finding, without those that the report says it did not check; "
        "costly ones claim at least the share of the time from which on a finding is reported. In "
        "healthy traces only findings in known places count."
    )
    rows = [
        [
            name,
            g["traces"],
            f"{interval(g['recall'])} ({g['labelled']})",
            f"{interval(g['recall_costly'])} ({g['costly']})",
            g["not_checked"],
            f"{interval(g['precision'])} ({g['findings']})",
            interval(g["wrong_per_trace"]),
            f"{interval(g['findings_per_healthy_trace'])} ({g['healthy_traces']})",
            g["unclear"],
        ]
        for name, g in told["groups"].items()
    ]
    heads = ["traces of", "traces", "recall (pairs)", "of costly ones (pairs)", "not checked"]
    heads += ["precision (findings)"]
    heads += ["wrong findings per trace", "findings per healthy trace (traces)"]
    yield table([*heads, "unclear"], rows)


def pairs_part(told: Found) -> Iterator[str]:
    """``scripts/pair_error.py``: what a fix gives back, said and measured."""
    yield (
        "Made by `python scripts/pair_error.py FOLDER`. Realised: the faulty step's time less that "
        "of the healthy twin, in steps in which the fault acts. Claim: what the cost model says "
        "where pattern and place are known. Product: the recoverable time of the report's findings "
        "of that pattern, nothing where it has none. Errors are predicted less realised, in % of "
        "the faulty step: median and quartiles. Rank: Spearman's correlation of predicted and "
        "realised shares. Measurable: realised at least "
        f"{100 * told['measurable']:.0f} % of the faulty step. {told['trained_on']}"
    )
    for origin, found in told["origins"].items():
        yield f"Origin {origin} ({found['how']}):"
        yield table(_HEADS, [_row(name, g) for name, g in found["groups"].items()])


_HEADS = ["pairs of", "pairs", "realised", "claim error", "claim rank"] + [
    "found",
    "product error",
    "product rank",
]


def _row(name: str, g: Found) -> list[object]:
    return [
        name,
        g["pairs"],
        quartiles(g["realised"]),
        quartiles(g["claim_error"]),
        number(g["claim_rank"]),
        number(g["found"]),
        quartiles(g["product_error"]),
        number(g["product_rank"]),
    ]


_PARTS: Final[dict[str, tuple[str, Callable[[Found], Iterator[str]]]]] = {
    "end_to_end.json": ("The whole product", product_part),
    "pairs.json": ("Recoverable time, predicted and realised", pairs_part),
}
