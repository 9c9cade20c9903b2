"""A run of a job: where classes of its arguments may come from, and what it shares with those that run beside it."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType

import pytest

from fusion import get_current_job
from fusion.execution.frames import unpack
from fusion.execution.perform import Performer
from fusion.kernel.serializers import JSONSerializer, dumps_call
from tests.jobs.typed import Colour, Point


def _run(tasks: tuple[str, ...], *args: object) -> dict[bytes, bytes]:
    fields = {b"id": b"j", b"data": dumps_call(JSONSerializer(), "tests.jobs.basic.echo", args, {})}
    return Performer(tasks).run(fields, lambda frame: None)


def test_a_class_of_a_loaded_module_arrives_though_no_task_of_it_is_allowed() -> None:
    answer = _run(("tests.jobs.basic",), [Point(3), Colour.RED])
    assert answer[b"kind"] == b"finished", answer


@pytest.fixture
def unloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that could be imported, and was not."""
    (tmp_path / "not_loaded_yet.py").write_text("import enum\n\nclass Side(enum.Enum):\n    LEFT = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "not_loaded_yet"


def _of_side(module: str) -> bytes:
    return b'["tests.jobs.basic.echo",null,[{"__fusion__":["enum",["%s:Side","LEFT"]]}],{}]' % module.encode()


def test_a_module_that_no_task_needs_is_not_imported_for_an_argument(unloaded: str) -> None:
    answer = Performer(("tests.jobs.basic",)).run({b"id": b"j", b"data": _of_side(unloaded)}, lambda frame: None)
    assert answer[b"kind"] == b"failed", answer
    assert unloaded not in sys.modules


def test_the_module_of_an_allowed_task_is_imported_for_one(unloaded: str) -> None:
    answer = Performer(("tests.jobs.basic", unloaded)).run({b"id": b"j", b"data": _of_side(unloaded)}, lambda frame: None)
    assert answer[b"kind"] == b"finished", answer


class _Many:
    """The limits of one of many runs, without any."""

    among_others = True

    def __init__(self) -> None:
        self.checked = 0

    def run_task(self, seconds: float | None, func: Callable[[], object]) -> object:
        return func()

    def run_with_timeout(self, seconds: float | None, what: str, func: Callable[[], object]) -> object:
        return func()

    def run_coroutine(self, coroutine: Coroutine[object, object, object]) -> object:
        return asyncio.run(coroutine)

    def ended_by_stop(self, error: BaseException) -> bool:
        return False

    def check(self) -> None:
        self.checked += 1


def test_one_performer_runs_many_jobs_at_once() -> None:
    """Each thread has its own current job, and what one says and declares is not of another."""
    many = 8
    performer, together = Performer(("tests.jobs.beside",)), threading.Barrier(many)
    answers, said, guards = {}, {}, [_Many() for _ in range(many)]

    def run(number: int) -> None:
        frames: list[dict[bytes, bytes]] = []
        together.wait(10)
        data = dumps_call(JSONSerializer(), "tests.jobs.beside.slowly", (number,), {})
        fields = {b"id": b"job-%d" % number, b"data": data, b"on_success": b'{"func": "tests.jobs.beside.note"}'}
        answers[number] = contextvars.copy_context().run(performer.run, fields, frames.append, guard=guards[number])
        said[number] = frames

    threads = [threading.Thread(target=run, args=(number,)) for number in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for number in range(many):
        (stood,) = (frame for frame in said[number] if frame[b"kind"] == b"stands")
        answer = {**unpack(stood[b"frame"][4:]), **answers[number]}
        assert (answer[b"kind"], answer[b"result"]) == (b"finished", b'["job-%d","job-%d",null]' % (number, number)), answer
        assert b"callback_error" not in answer, answer
        assert answer[b"meta"] == b'{"number":%d,"noted":"job-%d"}' % (number, number)
        assert [frame[b"kind"] for frame in said[number]] == [b"meta", b"stands", b"callback"]
        assert guards[number].checked == 1
    assert get_current_job() is None


def test_a_module_being_imported_by_another_thread_harms_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fusion.retry", ModuleType("fusion.retry"))
    assert _run(("tests.jobs.basic",), 1)[b"kind"] == b"finished"
