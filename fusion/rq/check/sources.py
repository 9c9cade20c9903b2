"""The uses of RQ in a Python file: imports, attributes and calls of objects made from RQ's classes, and the tasks that it enqueues."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from fusion.rq.check.verdicts import WORKS, Verdict, class_of, of_attribute, of_keywords, of_module, of_name

_ROOTS = ("rq", "django_rq", "flask_rq2", "rq_dashboard", "rq_exporter", "rq_scheduler")
_ENQUEUES = {
    "enqueue": 0,
    "enqueue_call": 0,
    "enqueue_at": 1,
    "enqueue_in": 1,
    "prepare_data": 0,
    "create_job": 0,
    "create": 0,
    "schedule": 1,
    "cron": 1,
}
#: What methods return, as far as it is a class of RQ's.
_RETURNS = {
    ("Queue", "enqueue"): "Job", ("Queue", "enqueue_call"): "Job", ("Queue", "enqueue_at"): "Job", ("Queue", "enqueue_in"): "Job",
    ("Queue", "enqueue_job"): "Job", ("Queue", "create_job"): "Job", ("Queue", "fetch_job"): "Job", ("Job", "fetch"): "Job",
    ("Job", "create"): "Job", ("Worker", "get_current_job"): "Job",
    ("Scheduler", "enqueue_at"): "Job", ("Scheduler", "enqueue_in"): "Job", ("Scheduler", "schedule"): "Job", ("Scheduler", "cron"): "Job",
}  # fmt: skip
_FUNCTIONS = {"get_current_job": "Job", "get_queue": "Queue"}


@dataclass(frozen=True)
class Found:
    """One use of RQ, with its verdict."""

    line: int
    what: str
    verdict: Verdict


class Source:
    """The uses of one file, and the modules of the tasks that it enqueues."""

    def __init__(self, text: str, module: str) -> None:
        self.tree = ast.parse(text)
        self.module = module
        self.found: list[Found] = []
        self.tasks: set[str] = set()
        self._modules: dict[str, str] = {}  # name here -> module of RQ's
        self._names: dict[str, tuple[str, str]] = {}  # name here -> module, name there
        self._own: dict[str, str] = {}  # function imported here -> its module
        self._kinds: dict[str, str] = {}  # variable -> class of RQ's
        for node in ast.walk(self.tree):
            self._import(node)
        if self._modules or self._names:
            for node in ast.walk(self.tree):
                self._assign(node)
            for node in ast.walk(self.tree):
                self._use(node)

    def _add(self, node: ast.AST, what: str, verdict: Verdict) -> None:
        self.found.append(Found(getattr(node, "lineno", 0), what, verdict))

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.partition(".")[0] in _ROOTS:
                    self._modules[one.asname or one.name.partition(".")[0]] = (
                        one.name if one.asname else one.name.partition(".")[0]
                    )
                    self._add(node, f"import {one.name}", of_module(one.name))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                if node.module.partition(".")[0] in _ROOTS:
                    self._names[one.asname or one.name] = (node.module, one.name)
                    self._add(node, f"from {node.module} import {one.name}", of_name(node.module, one.name))
                else:
                    self._own[one.asname or one.name] = node.module

    def _kind(self, node: ast.AST | None) -> str | None:
        """Return the class of RQ's that an expression is an object of, as far as it can be seen."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._kinds.get(ast.unparse(node))
        if not isinstance(node, ast.Call):
            return None
        function = node.func
        if isinstance(function, ast.Name) and function.id in self._names:
            name = self._names[function.id][1]
            return _FUNCTIONS.get(name) or (name if class_of(name) is not None else None)
        if isinstance(function, ast.Attribute):
            owner = self._class(function.value) or self._kind(function.value)
            if owner is not None:
                return _RETURNS.get((owner, function.attr))
            if self._module_of(function.value) is not None:
                return _FUNCTIONS.get(function.attr) or (function.attr if class_of(function.attr) is not None else None)
        return None

    def _class(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name) and node.id in self._names:
            name = self._names[node.id][1]
            return name if class_of(name) is not None else None
        if isinstance(node, ast.Attribute) and self._module_of(node.value) is not None:
            return node.attr if class_of(node.attr) is not None else None
        return None

    def _module_of(self, node: ast.AST) -> str | None:
        name, _, rest = ast.unparse(node).partition(".")
        if name not in self._modules or not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        path = f"{self._modules[name]}.{rest}".rstrip(".")
        return path if not path.rpartition(".")[2][:1].isupper() else None

    def _assign(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and (kind := self._kind(node.value)) is not None:
            for target in node.targets:
                self._kinds[ast.unparse(target)] = kind
        elif (
            isinstance(node, ast.withitem)
            and node.optional_vars is not None
            and (kind := self._kind(node.context_expr)) is not None
        ):
            self._kinds[ast.unparse(node.optional_vars)] = kind

    def _use(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            if (module := self._module_of(node.value)) is not None:
                verdict = of_name(module, node.attr)
                self._add(node, f"{module}.{node.attr}", verdict)
            elif (kind := self._kind(node.value) or self._class(node.value)) is not None:
                self._add(node, f"{kind}.{node.attr}", of_attribute(kind, node.attr))
        elif isinstance(node, ast.Call):
            self._call(node)
        for decorator in getattr(node, "decorator_list", ()):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(called).rpartition(".")[2] == "job" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.tasks.add(self.module)

    def _call(self, node: ast.Call) -> None:
        keywords = [one.arg for one in node.keywords if one.arg is not None]
        if isinstance(node.func, ast.Attribute):
            kind = self._kind(node.func.value) or self._class(node.func.value)
            name = node.func.attr
            if name in _ENQUEUES and (kind is not None or name.startswith("enqueue")):
                self._task(node, _ENQUEUES[name])
        else:
            kind, name = self._class(node.func), "__init__"
        if kind is not None and keywords and (verdict := of_keywords(kind, name, keywords)).kind != WORKS:
            self._add(node, f"{kind if name == '__init__' else f'{kind}.{name}'}({', '.join(keywords)}=)", verdict)

    def _task(self, node: ast.Call, place: int) -> None:
        """Note the module of the function that is enqueued."""
        given = (
            node.args[place]
            if len(node.args) > place
            else next((one.value for one in node.keywords if one.arg in ("f", "func")), None)
        )
        if isinstance(given, ast.Constant) and isinstance(given.value, str) and "." in given.value:
            self.tasks.add(_module_in(given.value))
        elif isinstance(given, ast.Name):
            self.tasks.add(self._own.get(given.id, self.module))
        elif isinstance(given, ast.Attribute):
            owner, _, rest = ast.unparse(given.value).partition(".")
            home = self._own.get(owner)
            self.tasks.add(_module_in(".".join(filter(None, (home, owner, rest, given.attr)))))


def _module_in(path: str) -> str:
    """Return the module of a function's path; names of classes begin with a capital letter."""
    parts = path.split(".")[:-1]
    while len(parts) > 1 and parts[-1][:1].isupper():
        parts.pop()
    return ".".join(parts)


def read(text: str, module: str) -> Iterator[Found | str]:
    """Yield the uses of RQ in a file, and the modules of its tasks as texts. SyntaxError."""
    source = Source(text, module)
    yield from sorted(source.found, key=lambda one: one.line)
    yield from sorted(filter(None, source.tasks))
