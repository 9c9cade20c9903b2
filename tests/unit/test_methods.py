"""Methods as tasks: static and class methods by their path, and those of a pickled object."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from typing import Any

import pytest

from fusion.callbacks import Callback
from fusion.enqueue.build import build
from fusion.enqueue.options import NONE, EnqueueOptions
from fusion.exceptions import OptionError, SerializationError, TaskNotAllowed, TaskNotFound
from fusion.execution.perform import Performer
from fusion.kernel.importing import resolve, resolve_method
from fusion.kernel.serializers import JSONSerializer, PickleSerializer, dumps_call, loads_call
from fusion.settings import Settings
from tests.jobs import forbidden, methods
from tests.jobs.methods import Counter, Heir

HERE = "tests.jobs.methods"
ALLOWED = (HERE,)


@pytest.mark.parametrize(
    ("path", "args", "value"),
    [
        ("Counter.double", (4,), 8),
        ("Counter.named", (4,), "Counter 4"),
        ("Heir.named", (4,), "Heir 4"),
        ("Heir.double", (4,), 8),
        ("Counter.Inner.named", (), "Counter.Inner"),
        ("Heir.Inner.named", (), "Counter.Inner"),
    ],
)
@pytest.mark.parametrize("patterns", [ALLOWED, ("tests",), ("*",)])
def test_static_and_class_methods_run_by_their_path(
    path: str, args: tuple[Any, ...], value: Any, patterns: tuple[str, ...]
) -> None:
    assert resolve(f"{HERE}.{path}", patterns)(*args) == value


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("Counter.add", "needs an object to be called on"),
        ("Counter.lambda_", "needs an object to be called on"),
        ("Counter.total", "is a property, not a static or class method"),
        ("Counter.total.fget", "goes through a property"),
        ("Counter.cached", "is a cached_property"),
        ("Counter.cached.func", "goes through a cached_property"),
        ("Counter.text", "is a str"),
        ("Counter.text.join", "goes through a str"),
        ("Counter.run", "is subprocess.run, imported there"),
        ("Counter.system", "is a builtin_function_or_method, not a function"),
        ("Counter.shell", "is a builtin_function_or_method, not a function"),
        ("Counter.bound", "is a partial, not a function"),
        ("Counter.wrapped_foreign", "is tests.jobs.forbidden.now, imported there"),
        ("Counter.module", "is a module, not a static"),
        ("Counter.module.system", "goes through a module"),
        ("Counter.foreign_class", "is a type, not a static"),
        ("Counter.foreign_class.communicate", "goes through the class subprocess.Popen"),
        ("Counter.path_class.cwd", "goes through the class pathlib"),
        ("Counter.instance", "is a Counter, not a static"),
        ("Counter.instance.double", "goes through a Counter"),
        ("Counter.double.cr_code", "goes through a staticmethod"),
        ("Counter.Inner.named.real", "goes through a classmethod"),
        ("Counter.Inner", "is a type, not a static"),
        ("Counter.nothing", "class Counter has no 'nothing'"),
        ("Counter.mro", "class Counter has no 'mro'"),
        ("FromOutside.fromkeys", "goes through the class collections.UserDict"),
        ("Made.reached", "class Made has no 'reached'"),
        ("Made.invented", "class Made has no 'invented'"),
        ("counter.double", "goes through a Counter"),
        ("spoofing.anything", "goes through a Spoofing"),
        ("alias.system", "goes through a module"),
        ("alias.path.join", "goes through a module"),
        ("subprocess.Popen.communicate", "goes through a module"),
        ("queue_class.all", "goes through the class fusion.queue"),
        ("Queue.all", "goes through the class fusion.queue"),
        ("forbidden.Namespace.static", "goes through a module"),
        ("made.double", "goes through a function"),
        ("Counter.__subclasses__", "two underscores"),
        ("Counter.double.__globals__", "two underscores"),
        ("Counter..double", "is not a dotted path"),
        ("Missing.double", "there is no module"),
    ],
)
def test_a_path_reaches_nothing_else_through_a_class(path: str, reason: str) -> None:
    with pytest.raises((TaskNotAllowed, TaskNotFound)) as caught:
        resolve(f"{HERE}.{path}", ALLOWED)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "patterns", [("tests.jobs.methods.Counter",), ("tests.jobs.methods.Counter.double",), ("tests.jobs.forbidden",)]
)
def test_only_a_module_is_allowed_never_a_class(patterns: tuple[str, ...]) -> None:
    with pytest.raises((TaskNotAllowed, TaskNotFound)):
        resolve(f"{HERE}.Counter.double", patterns)


def test_a_refusal_names_the_module_to_allow() -> None:
    with pytest.raises(TaskNotAllowed, match=r"--tasks shop\.jobs \[FUS-301\]$"):
        resolve("shop.jobs.Orders.Late.pay", ALLOWED)


# -- of a pickled object


def test_the_method_of_a_pickled_object_runs() -> None:
    assert resolve_method(Counter(3), f"{HERE}.Counter.add", ALLOWED)(4) == 7
    assert resolve_method(Heir(3), f"{HERE}.Heir.add", ALLOWED)(4) == 7
    assert resolve_method(Counter(3), f"{HERE}.Counter.double", ALLOWED)(4) == 8
    assert resolve_method(Heir, f"{HERE}.Heir.named", ALLOWED)(4) == "Heir 4"  # as RQ stores a class method


@pytest.mark.parametrize(
    ("instance", "name"),
    [
        (Counter(), "total"),
        (Counter(), "cached"),
        (Counter(), "text"),
        (Counter(), "run"),
        (Counter(), "system"),
        (Counter(), "instance"),
        (Counter(), "nothing"),
        (Counter(), "__init__"),
        (Counter(), "__reduce_ex__"),
        (Counter, "add"),
        (Counter, "mro"),
        (methods.Made, "reached"),
        (methods.FromOutside(), "get"),
        (forbidden.Namespace(), "static"),
        (partial(os.system, "true"), "func"),
        ("text", "upper"),
        (subprocess, "run"),
        (subprocess.Popen, "communicate"),
        (os.system, "system"),
        (7, "bit_length"),
    ],
)
def test_no_other_attribute_of_a_pickled_object_is_reached(instance: Any, name: str) -> None:
    with pytest.raises((TaskNotAllowed, TaskNotFound)):
        resolve_method(instance, f"{HERE}.Counter.{name}", ALLOWED)


def _run(data: bytes, allow_pickle: bool = True, tasks: tuple[str, ...] = ALLOWED) -> dict[bytes, bytes]:
    fields = {b"id": b"j", b"data": data, b"serializer": b"pickle"}
    return Performer(tasks, allow_pickle=allow_pickle).run(fields, lambda frame: None)


def test_such_a_job_runs_where_pickles_are_allowed_and_its_class_is() -> None:
    data = dumps_call(PickleSerializer(), f"{HERE}.Counter.add", (4,), {}, instance=Counter(3))
    answer = _run(data)
    assert answer[b"kind"] == b"finished" and b"result_error" not in answer, answer
    assert PickleSerializer().loads(answer[b"result"]) == 7
    assert _run(data, tasks=("tasks",))[b"kind"] == b"held"
    assert b"pickle is off" in _run(data, allow_pickle=False)[b"exc_line"]
    assert loads_call(PickleSerializer(), data) == (f"{HERE}.Counter.add", (4,), {})


# -- when it is enqueued


def _built(func: Any, **of_settings: Any) -> Any:
    return build(func, (4,), {}, NONE, Settings(**of_settings))


def test_a_bound_method_is_enqueued_where_pickle_is_used() -> None:
    made = _built(Counter(3).add, serializer="pickle", allow_pickle=True)
    assert made.func_name == made.new.fields["func"] == f"{HERE}.Counter.add"
    assert _run(made.new.fields["data"])[b"kind"] == b"finished"


def test_rq_finds_the_method_as_its_own_pickles_name_it() -> None:
    made = _built(Counter(3).add, serializer="pickle", allow_pickle=True)
    name, instance, args, kwargs = PickleSerializer().loads(made.new.fields["data"])
    assert (name, instance.start, args, kwargs) == ("add", 3, (4,), {})


def test_json_refuses_a_bound_method() -> None:
    with pytest.raises(SerializationError, match=r"Counter\.add is a method of an object, which JSON can't hold"):
        _built(Counter(3).add)


def test_a_class_method_is_enqueued_by_its_path_as_json() -> None:
    made = _built(Heir.named)
    assert JSONSerializer().loads(made.new.fields["data"])[0] == f"{HERE}.Heir.named"


def test_a_unique_key_of_the_arguments_is_refused_for_a_method_of_an_object() -> None:
    with pytest.raises(OptionError, match="not the object whose method it is; use unique_key="):
        build(Counter(3).add, (4,), {}, EnqueueOptions(unique=True), Settings(serializer="pickle", allow_pickle=True))


class _Local:
    def method(self) -> None:
        return None

    other = classmethod(lambda cls: None)  # its name is not that of the entry


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (Counter.add, "needs an object to be called on; make it a static or class method"),
        (f"{HERE}.Counter.add", "needs an object to be called on"),
        (f"{HERE}.Counter.total", "is a property"),
        (_Local.other, "a lambda has no name"),
        (
            type("Hidden", (), {"__qualname__": "f.<locals>.Hidden", "method": _Local.method})().method,
            "is defined inside a function",
        ),
        (type("Other", (), {"renamed": _Local.method})().renamed, "is not the method that was given"),
    ],
)
def test_what_no_worker_could_run_is_refused(func: Any, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        _built(func, serializer="pickle", allow_pickle=True)


def test_a_callback_may_be_a_static_or_class_method_and_none_of_an_object() -> None:
    assert Callback(Counter.double).name == f"{HERE}.Counter.double"
    assert Callback(Counter.named).name == f"{HERE}.Counter.named"
    with pytest.raises(SerializationError, match="is a bound method"):
        Callback(Counter(1).add)
