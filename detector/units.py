"""Numbers as a person reads them: times, shares, sizes, counts."""

from __future__ import annotations


def duration(us: float) -> str:
    """µs as a person reads them: ``12.3 ms``."""
    for least, divisor, unit in ((1e6, 1e6, "s"), (1e3, 1e3, "ms"), (0.0, 1.0, "µs")):
        if abs(us) >= least:
            return f"{digits(us / divisor)} {unit}"
    return f"{us} µs"  # not a number


def digits(value: float) -> str:
    """Three digits, or all before the point: 1.23, 12.3, 123, 1,234."""
    if not value:
        return "0"
    after = next((n for n, least in ((0, 99.95), (1, 9.995), (2, 0.1)) if abs(value) >= least), 3)
    return f"{value:,.{after}f}" if abs(value) >= 0.001 else f"{value:.1g}"


def percent(share: float) -> str:
    """A share as per cent with one decimal, for tables: ``12.3 %``."""
    return f"{share * 100:.1f} %"


def per_cent(share: float) -> str:
    """A share in whole per cent: ``31 %``."""
    return f"{share * 100:.0f} %"


def rounded(share: float) -> str:
    """A share in a sentence: ``31 %``; with one decimal below ten per cent."""
    return per_cent(share) if abs(share) >= 0.0995 or not share else percent(share)


def size(count: float) -> str:
    """Bytes as a person reads them: ``5.4 MB``."""
    if abs(count) < 1000:
        return f"{count:.0f} B"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{digits(count)} {unit}"
        count /= 1000
    return f"{digits(count)} TB"


def plural(count: int, noun: str) -> str:
    """``1 event``, ``2,000 events``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
