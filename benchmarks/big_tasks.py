"""A no-op in a module that makes its process 60 MB bigger by what modules consist of: functions, classes, constants and their names.

Made up, so that it weighs the same wherever it is measured.
"""

from __future__ import annotations

import marshal
import resource
from pathlib import Path
from types import ModuleType

from benchmarks import tasks

MB = 60

_SOURCE = "\n".join(
    f'''
class Class{n}:
    """The class with the number {n}."""
    limits = {{"least": {n}.5, "most": {n}00.25, "names": ("first{n}", "second{n}")}}
    def method(self, argument: int, other: str = "default{n}") -> object:
        """The method of number {n}."""
        return [self.limits["least"] * argument, other.strip(), argument]
def function{n}(first, second=None, *rest, option="option{n}"):
    """The function with the number {n}."""
    return (first, second, rest, option)
'''
    for n in range(100)
)


def _resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _load(bytes_: int) -> list[ModuleType]:
    """Modules, until the process has grown by so much."""
    code, until = marshal.dumps(compile(_SOURCE, "<big>", "exec")), _resident() + bytes_
    modules = []
    while _resident() < until:
        module = ModuleType(f"big{len(modules)}")
        exec(marshal.loads(code), module.__dict__)
        modules.append(module)
    return modules


MODULES = _load(MB * 1024 * 1024)


def noop(payload: str = "") -> None:
    """Leave one byte."""
    tasks.noop(payload)
