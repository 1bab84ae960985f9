"""Every feature in one table, and the columns that the models see."""

from __future__ import annotations

from typing import Final

from detector.features import savings
from detector.features.measure import Feature
from detector.features.sets import THEMES

FEATURES: Final[tuple[Feature, ...]] = tuple(
    feature for theme in (*THEMES, savings) for feature in theme.FEATURES
)

# Each feature comes in four variants: in the window; in the wide window around it; relative to the
# trace's steady state (minus the median over its windows); and relative to the same place in other
# steps (minus the median there; not defined for windows without a step).
VARIANTS: Final = ("", "@outer", "@rel", "@place")
COLUMNS: Final = tuple(f"{feature.name}{variant}" for variant in VARIANTS for feature in FEATURES)

# How a variant reads behind its feature's meaning.
IN_WORDS: Final = {
    "": "",
    "@outer": ", in the wide window",
    "@rel": ", against the rest of the trace",
    "@place": ", against the same place of other steps",
}
_MEANING: Final = {feature.name: feature.meaning for feature in FEATURES}


def in_words(column: str) -> str:
    """What a column measures, as a person reads it."""
    name, at, variant = column.partition("@")
    return _MEANING[name] + IN_WORDS[at + variant]
