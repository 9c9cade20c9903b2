"""Finds a task's function by its dotted path, and the path of a function.

Anyone who can write to Redis can enqueue any path, so a worker runs only functions on its allow-list. A pattern is a module: `tasks` allows
`tasks` and everything below it; `*` allows everything, as RQ does. A path may end in a static or class method: then it goes from the module
through classes only, each of an allowed module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from types import AsyncGeneratorType, BuiltinFunctionType, FunctionType, GeneratorType, MethodType, ModuleType

from fusion.exceptions import ConfigurationError, NameTooLong, SerializationError, TaskNotAllowed, TaskNotFound
from fusion.kernel import bundled
from fusion.kernel.bundled import public
from fusion.kernel.gather import GENERATES, marked

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

_MAX_UNWRAP = 32
_OF_CLASSES = (staticmethod, classmethod)
_modules = sys.modules
#: Modules that were imported before this process was forked: none of them is still being imported.
_complete: frozenset[str] = frozenset()
_NONE: Mapping[str, str] = {}
#: Most bytes and dots of a task's name: everything that lists or searches jobs reads it.
LONGEST_NAME, MOST_DOTS = 255, 32
#: Types of objects that integrations use as tasks, and the function that returns the callable for one.
_stand_ins: dict[type, Callable[[Any], Callable[..., Any]]] = {}


class CallableModule(ModuleType):
    """The class of the module `fusion.job`: `from fusion import job` still works as `@job` after this module has taken the name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return import_module("fusion.decorators").job(*args, **kwargs)


def stands_for(kind: type, function_of: Callable[[Any], Callable[..., Any]]) -> None:
    """Register a type whose objects are tasks, like functions marked by `@job`; a worker calls what `function_of` returns for one. For
    integrations."""
    _stand_ins[kind] = function_of


def _stood_for(found: Any) -> Callable[..., Any] | None:
    """Return the function for an object of a registered type; None for a function, and for any other object."""
    if _stand_ins and type(found) is not FunctionType:
        for kind in type(found).__mro__:
            if kind in _stand_ins:
                return _stand_ins[kind](found)
    return None


def is_allowed(module: str, patterns: Iterable[str]) -> bool:
    """Return True if a pattern names this module or a package above it."""
    for pattern in patterns:  # noqa: SIM110  a generator is more for a horse to touch
        if pattern in (module, "*") or module.startswith(pattern + "."):
            return True
    return False


def resolve(path: str, patterns: Iterable[str], without: Mapping[str, str] = _NONE) -> Callable[..., Any]:
    """Return the function at `path`. Raises NameTooLong or TaskNotAllowed (before any import), TaskNotFound, or what importing its module
    raises.

    `without`: modules that this worker runs without, and why; a function in or below one is not found.
    """
    check_path(path)
    patterns = tuple(patterns)
    for absent, why in without.items():
        if path.startswith(absent + "."):
            raise TaskNotFound(f"{path}: module {absent} can't be imported by this worker: {why}")
    if "*" in patterns:
        return _resolve_any(path)
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise TaskNotAllowed(f"{path!r} has no module; a task is named like tasks.sms.sendSMS", code="FUS-302")
    if not is_allowed(module_name, patterns):
        function: Any = getattr(sys.modules.get(module_name), name, None)
        if (meant := _stood_for(function)) is not None:
            return meant
        if not _is_job(function):
            raise TaskNotAllowed(
                f"{path} is not among the tasks of this worker; {how_to_allow(module_in(module_name), 'start the worker with')}"
            )
        return function  # type: ignore[no-any-return]
    try:
        module = _import(module_name, path)
    except TaskNotFound:
        if (method := _method_at(path, patterns)) is None:
            raise
        return method
    try:
        function = getattr(module, name)
    except AttributeError:
        raise TaskNotFound(
            f"module {module_name} has no function {name!r}; deploy the code that has it, or correct the name where it is enqueued",
            code="FUS-305",
        ) from None
    if (meant := _stood_for(function)) is not None:
        return meant
    _check_function(function, path, patterns)
    return function  # type: ignore[no-any-return]


def resolve_method(instance: Any, path: str, patterns: Iterable[str]) -> Callable[..., Any]:
    """Return the method of a pickled object, bound to it: the one that the end of `path` names. RQ stores class methods so, too: their object
    is the class. Raises TaskNotAllowed or TaskNotFound."""
    check_path(path)
    patterns, owner = tuple(patterns), owner_of(instance)
    entry = _member(owner, path.rpartition(".")[2], path, patterns)
    if type(entry) is not FunctionType or owner is instance:
        return _bound(owner, entry, path, patterns)
    _check_function(entry, path, patterns)
    return MethodType(entry, instance)


def owner_of(instance: Any) -> type:
    """Return the class whose method is called: that of the object, or the object if it is a class."""
    return instance if _is_class(instance) else type(instance)


def method_path(owner: type, name: str) -> str:
    """Return the dotted path of a method of that class."""
    return f"{public(str(owner.__module__))}.{owner.__qualname__}.{name}"


def _method_at(path: str, patterns: tuple[str, ...]) -> Callable[..., Any] | None:
    """Return the static or class method at `package.module.Class.method`; None if no module has that attribute. Raises TaskNotAllowed or
    TaskNotFound for all but a chain of classes of allowed modules that ends in such a method."""
    parts = path.split(".")
    for cut in range(len(parts) - 2, 0, -1):
        home = ".".join(parts[:cut])
        if not is_allowed(home, patterns):
            return None
        try:
            found: Any = vars(_import(home, path)).get(parts[cut])
        except TaskNotFound:
            continue
        return None if found is None else _walked(found, parts[cut + 1 :], path, patterns)
    return None


def _walked(found: Any, names: list[str], path: str, patterns: tuple[str, ...]) -> Callable[..., Any]:
    """Walk from a class to its method. Entries are read from the classes' own dictionaries: no code of theirs runs."""
    for name in names:
        owner, found = found, _member(found, name, path, patterns)
    return _bound(owner, found, path, patterns)


def _member(owner: Any, name: str, path: str, patterns: tuple[str, ...]) -> Any:
    """Return the entry of that name. TaskNotAllowed if `owner` is no class of an allowed module, TaskNotFound if it has no such entry."""
    _check_class(owner, path, patterns)
    entry, base = _entry(owner, name)
    if base is None:
        raise TaskNotFound(
            f"{path}: class {owner.__qualname__} has no {name!r}; deploy the code that has it, or correct the name where it is enqueued",
            code="FUS-305",
        )
    _check_class(base, path, patterns)
    return entry


def _is_class(found: Any) -> bool:
    return issubclass(type(found), type)  # isinstance believes what an object says of its class


def _check_class(found: Any, path: str, patterns: tuple[str, ...]) -> None:
    if not _is_class(found):
        raise TaskNotAllowed(
            f"{path} goes through a {type(found).__name__}; a path may go from a module through classes only", code="FUS-303"
        )
    module = vars(found).get("__module__")
    home = public(module) if isinstance(module, str) else "builtins"
    if not is_allowed(home, patterns):
        raise TaskNotAllowed(
            f"{path} goes through the class {home}.{found.__qualname__}; {how_to_allow(home, 'start the worker with')}"
        )


def _entry(owner: type, name: str) -> tuple[Any, type | None]:
    """Return the entry of a class or of the nearest class above it, and the class that has it; None for that if there is none."""
    for base in owner.__mro__:
        if name in vars(base):
            return vars(base)[name], base
    return None, None


def _bound(owner: type, entry: Any, path: str, patterns: tuple[str, ...]) -> Callable[..., Any]:
    """Return the callable for an entry of a class. TaskNotAllowed for any but a static or class method of an allowed module."""
    if type(entry) not in _OF_CLASSES:
        raise TaskNotAllowed(f"{path} {_no_method(entry)}", code="FUS-303")
    function = entry.__func__
    _check_function(function, path, patterns)
    return function if type(entry) is staticmethod else MethodType(function, owner)


def _no_method(entry: Any) -> str:
    """Return what is wrong with an entry of a class that is no static or class method."""
    if type(entry) is FunctionType:
        return "needs an object to be called on; make it a static or class method, or write a function that calls it"
    return f"is a {type(entry).__name__}, not a static or class method; write a function that calls it"


def module_in(path: str) -> str:
    """Return the part of a path that is probably its module: names of classes begin with a capital letter."""
    module, _, name = path.rpartition(".")
    while module and name[:1].isupper():
        path, (module, _, name) = module, module.rpartition(".")
    return path


def how_to_allow(module: str, start: str) -> str:
    """Return the end of a message about a function that may not run. It never suggests to allow a whole module of Python's own."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        return f"{module} is part of Python: a task is a function in a module of yours, so write one there that calls it"
    return f"to allow it, {start} --tasks {module}"


def check_length(name: str) -> str:
    """Return the task's name, or raise NameTooLong."""
    size = len(name)
    if size > MOST_DOTS and (size > LONGEST_NAME // 4 or name.count(".") > MOST_DOTS):
        size, dots = len(name.encode("utf-8", "surrogatepass")), name.count(".")
        if size > LONGEST_NAME or dots > MOST_DOTS:
            raise NameTooLong(
                f"the task's name {name[:60]!a}... has {size:,} bytes and {dots:,} dots; use a name of up to {LONGEST_NAME} bytes with up to "
                f"{MOST_DOTS} dots: a function in a module nearer to the top"
            )
    return name


def check_path(path: str) -> None:
    """Check the form of a path. NameTooLong; TaskNotAllowed for anything but ASCII identifiers joined by dots, and for dunder parts."""
    check_length(path)
    if not (path.isascii() and all(map(str.isidentifier, path.split(".")))):
        raise TaskNotAllowed(f"{path[:200]!a} is not a dotted path like tasks.sms.sendSMS", code="FUS-302")
    if path.startswith("__") or ".__" in path:
        raise TaskNotAllowed(
            f"{path[:200]} has a part that starts with two underscores; name a module-level function", code="FUS-302"
        )


def note_complete() -> None:
    """Note that no module is being imported now. Processes that are forked later need not check that, which would touch pages."""
    global _complete
    _complete = frozenset(_modules)


def _import(module_name: str, path: str) -> ModuleType:
    module = _modules.get(module_name)
    if module is not None and (
        module_name in _complete
        # A module that another thread is importing may not define everything yet: wait for that.
        or not getattr(getattr(module, "__spec__", None), "_initializing", False)
    ):
        return module
    try:
        return bundled.load(module_name)
    except bundled.Unavailable as error:
        raise TaskNotFound(f"{path}: {error}") from None
    except ModuleNotFoundError as error:
        if bundled.missing(module_name, error):
            raise TaskNotFound(
                f"{path}: there is no module {error.name} here; deploy it, or start the worker in its directory "
                f"with --tasks {module_name}"
            ) from None
        raise


def _is_job(function: Any) -> bool:
    # Only a real function's own mark counts: objects with __getattr__ (mocks, RPC proxies) have every attribute.
    return isinstance(function, FunctionType) and function.__dict__.get("__fusion_job__") is True


def _check_function(function: Any, path: str, patterns: tuple[str, ...]) -> None:
    for _ in range(_MAX_UNWRAP):
        if not isinstance(function, FunctionType):
            raise TaskNotAllowed(
                f"{path} is a {type(function).__name__}, not a function; write a function that calls it", code="FUS-303"
            )
        home = public(function.__module__ or "(no module)")
        if not _is_job(function) and not is_allowed(home, patterns):
            raise TaskNotAllowed(
                f"{path} is {home}.{function.__qualname__}, imported there; {how_to_allow(home, 'start the worker with')}"
            )
        wrapped = function.__dict__.get("__wrapped__")
        if wrapped is None:
            return
        function = wrapped
    raise TaskNotAllowed(f"{path} is wrapped more than {_MAX_UNWRAP} times", code="FUS-303")


def _resolve_any(path: str) -> Callable[..., Any]:
    """Resolve a path in RQ's way: the longest importable prefix, then attributes; a bare name is a builtin."""
    parts = path.split(".")
    if len(parts) == 1:
        parts = ["builtins", path]
    found: Any = None
    cut = len(parts) - 1
    while cut and found is None:
        module_name = ".".join(parts[:cut])
        try:
            found = _import(module_name, path)
        except TaskNotFound:
            cut -= 1
    if found is None:
        raise TaskNotFound(
            f"{path}: there is no module {parts[0]} here; deploy it, or start the worker in its directory with --tasks {parts[0]}"
        )
    for part in parts[cut:]:
        try:
            found = getattr(found, part)
        except AttributeError:
            module_name = ".".join(parts[:cut])
            raise TaskNotFound(
                f"module {module_name} has no {'.'.join(parts[cut:])!r}; deploy the code that has it, or correct the name where it is enqueued",
                code="FUS-305",
            ) from None
    if (meant := _stood_for(found)) is not None:
        return meant
    if not callable(found):
        raise TaskNotFound(
            f"{path} is a {type(found).__name__}, which can't be called; name a function in place of it", code="FUS-303"
        )
    return found  # type: ignore[no-any-return]


def func_name_of(func: Callable[..., Any] | str) -> str:
    """Return the path that a worker will import; a string is returned unchanged. SerializationError if no worker could call what is there,
    NameTooLong."""
    if isinstance(func, str):
        if not func.strip():
            raise SerializationError("the task's name is empty; it looks like tasks.sms.sendSMS")
        check_length(func)
        home = func.rpartition(".")[0]
        if home not in _modules and "." in home:
            _check_seen(func)
        return func
    if isinstance(func, BuiltinFunctionType) and isinstance(func.__self__, ModuleType):
        return check_length(f"{func.__module__}.{func.__qualname__}")
    if type(func) is MethodType and _is_class(func.__self__):
        return method_name(func)
    if not isinstance(func, FunctionType):
        kind = "bound method" if hasattr(func, "__self__") else type(func).__name__
        raise SerializationError(
            f"{func!r} is a {kind}; a worker imports a task by name, so enqueue a module-level function or its dotted path"
        )
    if not func.__module__:
        raise SerializationError(f"{func.__qualname__} belongs to no module, so no worker can import it; define it in a module")
    module, name = bundled.public(func.__module__), func.__qualname__
    check_no_generator(func, f"{module}.{name}")
    _check_place(module, name)
    if "." in name:
        _check_seen(f"{func.__module__}.{name}")
    return check_length(f"{module}.{name}")


def method_name(method: MethodType) -> str:
    """Return the path of a method that is bound to an object or to a class. SerializationError if no worker could import that class, or if the
    class has another method there; NameTooLong."""
    owner, function = owner_of(method.__self__), method.__func__
    path = method_path(owner, function.__name__)
    check_no_generator(method, path)
    _check_place(public(str(owner.__module__)), f"{owner.__qualname__}.{function.__name__}")
    entry, _ = _entry(owner, function.__name__)
    if (entry.__func__ if type(entry) is classmethod else entry) is not function:
        raise SerializationError(f"{path} is not the method that was given; enqueue it under the name that its class has for it")
    return check_length(path)


def _check_place(module: str, name: str) -> None:
    """Raise SerializationError for a place that a worker can't import from."""
    if "<lambda>" in name:
        raise SerializationError("a lambda has no name to import it by; define a module-level function")
    if "<locals>" in name:
        raise SerializationError(
            f"{name} is defined inside a function, where no worker can import it; move it to the top of {module}"
        )
    if module == "__main__":
        raise SerializationError(
            f"{name} is defined in the script that runs, which a worker would know by another name; move it to a module "
            f"of its own, or enqueue it by path, e.g. 'mytasks.{name}'"
        )


def _check_seen(path: str) -> None:
    """Raise SerializationError for a path through a class of this process that leads to no static or class method. Nothing is imported."""
    parts = path.split(".")
    for cut in range(len(parts) - 2, 0, -1):
        module = _modules.get(".".join(parts[:cut]))
        if module is None:
            continue
        found: Any = getattr(module, "__dict__", {}).get(parts[cut])
        for name in parts[cut + 1 :]:
            if not _is_class(found):
                return
            owner = found
            found, base = _entry(owner, name)
            if base is None:
                raise SerializationError(f"{path}: class {owner.__qualname__} has no {name!r}; correct the name")
        if type(found) not in _OF_CLASSES:
            raise SerializationError(f"{path} {_no_method(found)}")
        return


def check_no_generator(func: Any, name: str) -> None:
    """Raise TypeError for a function with `yield`: a call of it runs none of its lines, so its job would finish at once."""
    for _ in range(_MAX_UNWRAP):
        if isinstance(func, FunctionType):  # first: each class that is named here is a page that a horse copies
            if func.__code__.co_flags & GENERATES and marked(func) is None:
                raise TypeError(_told(name, "is a generator function"))
            return
        if isinstance(func, partial):
            func = func.func
        elif isinstance(func, (MethodType, staticmethod, classmethod)):
            func = func.__func__
        else:
            func = vars(type(func)).get("__call__")


def check_result(value: Any, name: str) -> None:
    """Raise TypeError for a generator that a task returned. A decorator may have hidden it from `check_no_generator`."""
    if type(value) is GeneratorType or type(value) is AsyncGeneratorType:
        raise TypeError(_told(name, "returned a generator"))


def _told(name: str, what: str) -> str:
    return f"{name} {what}, of which no line would run; write a task without yield, which loops over it if need be"


def task_modules(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules to load ahead for an allow-list. `tasks`, which is allowed by default, may be missing."""
    for pattern in patterns:
        if pattern != "*" and not all(part.isidentifier() for part in pattern.split(".")):
            raise ConfigurationError(
                f"--tasks {pattern!r}: name a module, like 'tasks' or 'shop.jobs', or '*' for any", code="FUS-225"
            )
    missing = set() if exists("tasks") else {"tasks"}
    return tuple(pattern for pattern in patterns if pattern != "*" and pattern not in missing)


def exists(module: str) -> bool:
    """Return True if a module of that name exists, loaded or not. Packages above it are imported."""
    from importlib.util import find_spec  # a job's process does not need it

    other = bundled.ALIAS + module[len(bundled.NAME) :] if bundled.settle() and module.startswith(bundled.NAME + ".") else module
    for name in dict.fromkeys((module, other)):
        try:
            if name in sys.modules or find_spec(name) is not None:
                return True
        except ModuleNotFoundError:
            continue
    return False
