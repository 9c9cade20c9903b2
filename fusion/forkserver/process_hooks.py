"""Skips the hooks of `threading`, `logging` and `random` at fork and exit, which a horse does not need.

Each forked process would run them first, in cold Python code: a quarter of the pages that a horse with `requests` copies. They repair what
a fork is unsafe beside other threads, but the fork server has only one thread. They keep their place among all hooks: processes that a task
forks run them, and hooks of other modules run before and after them as usual.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import _count, get_native_id

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Callable
    from typing import Any

    Hook = Callable[[], Any]
    Space = dict[str, Any]

_STDLIB = os.path.dirname(os.__file__) + os.sep
# The originals, from before any task module was loaded.
_fork, _register_at_fork, _register_at_exit = os.fork, os.register_at_fork, atexit.register
_atexit: Any = atexit

#: True while a horse is forked and no other thread exists that could hold a lock. In a list, as setting a name of the module would also
#: write to its dict.
_bare = [False]
#: Exit hooks of `logging`, and those that remove files that horses share.
_shutdowns: list[_Shutdown] = []
_at_end: list[Hook] = []


def fork() -> int:
    """Fork a horse, as `os.fork` does."""
    _bare[0] = not _count()
    try:
        return _fork()
    finally:
        _bare[0] = False


def end() -> None:
    """Run the exit hooks that only the fork server may run, once its horses are gone."""
    for hook in _at_end:
        try:
            hook()
        except Exception:
            sys.excepthook(*sys.exc_info())


class HooksWatched:
    """Wraps the imports of task modules (`with HooksWatched():`), so that hooks of the standard library can be skipped."""

    def __enter__(self) -> None:
        os.register_at_fork = _at_fork
        _atexit.register = _at_exit

    def __exit__(self, *exc: object) -> None:
        # A module may have wrapped these functions; its wrapper still calls ours.
        if os.register_at_fork is _at_fork:
            os.register_at_fork = _register_at_fork
        if _atexit.register is _at_exit:
            _atexit.register = _register_at_exit
        for shutdown in _shutdowns:
            shutdown.look()


def _at_fork(**hooks: Any) -> None:
    """Replace `os.register_at_fork` while task modules are imported."""
    name, space = _registering()
    if name in _INSTEAD:
        instead = {"after_in_child": _INSTEAD[name](space)}
        hooks = {when: _gate(hook, instead.get(when)) for when, hook in hooks.items()}
    _register_at_fork(**hooks)


def _at_exit(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace `atexit.register` while task modules are imported. Certifi's hook removes a file that it extracted from an archive."""
    name, space = _registering()
    if name == "logging":
        shutdown = _Shutdown(func, space)
        _shutdowns.append(shutdown)
        _register_at_exit(shutdown, *args, **kwargs)
    elif getattr(func, "__module__", None) == "certifi.core":
        _at_end.append(func)
    else:
        _register_at_exit(func, *args, **kwargs)
    return func


def _registering() -> tuple[str, Space]:
    """Return the standard library module whose import registers a hook, and its names; an empty string for any other module."""
    frame = sys._getframe(2)
    if frame.f_code.co_name != "<module>" or not frame.f_code.co_filename.startswith(_STDLIB):
        return "", {}
    return str(frame.f_globals.get("__name__")), frame.f_globals


def _gate(hook: Hook, instead: Hook | None) -> Hook:
    def at_fork() -> None:
        if not _bare[0]:
            hook()
        elif instead is not None:
            instead()

    return at_fork


# What a horse runs in place of each module's hook.


def _naming(threading: Space) -> Hook:
    fields = threading["_main_thread"].__dict__

    def name() -> None:
        fields["_native_id"] = get_native_id()

    return name


def _seeding(random: Space) -> Hook:
    own = random["_inst"]
    fields, seed = own.__dict__, super(random["Random"], own).seed

    def from_system() -> None:
        seed()
        if fields["gauss_next"] is not None:
            fields["gauss_next"] = None

    return from_system


def _nothing(logging: Space) -> None:
    return None


_INSTEAD: dict[str, Callable[[Space], Hook | None]] = {"threading": _naming, "random": _seeding, "logging": _nothing}


class _Shutdown:
    """Runs `logging.shutdown` at exit if a handler may hold data back. It equals that function, for `atexit.unregister`."""

    def __init__(self, shutdown: Hook, logging: Space) -> None:
        self._shutdown, self._logging = shutdown, logging
        self._handlers: list[Callable[[], Any]] = logging["_handlerList"]
        self._known, self._last = -1, self._handlers[-1:]
        self._streams: list[Any] = []

    def look(self) -> None:
        """Note the handlers of task modules: a horse then checks only handlers that write somewhere, and later ones."""
        handlers = [ref() for ref in self._handlers]
        if all(map(self._is_plain, handlers)):
            self._streams = [ref for ref in self._handlers if type(ref()) is self._logging["StreamHandler"]]
            self._known, self._last = len(handlers), self._handlers[-1:]

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run `logging.shutdown`, unless it would do nothing."""
        handlers = self._handlers
        if len(handlers) == self._known and handlers[-1:] == self._last:  # new ones come last
            handlers = self._streams
        for ref in handlers:
            if not self._is_plain(ref()):
                self._shutdown(*args, **kwargs)
                return

    def __eq__(self, other: object) -> bool:
        return other is self or other == self._shutdown

    __hash__ = None  # type: ignore[assignment]

    def _is_plain(self, handler: Any) -> bool:
        """Return True if flushing and closing it does only what the end of the process does anyway."""
        kind, logging = type(handler), self._logging
        if kind is not logging["StreamHandler"]:
            return handler is None or kind is logging["NullHandler"] or kind is logging["_StderrHandler"]
        own = vars(handler)
        # A horse flushes these two at its very end.
        return (own.get("stream") is sys.stdout or own.get("stream") is sys.stderr) and "flush" not in own and "close" not in own
