"""A report of communication logs as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from detector.jobs.logs import CommReport
from detector.jobs.volumes import Profile, ProfileRow
from detector.logs.anomaly import Anomaly
from detector.render.clean import clean
from detector.units import size

MOST = 20  # lines of a list on a terminal
MOST_ALIKE = 5  # anomalies of one kind


def render(report: CommReport) -> str:
    """What was read, what is wrong, and the profile, for a terminal."""
    parts = [[f"{clean(s.path)}  {s.what}".strip() for s in report.sources]]
    parts.append([f"! {clean(note, 400)}" for note in report.notes[:MOST]])
    parts.append(_anomalies(report.anomalies))
    if report.profile.rows:
        parts.append(_profile("Communication profile", report.profile))
        parts.append(_sizes(report.profile))
    if report.tables.rows:
        parts.append(_profile("Measured bus bandwidth", report.tables))
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
    for kind in dict.fromkeys(a.kind for a in found):
        alike = [a for a in found if a.kind == kind]
        lines += [_anomaly(a) for a in alike[:MOST_ALIKE]]
        if len(alike) > MOST_ALIKE:
            lines.append(f"  {kind}: {len(alike) - MOST_ALIKE} more, see --format json")
    return lines


def _anomaly(a: Anomaly) -> str:
    place = [clean(a.where), f"line {a.line}" if a.line else "", a.time]
    return f"  {a.kind}: {clean(a.text, 400)}  ({', '.join(p for p in place if p)})"


def _profile(heading: str, profile: Profile) -> list[str]:
    alike: dict[tuple[object, ...], list[ProfileRow]] = {}
    for row in profile.rows:
        ways = (row.algorithm, row.protocol, row.channels)
        alike.setdefault((row.op, row.dtype, row.ranks, row.bytes, *ways), []).append(row)
    lines = [f"{heading}: {profile.calls:,} calls, {size(profile.total_bytes)}"]
    lines += [f"  {_row(rows)}" for rows in list(alike.values())[:MOST]]
    more = len(alike) - MOST
    return lines + ([f"  and {more} more kinds, see --format json"] if more > 0 else [])


def _row(rows: Sequence[ProfileRow]) -> str:
    """Collectives of one kind and size, of all groups and runs."""
    row, calls = rows[0], sum(row.calls for row in rows)
    words = [
        f"{row.op or 'unknown':13} {calls:>7,} × {size(row.bytes) if row.bytes >= 0 else '?'}",
        row.dtype,
        f"{row.ranks} ranks" if row.ranks else "",
        " ".join(w for w in (row.algorithm, row.protocol) if w),
        f"{row.channels} channels" if row.channels else "",
        _bandwidth(rows),
    ]
    return clean("  ".join(word for word in words if word))


def _bandwidth(rows: Sequence[ProfileRow]) -> str:
    """``28.6 to 217 GB/s, median 180``; of a single one beside the best of its kind and size."""
    rates = sorted(row.bus_gbs for row in rows if row.bus_gbs)
    if not rates:
        return ""
    if len(rates) > 1:
        return f"{rates[0]:.1f} to {rates[-1]:.1f} GB/s, median {median(rates):.1f}"
    best = max(row.best_bus_gbs for row in rows)
    return f"{rates[0]:.1f} GB/s" + (f" (best {best:.1f})" if best > 1.01 * rates[0] else "")


def _sizes(profile: Profile) -> list[str]:
    sizes = profile.sizes()
    most = max(sizes.values(), default=1)
    return ["Message sizes"] + [
        f"  from {size(1 << exponent):>9} {calls:>9,} {'█' * max(1, round(30 * calls / most))}"
        for exponent, calls in sizes.items()
    ]
