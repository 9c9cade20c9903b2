"""Type checkers know the options of an enqueue, hold the arguments of a call against the task, and know the type of its result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: In an environment of its own, made by the first run: it is 260 MB with its Node.
PYRIGHT = ROOT / ".venv" / "pyright-1.1.414"
#: A checker has to find an error in each line that is marked, and in no other.
PROGRAM = """from datetime import datetime
from typing import Any, assert_type

from fusion import AsyncQueue, Job, Queue, Scheduler, chain, job, recurring

def send(to: str, *, code: int = 0) -> None: ...

queue = Queue("sms")
bound = queue.options(priority="high", ttl="5m")
sent: Job = bound.enqueue(send, "+49", code=1)
bound.enqueue("shop.send", "+49", anything=1)
bound.enqueue(send, 49)  # wrong
bound.enqueue(send, "+49", cod=1)  # wrong
bound.enqueue_in(5, send, code="x")  # wrong
queue.options(tll=5)  # wrong
queue.options(ttl=[])  # wrong
queue.enqueue_call(send, ("+49",), priority=2, job_timeout=None)
queue.enqueue_call(send, job_timout=5)  # wrong
Queue.prepare_data(send, durability="replicated")  # wrong
Scheduler().cron("* * * * *", send, ttl=5, misfire="skip")
Scheduler().every("5m", send, job_id="x")  # wrong

@job("sms", ttl="5m")
@recurring(every="5m", overlap="skip", priority=2)
def tick() -> None: ...

@job("sms", tll=5)  # wrong
def tock() -> None: ...

async def produce() -> Job:
    return await AsyncQueue("sms").options(ttl=5).enqueue(send, "+49")

@job()
def add(a: int, b: int = 1) -> int:
    return a + b

@job("mail", priority="low")
async def mail(to: str, *, subject: str) -> bytes:
    return b""

@job()
def plain() -> None: ...

@job()
def untyped(a, b):  # type: ignore[no-untyped-def]
    return a

@job("sms", batch=100, batch_wait="200ms")
def gathered(jobs: list[Job]) -> Any:
    yield jobs[0], 1

assert_type(add(1), int)
add.delay(1)
add.delay(1, b=2)
add.delay("1")  # wrong
add.delay()  # wrong
add.delay(1, 2, 3)  # wrong
add.delay(1, c=2)  # wrong
mail.delay("x", subject="y")
mail.delay("x")  # wrong
mail.delay("x", "y")  # wrong
plain.delay(1)  # wrong
untyped.delay(1, b=2)
gathered.delay("+49", "any")
add.nothing  # wrong

assert_type(add.delay(1), Job[int])
assert_type(add.delay(1).result, int | None)
assert_type(add.delay(1).return_value(), int | None)
assert_type(mail.delay("x", subject="y").result, bytes | None)
assert_type(plain.delay().result, None)
number: str = add.delay(1).result  # wrong
found: Job[str] = add.delay(1)  # wrong
known: Job[int] = add.delay(1)
old: Job = add.delay(1)
Job.fetch("x").result["any"].of_it
Job.fetch("x").return_value()["any"]

bound.enqueue(add, 1)
bound.enqueue(add, "1")  # wrong
bound.enqueue(add)  # wrong
bound.enqueue(mail, "x", subject=1)  # wrong
bound.enqueue_at(datetime.now(), add, "1")  # wrong
bound.enqueue_in("5m", add, 1, c=2)  # wrong
bound.options(ttl=1).enqueue(add, "1")  # wrong
assert_type(bound.enqueue(add, 1).result, int | None)
assert_type(bound.enqueue(mail, "x", subject="y").result, bytes | None)
assert_type(bound.enqueue_in(5, add, 1).result, int | None)
assert_type(bound.enqueue("shop.add", 1), Job[Any])
assert_type(queue.enqueue(add, 1, ttl=5).result, int | None)
assert_type(queue.enqueue(mail, "x", subject="y", ttl=5).result, bytes | None)
assert_type(queue.enqueue("shop.add", 1), Job[Any])
assert_type(queue.enqueue_in(5, add, 1).result, int | None)

chain(add.s(1), add.s(), add.s(b=2), mail.s(subject="y"), mail.si("x", subject="y")).enqueue()
add.s("1")  # wrong
add.s(1, 2, 3)  # wrong
add.s(1, c=2)  # wrong
mail.s(subject=1)  # wrong
mail.si(subject="y")  # wrong
add.si()  # wrong
plain.s(1)  # wrong
untyped.s(1).set(queue="low", ttl=5)
assert_type(add.s(1).enqueue().result, int | None)
assert_type(mail.s("x", subject="y").enqueue(), Job[bytes])

async def awaited() -> None:
    async_queue = AsyncQueue("sms")
    assert_type(await async_queue.enqueue(add, 1, ttl=5), Job[int])
    assert_type(await async_queue.enqueue(mail, "x", subject="y"), Job[bytes])
    await async_queue.options(ttl=5).enqueue(add, "1")  # wrong
    assert_type(await async_queue.options(ttl=5).enqueue(add, 1), Job[int])
    assert_type(await async_queue.options(ttl=5).enqueue(mail, "x", subject="y"), Job[bytes])
    assert_type(await async_queue.options(ttl=5).enqueue("x"), Job[Any])
"""


def mypy(program: Path) -> set[int]:
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--output=json", str(program)]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=280).stdout
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert found, said
    return {one["line"] for one in found if one["severity"] == "error" and one["file"].endswith(program.name)}


def pyright(program: Path) -> set[int]:
    if not (PYRIGHT / "bin" / "pyright").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", PYRIGHT], check=True)
        pip = [PYRIGHT / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
        name, version = PYRIGHT.name.split("-")
        installed = subprocess.run([*pip, f"{name}[nodejs]=={version}"], stderr=subprocess.PIPE, text=True, check=False)
        if installed.returncode:
            pytest.skip(f"pyright can't be installed here: {installed.stderr}")
    command = [PYRIGHT / "bin" / "pyright", "--outputjson", "--pythonpath", sys.executable, str(program)]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=280).stdout
    found = json.loads(said)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


@pytest.mark.long
@pytest.mark.timeout(600)  # without a cache of mypy's, and with an installation
@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_type_checker_finds_what_is_wrong_and_nothing_else(check: Callable[[Path], set[int]], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found, lines = check(program), PROGRAM.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# wrong" in line}
    assert wrong
    assert {number: lines[number - 1] for number in found ^ wrong} == {}
