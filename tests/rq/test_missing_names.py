"""A name that `fusion.rq` does not have raises an error that says what to use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fusion.rq
import fusion.rq.job


def test_an_import_says_what_to_use() -> None:
    with pytest.raises(
        ImportError, match=r"^cannot import name 'use_connection' from 'fusion\.rq'; give connection= .*docs/from-rq\.md"
    ):
        exec("from fusion.rq import use_connection")
    with pytest.raises(
        ImportError, match=r"^cannot import name 'nothing' from 'fusion\.rq\.job'; it is not supported, or RQ has none"
    ):
        exec("from fusion.rq.job import Job, nothing")


def test_an_attribute_does_too() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'use_connection'; give connection="):
        fusion.rq.use_connection  # noqa: B018
    assert not hasattr(fusion.rq, "use_connection") and getattr(fusion.rq.job, "nothing", 7) == 7


def test_modules_are_imported_by_name() -> None:
    code = "from fusion.rq import job, queue; print(job.Job.__name__, queue.Queue.__name__)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "Job Queue\n"
