"""The command line with failpoints for this process alone, not for those that it starts: `python -m tests.faults.crash.alone start ...`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    import fusion.kernel.failpoints

    assert os.environ.pop("FUSION_FAILPOINTS") and isinstance(fusion.kernel.failpoints.failpoint, fusion.kernel.failpoints._Armed)
    from fusion.cli.main import main

    sys.argv[0] = "run_worker.py"  # what it starts others by
    main()
