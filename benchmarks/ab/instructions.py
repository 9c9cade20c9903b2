"""Instructions of Python that a job costs its worker, or its producer. They are the same on a machine that is busy."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.ab.cases import Case
from benchmarks.ab.side import DRIVEN, Side, worker_command
from benchmarks.guard import guarded_home

#: Jobs of the two runs of which the difference is taken, so that start and end of a process do not count.
_FEW, _MANY = 50, 200


def instructions(checkout: Path, case: Case) -> float:
    """Instructions a job. Raises CalledProcessError if a process fails."""
    with (
        tempfile.TemporaryDirectory(dir=guarded_home()) as home,
        Side(checkout, Path(home, "side"), None) as side,
    ):
        return (_run(side, case, _MANY) - _run(side, case, _FEW)) / (_MANY - _FEW)


def _run(side: Side, case: Case, jobs: int) -> int:
    side.server.conn.flushall()
    count = side.home / "count"
    path = os.pathsep.join((str(DRIVEN / "counted"), side.env["PYTHONPATH"]))
    command, order = [sys.executable, str(DRIVEN / "ab_producer.py")], f"{case.counted} {jobs}\n"
    if case.worker is not None:
        side.order("fill", jobs)
        command, order = [*worker_command(case.worker), "--burst"], ""
    subprocess.run(
        command,
        cwd=side.checkout,
        env={**side.env, "PYTHONPATH": path, "AB_COUNT": str(count)},
        input=order.encode(),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return int(count.read_text())
