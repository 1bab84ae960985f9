"""How often the slow rank of a recorded job is named, with its cause, and nobody in the others.

python scripts/straggler_rates.py FOLDER    # of jobs that dataset.record_jobs recorded
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from detector.jobs.build import build  # noqa: E402
from detector.jobs.rank import reduced  # noqa: E402
from detector.kineto import read  # noqa: E402


def main() -> None:
    """One line for each job that is not as its label says, then the rates."""
    rates: Counter[tuple[str, str]] = Counter()
    for path in sorted(Path(sys.argv[1]).glob("*/label.json")):
        said = json.loads(path.read_text())
        job = build([reduced(read(p)) for p in sorted(path.parent.glob("rank_*.json.gz"))])
        found = [(s.rank, s.kind, s.how) for s in job.stragglers]
        at = f"{said['ranks']} ranks"
        for key in (at, "all"):
            if said["straggler"] is None:
                rates[key, "healthy"] += 1
                rates[key, "flagged"] += bool(found)
            else:
                named = [s for s in found if s[0] == said["straggler"]]
                rates[key, "slow"] += 1
                rates[key, "named"] += len(found) == len(named) == 1
                rates[key, "cause"] += [s[1] for s in named] == [said["kind"]]
        wanted = [] if said["straggler"] is None else [(said["straggler"], said["kind"])]
        if [s[:2] for s in found] != wanted:
            queued = f"without a core, ms: {said['queued_ms']}" if found else ""
            print(said["name"], "is", wanted or "healthy", "found", found or job.pattern, queued)
    for key in sorted({key for key, _ in rates}):
        r = {what: n for (at, what), n in rates.items() if at == key}
        print(
            f"{key}: slow rank named in {r.get('named', 0)} of {r.get('slow', 0)},"
            f" cause right in {r.get('cause', 0)};"
            f" {r.get('flagged', 0)} of {r.get('healthy', 0)} healthy jobs with a straggler"
        )


if __name__ == "__main__":
    main()
