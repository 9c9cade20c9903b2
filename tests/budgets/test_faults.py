"""Page faults of a job: each is a page that is copied or mapped, which costs more than most of the code that causes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.budgets import figures
from tests.forkserver.driver import Driver, job_fields
from tests.kit.process import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MODULE, TASK = "tests.jobs.costs", "tests.jobs.costs.nothing"
ROUNDS = 20

_BARE = f"""
import gc, os
from {MODULE} import nothing

def faults():
    with open("/proc/self/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[8])

def rounds(n):
    for _ in range(n):
        if (pid := os.fork()) == 0:
            nothing()
            os._exit(0)
        os.waitpid(pid, 0)

gc.collect()
gc.freeze()
rounds(10)
before = faults()
rounds({ROUNDS})
print((faults() - before) / {ROUNDS})
"""


def faults(pid: int) -> int:
    """Minor faults of a process and of its children that it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[8])


def of_a_bare_fork() -> float:
    done = subprocess.run([sys.executable, "-c", _BARE], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return float(done.stdout)


def of_a_job(task: str = TASK, kind: str = "finished") -> float:
    with Driver(modules=(MODULE,)) as driver:
        assert driver.server.pid is not None
        spare = driver.server.fork()  # as in a worker, the next process is forked before a job begins

        def rounds(number: int) -> None:
            nonlocal spare
            for _ in range(number):
                horse, spare = spare, driver.server.fork()
                assert driver.finish(driver.hand_out(job_fields(task), horse)).kind == kind

        def cost() -> float:
            before = faults(driver.server.pid)
            rounds(ROUNDS)
            return (faults(driver.server.pid) - before) / ROUNDS

        rounds(10)
        return min(cost() for _ in range(3))  # one that waits for long rehearses a job


def test_the_page_faults_of_a_job() -> None:
    job, bare = of_a_job(), of_a_bare_fork()
    print(f"{job:.0f} faults in fork server and horse, {bare:.0f} of a bare fork: {job / bare:.2f}")
    assert job <= figures.FAULTS_OF_BARE * bare


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the interpreter's own text of an error needs the module traceback")
def test_the_page_faults_of_a_job_that_fails() -> None:
    job, bare = of_a_job(f"{MODULE}.fail", "failed"), of_a_bare_fork()
    print(f"{job:.0f} faults in fork server and horse, {bare:.0f} of a bare fork: {job / bare:.2f}")
    assert job <= figures.FAILED_FAULTS_OF_BARE * bare
