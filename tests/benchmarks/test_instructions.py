"""`python -m benchmarks instructions`: what it counts, and that no script is left out."""

from __future__ import annotations

import shutil
from collections.abc import Generator

import pytest
import redis

from benchmarks.instructions import command
from benchmarks.instructions.case import CASES, Case
from benchmarks.instructions.counted import Call, CountedServer
from fusion.store.write.broker import Broker
from tests.kit.hands import new
from tests.store.test_scripts import NAMES


def _two_calls(conn: redis.Redis) -> Generator[None, None, None]:
    broker = Broker(conn)
    broker.enqueue("q", [new(f"j{n}") for n in range(9)], "n")
    yield
    broker.delete(["j0"])
    broker.delete([f"j{n}" for n in range(1, 9)])


def _calls(*, instructions: bool) -> list[Call]:
    with CountedServer(instructions=instructions) as server:
        return command.run(server, Case("two calls", frozenset({"delete"}), _two_calls))


def test_commands_are_counted_by_call_without_valgrind() -> None:
    one, eight = _calls(instructions=False)
    assert (one.script, one.instructions) == ("delete", None)
    assert 4 < one.commands < eight.commands < 8 * one.commands


@pytest.mark.long
def test_instructions_are_counted_by_call() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not on PATH (Debian: apt-get install valgrind)")
    one, eight = _calls(instructions=True)
    assert one.instructions is not None and eight.instructions is not None
    assert 30_000 < one.instructions < eight.instructions < 8 * one.instructions
    again = _calls(instructions=True)[1].instructions
    assert again == pytest.approx(eight.instructions, rel=0.02), "the same on any machine, but for what the clock says"


def test_a_case_that_does_not_call_its_script_is_an_error() -> None:
    with CountedServer(instructions=False) as server, pytest.raises(RuntimeError, match="did not call prune"):
        command.run(server, Case("wrong", frozenset({"prune"}), _two_calls))


@pytest.mark.parametrize(
    ("commands", "instructions", "over"), [(9999, 25_000_000, False), (1, 25_000_001, True), (1, None, False), (9999, None, True)]
)
def test_the_bound(commands: int, instructions: int | None, over: bool) -> None:
    assert command.is_over(Call("s", commands, instructions)) == over
    half = instructions and instructions // 2 + instructions % 2
    assert command.is_over(Call("walk_graph", commands // 2, half)) == over


def test_the_command_lists_its_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "--only", "prune"]) == 0
    assert "prune a worker with 3000 jobs" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--only", "nothing"])
    assert "no case or script is called nothing" in capsys.readouterr().err


def test_no_script_is_left_out() -> None:
    assert {script for one in CASES.values() for script in one.scripts} == set(NAMES)


#: One of each kind of call, in the gate; all of them by night.
QUICK = {
    "prune a worker with 1000 jobs, plain",
    "the pauses of 100 keys end at once",
    "clean 120 keys with 120 holders",
    "a full turn, heavy",
}


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.gate] * (name in QUICK)) for name in CASES])
def test_no_call_is_over_its_bound(name: str) -> None:
    """By commands, which every machine can count."""
    with CountedServer(instructions=False) as server:
        calls = command.run(server, CASES[name])
    assert [call for call in calls if command.is_over(call)] == []
