"""How a language model was asked, as a report keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class JudgeRound:
    """One question to the judge's model, and what came of it."""

    start_us: float
    """Start of the place that was asked about."""
    end_us: float
    """Its end."""
    round: int
    """1 for the first question about this place."""
    view: str = ""
    """What the model asked to see before this round; empty in the first."""
    outcome: str = ""
    """``answered``, ``asked for a view``, or why the answer was not valid."""
    cached: bool = False
    """Whether the answer came from the cache on disk, and nothing was sent."""
    input_tokens: int = 0
    """As the server counts them; 0 where it does not say."""
    output_tokens: int = 0
    """As the server counts them; 0 where it does not say."""
    seconds: float = 0.0
    """From the question to the answer."""


@dataclass(frozen=True)
class Doubted:
    """A candidate that the judge's model was shown where it costs most, and did not confirm."""

    pattern: str
    """Its id."""
    start_us: float
    """Start of the place."""
    end_us: float
    """Its end."""


@dataclass(frozen=True)
class Unsized:
    """A pattern that the judge's model names, by numbers of the evidence, and that is no candidate:
    no replay says that its repair saves time worth a finding."""

    pattern: str
    """Its id."""
    start_us: float
    """Start of the place where the model is surest."""
    end_us: float
    """Its end."""
    confidence: float
    """As the model says."""
    explanation: str
    """The model's, as far as the evidence holds it."""


@dataclass(frozen=True)
class Judging:
    """How the judge's language model was asked; empty where there is none."""

    model: str = ""
    """Name of the model."""
    prompt: str = ""
    """Hash of the prompt and the schema of an answer."""
    places: int = 0
    """Places that it was to judge."""
    answered: int = 0
    """Places with a valid answer; of the others the embedded judge's verdict stands."""
    fallbacks: dict[str, int] = field(default_factory=dict)
    """Why there was no valid answer, and for how many places."""
    invalid: dict[str, int] = field(default_factory=dict)
    """Answers that were not valid, by reason; a later one may have been."""
    struck: int = 0
    """Sentences and claims taken out because the evidence does not hold them."""
    input_tokens: int = 0
    """Of all rounds."""
    output_tokens: int = 0
    """Of all rounds."""
    cost: float | None = None
    """In the currency of the configured prices; null without prices."""
    doubted: tuple[Doubted, ...] = ()
    """Candidates that it does not confirm; training may take them as hard negatives."""
    unsized: tuple[Unsized, ...] = ()
    """What it names beside the candidates, the surest first; neither findings nor leads."""
    rounds: tuple[JudgeRound, ...] = ()
    """Every question, in the order of the places."""
