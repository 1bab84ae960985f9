"""Fuzz the reader with atheris, byte by byte, from the damaged files of the tests.

    python -m tests.fuzz.reader [SECONDS]

Where the compiled scanner is built, it must agree with the pure path on every input.
A crash, a hang of ten seconds or a gigabyte of memory is a finding; its bytes are left in
``crash-*`` or ``timeout-*``, and belong among the tests' inline cases.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path


def main() -> int:
    if find_spec("atheris") is None:
        sys.stderr.write("not fuzzed by bytes: atheris is not installed (pip install atheris)\n")
        return 0
    import atheris

    with atheris.instrument_imports(include=["detector.kineto"]):
        from tests.property.test_kineto import sound
        from tests.property.test_kineto_scanner import compare
        from tests.reader_paths import BUILT

    def check(data: bytes) -> None:
        sound(data)
        if BUILT:
            compare(data)

    seconds = sys.argv[1] if len(sys.argv) > 1 else "60"
    with tempfile.TemporaryDirectory() as corpus:
        _plant(Path(corpus))
        options = (f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=1024")
        atheris.Setup([sys.argv[0], *options, "-max_len=4096", "-verbosity=1", corpus], check)
        atheris.Fuzz()
    return 0


def _plant(corpus: Path) -> None:
    from tests.unit.test_kineto_damage import DAMAGED

    for number, (_, text, *_) in enumerate(DAMAGED):
        data = text.encode() if isinstance(text, str) else text
        (corpus / f"{number}.json").write_bytes(data)
        (corpus / f"{number}.json.gz").write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
