"""``python -m detector``: the same as ``trace-scan``."""

import sys

from detector.command import main

sys.exit(main())
