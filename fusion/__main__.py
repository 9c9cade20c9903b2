"""`python -m fusion`: the command line."""

from fusion.cli.main import main

main()
