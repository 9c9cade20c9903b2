"""Collects the entries that an app's modules declare, without Redis. A mistake in one entry does not affect the others."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fusion.cron.entry import Entry
from fusion.cron.scheduler import Planner
from fusion.kernel import bundled
from fusion.kernel.importing import func_name_of
from fusion.kernel.recurrence import declared


@dataclass
class Declarations(Planner):
    """The declarations of an app.

    - `entries` by id; `faults` by id: why an entry is invalid;
    - `broken`: modules that can't be loaded, and why; `traces`: the traceback in their code, empty if none of it ran.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    traces: dict[str, str] = field(default_factory=dict)

    def put(self, entry_id: str, make: Callable[[], Entry]) -> None:
        """Add an entry, or note in `faults` why it can't be made. A second entry with the same id is a fault."""
        try:
            entry = make()
            if entry_id in self.entries or entry_id in self.faults:
                raise ValueError("it is declared twice; give each an id= of its own")
            self.entries[entry_id] = entry
        except Exception as error:
            self.entries.pop(entry_id, None)
            self.faults[entry_id] = str(error) or repr(error)

    def _name(self, func: str | Callable[..., object]) -> str:
        try:
            return func_name_of(func)
        except (TypeError, ValueError):  # `put` gets the error again, and notes it
            return str(getattr(func, "__qualname__", func)).replace("<", "").replace(">", "")


def collect(modules: Sequence[str], task_modules: Sequence[str] = (), setup: Sequence[str] = ()) -> Declarations:
    """Import modules, those of `setup` first, and collect their `@recurring` entries. `modules` may also declare by a function
    `register(scheduler)`."""
    found = Declarations()
    bundled.settle()
    for name in dict.fromkeys([*setup, *modules, *task_modules]):
        try:
            module = bundled.load(name)
            register = getattr(module, "register", None) if name in modules else None
            if callable(register):
                register(found)
        except BaseException as error:  # even sys.exit() in one module must not stop the others
            if isinstance(error, KeyboardInterrupt):
                raise
            found.broken[name] = f"{type(error).__name__}: {error}"
            found.traces[name] = _trace(error)
    for said in declared():
        try:
            if said.expr is not None:
                found.cron(said.expr, said.func, **said.options)
            else:
                found.every(said.every, said.func, **said.options)
        except Exception as error:  # an error of the call itself: an unknown option, a function without a name
            name = str(said.options.get("id") or getattr(said.func, "__qualname__", said.func))
            found.faults[name.replace(".", "-").strip("<>")] = str(error) or repr(error)
    return found


def _trace(error: BaseException) -> str:
    """Return the traceback from the first line of the module's own code."""
    trace = error.__traceback__
    while trace is not None and (
        trace.tb_frame.f_code.co_filename in (__file__, bundled.__file__)
        or trace.tb_frame.f_globals["__name__"].startswith("importlib")
    ):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip() if trace else ""
