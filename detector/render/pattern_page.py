"""What a pattern is, in Markdown: a page for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detector.candidates import least_shares
from detector.ledger import BY_ID as CAUSES
from detector.patterns import Advice, Pattern
from detector.signals import SIGNALS
from detector.taxonomy import Need

NEEDS: Final[dict[Need, str]] = {
    "device": "device activities (`ProfilerActivity.CUDA`, which stands for ROCm as well)",
    "host": "host activities (`ProfilerActivity.CPU`)",
    "links": "launches that link to their kernels",
    "shapes": "shapes (`record_shapes=True`)",
    "grids": "the grid of each kernel and the device's multiprocessors (`deviceProperties`)",
    "steps": "marked steps (`prof.step()`)",
    "comm": "collectives",
}
_SHELL: Final = ("python ", "unset ", "PYTORCH_", "TORCH_LOGS=")


def page(p: Pattern, *, linked: bool = True, picture: str = "") -> str:
    """All there is to know about a pattern; ``linked``: with a link to the index beside it;
    ``picture``: the address of one from a recorded pair."""
    index = " · [all patterns](README.md)" if linked else ""
    needs = "\n".join(f"- {NEEDS[need]}" for need in p.needs)
    if p.needs_on_cpu is not None:
        needs += "".join(f"\n- on a CPU run: {NEEDS[need]}" for need in p.needs_on_cpu)
    guess = (
        f", without any {CAUSES[p.proof].label.removeprefix('host: ')} in the trace as a lead alone"
        if p.proof
        else ""
    )
    article = "an" if p.kind == "opportunity" else "a"
    return f"""# {p.title}

`{p.id}` · {p.kind} · {"host" if p.side == "cpu" else "device"} side{index}

{p.what}

## How to see it in a trace

Look for {p.look}.

The scan counts: {_lower(SIGNALS[p.signal].label)}.
{_pictured(picture)}
## What it costs

{p.costs}

The savings are computed by a replay of the trace with the pattern repaired: {_lower(p.repaired)} \
This assumes that {p.assumes}. The report gives a range, from the savings with all other findings \
repaired to the savings alone, widened by how far its replays were off for known faults: \
{p.error[0]:g} to {p.error[1]:g} times as much. From {_least(p)} of the analyzed time \
on it is reported as {article} {p.kind}{guess}.

## What to change

{_advices(p.advice)}

## When it is not a problem

{p.harmless}

## What the trace must hold

{needs}

Without it the report says *not checked*, never *clean*.
"""


def _pictured(address: str) -> str:
    if not address:
        return ""
    return f"""
![A step before and after]({address})

One step of a program recorded on a CPU, with the pattern (its events in red) and repaired, on one \
scale.
"""


def _advices(advices: Sequence[Advice]) -> str:
    if len(advices) == 1:
        return _advice(advices[0])
    head = "The report gives the first of these that fits the device and the program."
    return "\n\n".join([head, *(f"**{_when(a)}.** {_advice(a)}" for a in advices)])


def _advice(advice: Advice) -> str:
    code = advice.code.replace("{optimizer}", "AdamW")
    language = "sh" if code.startswith(_SHELL) else "python"
    return f"{advice.text}\n\n```{language}\n{code}\n```"


def _when(advice: Advice) -> str:
    if not advice.when:
        return "Otherwise"
    words = ", ".join(condition.words for condition in advice.when)
    return f"{words[0].upper()}{words[1:]}"


def _lower(text: str) -> str:
    """A text inside a sentence, without its capital; a name in capitals keeps them."""
    return text if text[:2].isupper() else f"{text[0].lower()}{text[1:]}"


def _least(p: Pattern) -> str:
    """From which share on it is reported; more on CPU runs, where it applies to them."""
    device, cpu = (
        f"{100 * least_shares(on_device=on_device)[p.kind]:.0f} %" for on_device in (True, False)
    )
    if cpu == device or "device" in p.needed(has_device=False):
        return device
    return f"{device} ({cpu} on CPU runs)"
