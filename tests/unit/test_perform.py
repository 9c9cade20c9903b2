"""Where classes of a job's arguments may come from: modules that are loaded, and those of allowed tasks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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
