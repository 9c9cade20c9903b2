"""Tasks that only a supervised worker is asked to run."""

from __future__ import annotations

import os


def environment() -> list[str]:
    """Names of what the job's process inherited."""
    return sorted(os.environ)
