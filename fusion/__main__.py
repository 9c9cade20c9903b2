"""`python -m fusion`: the command line."""

import sys

from fusion.kernel.standard import standard_first

sys.path[:] = standard_first(sys.path)

from fusion.cli.main import main  # noqa: E402

main()
