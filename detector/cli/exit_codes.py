"""What the entry points that return an exit code share."""

from __future__ import annotations

import os
from collections.abc import Callable

from detector.errors import DetectorError

INTERRUPTED = 130  # as a shell has it


def exit_code(run: Callable[[], int]) -> int:
    """What ``run`` returns; 2 and one line on standard error for what it cannot do."""
    # The judge's products are small: on a busy machine BLAS threads wait more than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    except (DetectorError, OSError) as error:
        from detector.cli.output import complain

        return complain(error)
