from __future__ import annotations

import sys

from tests.faults.soak.chaos import main

if __name__ == "__main__":
    sys.exit(main())
