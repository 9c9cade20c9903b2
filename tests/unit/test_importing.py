from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusion.callbacks import Callback
from fusion.exceptions import NameTooLong, SerializationError, TaskNotAllowed, TaskNotFound
from fusion.kernel.importing import func_name_of, is_allowed, resolve
from tests.jobs import forbidden

HERE = "tests.jobs.forbidden"


@pytest.mark.parametrize(
    ("module", "patterns", "allowed"),
    [
        ("tasks", ("tasks",), True),
        ("tasks.sms", ("tasks",), True),
        ("tasks.sms.inner", ("tasks.sms",), True),
        ("tasksmuggler", ("tasks",), False),
        ("task", ("tasks",), False),
        ("tasks", ("tasks.sms",), False),
        ("os", ("*",), True),
        ("os", (), False),
        ("os", ("",), False),
        ("b.c", ("a", "b"), True),
    ],
)
def test_is_allowed(module: str, patterns: tuple[str, ...], allowed: bool) -> None:
    assert is_allowed(module, patterns) is allowed


@pytest.mark.parametrize("name", ["plain", "coroutine", "decorated", "marked"])
def test_functions_of_an_allowed_module(name: str) -> None:
    assert resolve(f"{HERE}.{name}", ("tests.jobs",)) is getattr(forbidden, name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("system", "is a builtin_function_or_method, not a function"),
        ("run", "is subprocess.run, imported there; subprocess is part of Python: a task is a function in a module of yours"),
        ("now", "is fusion.kernel.timeutil.now, imported there"),
        ("wrapped_foreign", "is fusion.kernel.timeutil.now, imported there"),
        ("wrapped_builtin", "is a builtin_function_or_method"),
        ("partial", "is a partial, not a function; write a function that calls it"),
        ("cached", "is a _lru_cache_wrapper"),
        ("number", "is a int"),
        ("Namespace", "is a type"),
        ("instance", "is a Namespace"),
        ("proxy", "is a Proxy"),
        ("functools", "is a module"),
    ],
)
def test_other_objects_of_an_allowed_module_are_refused(name: str, reason: str) -> None:
    with pytest.raises(TaskNotAllowed) as caught:
        resolve(f"{HERE}.{name}", ("tests.jobs",))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "..tasks.sms",
        "tasks.sms.send SMS",
        "tasks.sms.sendSMS()",
        "tasks/sms.sendSMS",
        "tasks.sms:send",
        "tasks.sms.1st",
        "tasks.sms.s\u0435nd",
        "tasks.sms.send\n",
        "tasks.__builtins__.eval",
        "tasks.sms.send.__globals__",
        "__main__.run",
        "tasks.__init__",
    ],
)
@pytest.mark.parametrize("patterns", [("tasks",), ("*",)])
def test_paths_that_are_none(path: str, patterns: tuple[str, ...]) -> None:
    with pytest.raises(TaskNotAllowed):
        resolve(path, patterns)


_LONG = ["a" * 256, "a." * 33 + "b", "tasks." + "é" * 125, "a." * 100_000 + "b"]


@pytest.mark.parametrize("name", _LONG, ids=len)
def test_names_that_are_too_long(name: str) -> None:
    for refuses in (func_name_of, lambda name: resolve(name, ("tasks",)), lambda name: resolve(name, ("*",)), Callback):
        with pytest.raises(NameTooLong, match="use a name of up to 255 bytes with up to 32 dots") as caught:
            refuses(name)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["a" * 255, "a." * 32 + "b", "tasks." + "é" * 124])
def test_names_that_are_just_short_enough(name: str) -> None:
    assert func_name_of(name) == name


def test_a_function_with_a_name_that_is_too_long() -> None:
    namespace: dict[str, Any] = {"__name__": "tasks"}
    exec(f"def {'a' * 260}(): ...", namespace)
    with pytest.raises(NameTooLong, match="has 266 bytes and 1 dots"):
        func_name_of(namespace["a" * 260])


def test_a_path_without_a_module() -> None:
    with pytest.raises(TaskNotAllowed, match="has no module"):
        resolve("eval", ("tasks",))


@pytest.fixture
def side_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "sideeffect.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\ndef task(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "imported"
    sys.modules.pop("sideeffect", None)


def test_refused_before_the_import(side_effect: Path) -> None:
    with pytest.raises(TaskNotAllowed, match=r"start the worker with --tasks sideeffect \[FUS-301\]$"):
        resolve("sideeffect.task", ("tasks",))
    assert not side_effect.exists()
    resolve("sideeffect.task", ("sideeffect",))
    assert side_effect.exists()


def test_job_functions_of_loaded_modules_are_allowed() -> None:
    assert resolve(f"{HERE}.marked", ()) is forbidden.marked
    for name in ("plain", "proxy", "nothing_there"):
        with pytest.raises(TaskNotAllowed):
            resolve(f"{HERE}.{name}", ())


def test_not_found_names_what_is_missing() -> None:
    with pytest.raises(TaskNotFound, match=r"there is no module tests.jobs.nowhere here.*--tasks tests.jobs.nowhere"):
        resolve("tests.jobs.nowhere.task", ("tests.jobs",))
    with pytest.raises(TaskNotFound, match="there is no module nopackage here"):
        resolve("nopackage.inner.task", ("nopackage",))
    with pytest.raises(TaskNotFound, match="has no function 'nothing'"):
        resolve(f"{HERE}.nothing", ("tests.jobs",))
    with pytest.raises(TaskNotFound, match=r"there is no module tests.jobs.forbidden.os here"):
        resolve(f"{HERE}.os.system", ("tests.jobs",))


@pytest.mark.parametrize(
    ("source", "error"), [("import no_such_dependency\n", ModuleNotFoundError), ("1 / 0\n", ZeroDivisionError)]
)
def test_a_module_that_does_not_import_is_not_a_missing_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, error: type[Exception]
) -> None:
    (tmp_path / "brokenmod.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    for patterns in (("brokenmod",), ("*",)):
        with pytest.raises(error):
            resolve("brokenmod.task", patterns)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("print", print),
        ("builtins.len", len),
        ("time.sleep", time.sleep),
        ("os.path.join", __import__("os").path.join),
        (f"{HERE}.Namespace.static", forbidden.Namespace.static),
        (f"{HERE}.system", forbidden.system),
        (f"{HERE}.partial", forbidden.partial),
    ],
)
def test_star_is_rqs_way(path: str, expected: Any) -> None:
    assert resolve(path, ("*",)) is expected
    assert resolve(path, ("tasks", "*")) is expected


@pytest.mark.parametrize(
    "path", ["no_such_builtin", "no_such_package.task", "os.nothing", "os.path.nothing.deeper", f"{HERE}.number"]
)
def test_star_not_found(path: str) -> None:
    with pytest.raises(TaskNotFound, match=r"--tasks|correct the name|can't be called"):
        resolve(path, ("*",))


def module_level() -> None:
    return None


class Service:
    @staticmethod
    def static() -> None:
        return None

    @classmethod
    def cls(cls) -> None:
        return None

    def method(self) -> None:
        return None

    @property
    def value(self) -> None:
        return None

    class Inner:
        @staticmethod
        def static() -> None:
            return None


class Heir(Service):
    pass


@pytest.mark.parametrize(
    ("func", "name"),
    [
        ("tasks.sms.sendSMS", "tasks.sms.sendSMS"),
        (module_level, f"{__name__}.module_level"),
        (forbidden.decorated, f"{HERE}.plain"),
        (Service.static, f"{__name__}.Service.static"),
        (Service.cls, f"{__name__}.Service.cls"),
        (Heir.cls, f"{__name__}.Heir.cls"),
        (Service.Inner.static, f"{__name__}.Service.Inner.static"),
        (f"{__name__}.Service.cls", f"{__name__}.Service.cls"),
        ("elsewhere.jobs.Service.method", "elsewhere.jobs.Service.method"),
        (time.sleep, "time.sleep"),
        (len, "builtins.len"),
    ],
)
def test_func_name_of(func: Any, name: str) -> None:
    assert func_name_of(func) == name


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (lambda: None, "a lambda has no name"),
        (Service().method, "is a bound method"),
        (Service.method, r"Service.method needs an object to be called on; make it a static or class method"),
        (f"{__name__}.Service.method", "Service.method needs an object to be called on"),
        (f"{__name__}.Service.missing", "class Service has no 'missing'"),
        (f"{__name__}.Service.value", "is a property, not a static or class method"),
        ([].append, "is a bound method"),
        (Service, "is a type"),
        (forbidden.partial, "is a partial"),
        ("  ", "name is empty"),
        (7, "is a int"),
        (eval("lambda: None", {}), "belongs to no module"),
    ],
)
def test_func_name_of_what_has_none(func: Any, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        func_name_of(func)


def test_func_name_of_a_local_function() -> None:
    def local() -> None:
        return None

    with pytest.raises(
        SerializationError, match=r"is defined inside a function.*move it to the top of tests.unit.test_importing"
    ):
        func_name_of(local)


def test_func_name_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_level, "__module__", "__main__")
    with pytest.raises(SerializationError, match=r"'mytasks.module_level'"):
        func_name_of(module_level)


def test_a_module_that_another_thread_is_importing_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_tasks.py").write_text("import time\n\ntime.sleep(0.2)\n\n\ndef task() -> None:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(resolve("late_tasks.task", ("late_tasks",)))) for _ in range(3)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join(5)
    assert len(found) == 3 and len(set(found)) == 1
