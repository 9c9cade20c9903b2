"""`python -m fusion.contrib.django COMMAND`: the command line of Fusion, as `manage.py fusion` starts it."""

from __future__ import annotations

import sys

from fusion.kernel.standard import standard_first

if __name__ == "__main__":
    sys.path[:] = standard_first(sys.path)
    from fusion.cli.main import cli

    cli(prog_name="manage.py fusion")
