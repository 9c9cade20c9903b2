from __future__ import annotations

import subprocess
import sys
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from fusion.exceptions import TaskNotFound
from fusion.execution import outcome


@pytest.fixture(params=["by the interpreter", "by the module"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes the text of an error. In a test's module, which pytest has rewritten, it would be the module."""
    monkeypatch.setattr(outcome, "_is_in_files", lambda tb: request.param == "by the interpreter")
    monkeypatch.setattr(outcome, "_count_threads", lambda: 0)


def raised(error: BaseException) -> dict[bytes, bytes]:
    try:
        raise error
    except BaseException as caught:
        return outcome.failed(caught, caught.__traceback__)


def test_an_ordinary_exception() -> None:
    fields = raised(KeyError("user"))
    assert fields[b"kind"] == b"failed"
    assert fields[b"exc_line"] == b"KeyError: 'user'"
    assert fields[b"exc_classes"].split(b"\n")[:2] == [b"builtins.KeyError", b"builtins.LookupError"]
    assert fields[b"exc_info"].startswith(b"Traceback (most recent call last):")
    assert fields[b"exc_info"].endswith(b"KeyError: 'user'\n")


def test_without_a_message() -> None:
    assert raised(ValueError())[b"exc_line"] == b"ValueError"


def test_classes_along_the_mro() -> None:
    import requests

    names = raised(requests.exceptions.ConnectTimeout())[b"exc_classes"].decode().split("\n")
    assert names[0] == "requests.exceptions.ConnectTimeout"
    assert {"requests.exceptions.ConnectionError", "requests.exceptions.Timeout", "builtins.OSError"} <= set(names)


def test_the_line_is_one_printable_line_of_1_kib() -> None:
    line = raised(ValueError("a\nb\r\x00\x1b]0;title\x07\u2028c " + "\u00e9" * 2000 + " end"))[b"exc_line"]
    text = line.decode()
    assert len(line) <= 1024
    assert text.isprintable()
    assert text.startswith("ValueError: a\\nb\\x0d\\x00\\x1b]0;title\\x07\\u2028c \u00e9")
    assert text.endswith(" end")
    assert "bytes cut" in text


@pytest.mark.parametrize("message", ["x" * 10_000_000, "\u00e9" * 70_000, "\x00" * 70_000, "\ud800" * 70_000])
def test_big_messages_keep_head_and_tail(message: str) -> None:
    info = raised(ValueError(f"HEAD{message}TAIL"))[b"exc_info"]
    assert len(info) <= 64 * 1024
    assert b"ValueError: HEAD" in info
    assert info.endswith(b"TAIL\n")
    info.decode()


def test_a_limit_is_kept_to_the_byte() -> None:
    for limit in (100, 101, 500, 1000):
        info = outcome.failed(ValueError("\u20ac" * 1000), None, max_exc_info=limit)[b"exc_info"]
        assert limit - 8 <= len(info) <= limit


class Hostile(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class StrOfSubclass(Exception):
    def __str__(self) -> str:
        class Evil(str):  # noqa: SLOT000
            def translate(self, *args: Any) -> NoReturn:
                raise RuntimeError("translate")

            def encode(self, *args: Any, **kwargs: Any) -> NoReturn:
                raise RuntimeError("encode")

            def __len__(self) -> int:
                raise RuntimeError("len")

            def __format__(self, spec: str) -> str:
                raise RuntimeError("format")

        return Evil("evil")


class BadContext(Exception):
    @property
    def __context__(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("context")


class BadNotes(Exception):
    @property
    def __notes__(self) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("notes")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Hostile(), "tests.unit.test_outcome.Hostile: <its __str__ raised KeyboardInterrupt>"),
        (StrOfSubclass(), "tests.unit.test_outcome.StrOfSubclass: evil"),
        (BadContext("look"), "tests.unit.test_outcome.BadContext: look"),
        (BadNotes("look"), "tests.unit.test_outcome.BadNotes: look"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "UnicodeDecodeError: 'utf-8' codec can't decode"),
        (OSError(2, "nope", b"/tmp/\xff"), "FileNotFoundError: [Errno 2] nope"),
        (ValueError(b"\xff\xfe"), "ValueError: b'\\xff\\xfe'"),
        (
            ExceptionGroup("many", [ValueError(1), TypeError(2)]),
            "ValueError: 1 (the first in ExceptionGroup: many (2 sub-exceptions))",
        ),
        (SyntaxError("bad", ("f", 1, 1, "\ud800", 1, 1)), "SyntaxError: bad (f, line 1)"),
    ],
)
def test_hostile_exceptions(error: BaseException, line: str) -> None:
    fields = raised(error)
    assert fields[b"exc_line"].decode().startswith(line)
    assert b"test_outcome.py" in fields[b"exc_info"]


def test_chains_that_loop_or_never_end() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__context__, two.__context__ = two, one
    assert b"two" in raised(one)[b"exc_info"]
    first = error = ValueError("first")
    for number in range(3000):
        error.__cause__ = ValueError(str(number))
        error = error.__cause__
    assert len(raised(first)[b"exc_info"]) <= 64 * 1024


def test_recursion_error() -> None:
    def down() -> None:
        down()

    def ping() -> None:
        pong()

    def pong() -> None:
        ping()

    for function in (down, ping):
        try:
            function()
        except RecursionError as error:
            fields = outcome.failed(error, error.__traceback__)
            assert fields[b"exc_line"].startswith(b"RecursionError: maximum recursion depth exceeded")
            assert len(fields[b"exc_info"]) <= 64 * 1024
            assert b"test_outcome.py" in fields[b"exc_info"]


def test_a_class_that_lies_about_itself() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> NoReturn:
            raise RuntimeError(name)

    liar = Meta("Liar", (Exception,), {"__module__": "nowhere"})
    fields = raised(liar("who"))
    assert fields[b"exc_classes"].split(b"\n")[0] == b"nowhere.Liar"
    assert fields[b"exc_line"] == b"nowhere.Liar: who"


def test_a_module_name_that_breaks_lines() -> None:
    kind = type("Sly", (Exception,), {"__module__": "a\nbuiltins.ConnectionError"})
    assert raised(kind())[b"exc_classes"].split(b"\n")[0] == b"a\\nbuiltins.ConnectionError.Sly"


def test_without_memory_for_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    import traceback

    def no_memory(*args: object, **kwargs: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(traceback, "format_exception", no_memory)
    monkeypatch.setattr(outcome, "_is_in_files", lambda tb: False)
    info = raised(ValueError("x"))[b"exc_info"].decode()
    assert info.startswith("Traceback (most recent call last):\n  File ")
    assert "ValueError: x\n" in info
    assert "MemoryError" in info


def test_held() -> None:
    fields = outcome.held(TaskNotFound("no such module; deploy it"), "shop.f")
    assert fields == {
        b"kind": b"held",
        b"exc_line": b"fusion.exceptions.TaskNotFound: no such module; deploy it [FUS-304]",
        b"exc_classes": b"fusion.exceptions.TaskNotFound\nfusion.exceptions.FusionError\n"
        b"builtins.Exception\nbuiltins.BaseException",
        b"task": b"shop.f",
    }


def test_python_versions_recursion_limit_is_untouched() -> None:
    before = sys.getrecursionlimit()
    test_recursion_error()
    assert sys.getrecursionlimit() == before


# -- the interpreter's own text of an error


def _divides() -> float:
    return len([1, 2]) + 1 / 0


def _chained() -> None:
    try:
        _divides()
    except ZeroDivisionError as error:
        raise KeyError("ü\u2028 ☃") from error


def _in_context() -> None:
    try:
        _divides()
    except ZeroDivisionError:
        int(
            "x",
        )


def _alone() -> None:
    try:
        _divides()
    except ZeroDivisionError:
        raise ValueError("x") from None


def _noted() -> None:
    error = OSError(2, "no", "file")
    error.add_note("a note\nof two lines")
    raise error


def _grouped() -> None:
    found = []
    for func in (_chained, _noted):
        try:
            func()
        except Exception as error:
            found.append(error)
    raise ExceptionGroup("several", found)


def _deep(n: int = 0) -> float:
    return _divides() if n > 200 else _deep(n + 1)


def _no_syntax() -> None:
    compile("a = (1,\n b c", "file.py", "exec")


def _without_source() -> None:
    exec("def f():\n  raise RuntimeError('in exec')\nf()")


def _ends() -> None:
    raise SystemExit(3)


WAYS_TO_FAIL: list[Callable[[], object]] = [
    *(_divides, _chained, _in_context, _alone, _noted, _grouped, _deep, _no_syntax, _without_source, _ends),
]


@pytest.mark.skipif(not outcome._SHOWS, reason="Python from 3.13 on writes errors by the module, too")
@pytest.mark.parametrize("func", WAYS_TO_FAIL)
def test_the_interpreters_text_is_that_of_the_module(func: Callable[[], object]) -> None:
    before = sys.stderr
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it is
        func()
    error = caught.value
    whole = error.__traceback__
    assert whole is not None
    assert whole.tb_next is not None
    assert outcome._shown(error, whole.tb_next) == "".join(traceback.format_exception(type(error), error, whole.tb_next))
    assert error.__traceback__ is whole
    assert sys.stderr is before


def test_an_error_loads_no_module_and_lines_of_a_zip_are_shown(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tasks.zip", "w") as file:
        file.writestr("zipped.py", "def task():\n    raise ValueError('a line of the zip')\n")
    (tmp_path / "filed.py").write_text("def task():\n    raise ValueError('a line of the file')\n")
    code = """
import sys
sys.path[:0] = sys.argv[1:]
from fusion.execution import outcome
def fails(func):
    try:
        func()
    except ValueError as error:
        return outcome.failed(error, error.__traceback__.tb_next)[b"exc_info"].decode()
import filed, zipped
sys.modules.pop("traceback", None)
print(fails(filed.task), "traceback" in sys.modules)
print(fails(zipped.task))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(tmp_path / "tasks.zip")], capture_output=True, text=True
    )
    assert done.stderr == ""
    first, _, second = done.stdout.partition("\nTraceback")
    assert "raise ValueError('a line of the file')" in first
    assert first.endswith(f" {not outcome._SHOWS}")
    assert "raise ValueError('a line of the zip')" in second
