"""`python -m fusion.contrib.django COMMAND`: the command line of Fusion, as `manage.py fusion` starts it."""

from __future__ import annotations

from fusion.cli.main import cli

if __name__ == "__main__":
    cli(prog_name="manage.py fusion")
