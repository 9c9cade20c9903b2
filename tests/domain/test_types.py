"""Type checkers know the options of an enqueue, and hold the arguments of `Queue.options(...)` against the function."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from fusion import AsyncQueue, Job, Queue, Scheduler, job, recurring

def send(to: str, *, code: int = 0) -> None: ...

queue = Queue("sms")
bound = queue.options(priority="high", ttl="5m")
sent: Job = bound.enqueue(send, "+49", code=1)
bound.enqueue("shop.send", "+49", anything=1)
bound.enqueue(send, 49)  # wrong: arg-type
bound.enqueue(send, "+49", cod=1)  # wrong: call-arg
bound.enqueue_in(5, send, code="x")  # wrong: call-arg
queue.options(tll=5)  # wrong: call-arg
queue.options(ttl=[])  # wrong: typeddict-item
queue.enqueue_call(send, ("+49",), priority=2, job_timeout=None)
queue.enqueue_call(send, job_timout=5)  # wrong: call-arg
Queue.prepare_data(send, durability="replicated")  # wrong: call-arg
Scheduler().cron("* * * * *", send, ttl=5, misfire="skip")
Scheduler().every("5m", send, job_id="x")  # wrong: call-arg

@job("sms", ttl="5m")
@recurring(every="5m", overlap="skip", priority=2)
def tick() -> None: ...

@job("sms", tll=5)  # wrong: call-arg
def tock() -> None: ...

async def produce() -> Job:
    return await AsyncQueue("sms").options(ttl=5).enqueue(send, "+49")
"""


@pytest.mark.long
@pytest.mark.timeout(180)  # without a cache of mypy's
def test_a_type_checker_finds_wrong_options_and_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--no-error-summary", str(program)]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=170).stdout
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", said)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, said
