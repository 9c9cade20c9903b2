"""`python -m fusion.rq`: the commands of `frq`."""

from __future__ import annotations

from fusion.rq.cli import main

if __name__ == "__main__":
    main(prog_name="frq")
