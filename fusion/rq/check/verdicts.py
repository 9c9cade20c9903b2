"""Whether a name of RQ's works with `fusion.rq`: what is there decides, so that this page of the answer can't be out of date."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fusion.rq import hints

WORKS, CHANGE, MISSING = "works", "change to", "missing"


@dataclass(frozen=True)
class Verdict:
    """The verdict for one name, call or command line."""

    kind: str
    text: str = ""


_WORKS = Verdict(WORKS)
#: Modules of packages on top of RQ, and what to use.
_BESIDE = {
    "django_rq": "use fusion.contrib.django (docs/django.md)",
    "flask_rq2": "make queues by fusion.rq.Queue(name, connection=...)",
    "rq_dashboard": "use Fusion's dashboard (docs/dashboard.md)",
    "rq_exporter": "use GET /api/v1/queues of `fusion server` (docs/http.md)",
}
#: Keywords that no call of `fusion.rq` takes.
_KEYWORDS = {"pipeline": "leave it out: each call of Fusion is one transaction of its own"}


def of_module(module: str) -> Verdict:
    """Return the verdict for `import MODULE`."""
    root = module.partition(".")[0]
    if root in _BESIDE:
        return Verdict(CHANGE, _BESIDE[root])
    if _module(module) is None:
        return Verdict(MISSING, f"fusion.rq has no module {module}")
    return Verdict(CHANGE, f"import fusion.{module}") if module != "rq" else Verdict(CHANGE, "import fusion.rq as rq")


def of_name(module: str, name: str) -> Verdict:
    """Return the verdict for a name of a module of RQ's."""
    if module.partition(".")[0] in _BESIDE:
        return of_module(module)
    found = _module(module)
    if found is None:
        return Verdict(MISSING, f"fusion.rq has no module {module}")
    if _module(f"{module}.{name}") is not None or _has(found, name):
        return _WORKS
    instead = hints._INSTEAD.get(name)
    return Verdict(CHANGE, instead) if instead else Verdict(MISSING, f"{module} has no {name} in fusion.rq")


def of_attribute(kind: str, name: str) -> Verdict:
    """Return the verdict for an attribute of an object of RQ's class `kind`, like `Queue`."""
    cls = class_of(kind)
    if cls is None or name.startswith("_"):
        return _WORKS
    found = inspect.getattr_static(cls, name, None)
    if found is None and name not in _set_on(cls):
        return Verdict(MISSING, f"fusion.rq's {kind} has no {name}")
    instead = _refusal(found)
    return Verdict(CHANGE, instead) if instead else _WORKS


def of_keywords(kind: str, name: str, keywords: list[str]) -> Verdict:
    """Return the verdict for the keywords of a call of a method, or of the class if the name is `__init__`."""
    for keyword in keywords:
        if keyword in _KEYWORDS:
            return Verdict(CHANGE, f"{keyword}=: {_KEYWORDS[keyword]}")
    function = inspect.getattr_static(class_of(kind), name, None)
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return _WORKS
    taken = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
        return _WORKS
    unknown = [keyword for keyword in keywords if keyword not in taken]
    return Verdict(MISSING, f"{kind}.{name} takes no {unknown[0]}=") if unknown else _WORKS


@lru_cache
def class_of(kind: str) -> Any:
    """Return the class of `fusion.rq` of that name; None if there is none."""
    for module in ("rq", "rq.job", "rq.registry", "rq.worker", "rq.scheduler", "rq_scheduler"):
        if (found := _module(module)) is not None and isinstance(cls := _read(found, kind), type):
            return cls
    return None


def _module(path: str) -> Any:
    try:
        return importlib.import_module(f"fusion.{path}")
    except ImportError:
        return None


def _read(module: Any, name: str) -> Any:
    try:
        return getattr(module, name, None)
    except ImportError:
        return None


def _has(module: Any, name: str) -> bool:
    return _read(module, name) is not None


@lru_cache
def _set_on(cls: type) -> frozenset[str]:
    """Return the attributes that methods of the class, and of Fusion's above it, set on `self`, and those that it annotates."""
    found: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("fusion."):  # `Generic` has no source from Python 3.12 on
            continue
        found |= set(vars(base).get("__annotations__", ()))
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base)))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
                found.add(node.attr)
    return frozenset(found)


def _refusal(found: Any) -> str:
    """Return what to use instead of a method that refuses, as its docstring says; empty for any other."""
    function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    if not inspect.isfunction(function):
        return ""
    if not (function.__doc__ or "").startswith("Refuse"):
        return ""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Raise) and isinstance(call := node.exc, ast.Call):
            texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            return texts[-1] if texts else "nothing: it is refused"
    return ""
