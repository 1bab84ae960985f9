"""A report of communication logs as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from detector.jobs.logs import CommReport
from detector.jobs.volumes import Profile, ProfileRow
from detector.logs.anomaly import Anomaly
from detector.render.clean import clean
from detector.render.units import size

MOST = 20  # lines of a list on a terminal


def render(report: CommReport) -> str:
    """What was read, what is wrong, and the profile, for a terminal."""
    parts = [[f"{clean(s.path)}  {s.what}".strip() for s in report.sources]]
    parts.append([f"! {clean(note, 400)}" for note in report.notes[:MOST]])
    parts.append(_anomalies(report.anomalies))
    if report.profile.rows:
        parts.append(_profile("Communication profile", report.profile))
        parts.append(_sizes(report.profile))
    if report.tables.rows:
        parts.append(_profile("Measured bandwidth", report.tables))
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def to_json(report: CommReport) -> str:
    """The whole report, indented; profiles with their histogram of sizes."""
    plain = msgspec.to_builtins(report)
    for key, profile in (("profile", report.profile), ("tables", report.tables)):
        plain[key]["sizes_log2"] = {str(k): v for k, v in profile.sizes().items()}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def _anomalies(found: Sequence[Anomaly]) -> list[str]:
    if not found:
        return ["No anomaly."]
    lines = [f"Anomalies ({len(found)})"]
    for a in found[:MOST]:
        place = [clean(a.where), f"line {a.line}" if a.line else "", a.time]
        lines.append(f"  {a.kind}: {clean(a.text, 400)}  ({', '.join(p for p in place if p)})")
    more = len(found) - MOST
    return lines + ([f"  and {more} more, see --format json"] if more > 0 else [])


def _profile(heading: str, profile: Profile) -> list[str]:
    rows = profile.rows
    lines = [
        f"{heading}: {profile.calls:,} calls, {profile.elements:,} elements,"
        f" {profile.total_bytes:,} bytes"
    ]
    lines += [f"  {_row(row)}" for row in rows[:MOST]]
    more = len(rows) - MOST
    return lines + ([f"  and {more} more kinds"] if more > 0 else [])


def _row(row: ProfileRow) -> str:
    words = [
        f"{row.op or 'unknown':13} {row.calls:>7,} × {size(row.bytes) if row.bytes >= 0 else '?'}",
        row.dtype,
        f"{row.ranks} ranks" if row.ranks else "",
        " ".join(w for w in (row.algorithm, row.protocol) if w),
        f"{row.channels} channels" if row.channels else "",
        f"{row.bus_gbs:.1f} GB/s (best {row.best_bus_gbs:.1f})" if row.bus_gbs else "",
    ]
    return clean("  ".join(word for word in words if word))


def _sizes(profile: Profile) -> list[str]:
    sizes = profile.sizes()
    most = max(sizes.values(), default=1)
    return ["Message sizes"] + [
        f"  from {size(1 << exponent):>9} {calls:>9,} {'█' * max(1, round(30 * calls / most))}"
        for exponent, calls in sizes.items()
    ]
