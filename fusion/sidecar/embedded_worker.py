"""`EmbeddedWorker`: the interface between an application and the worker beside it."""

from __future__ import annotations

import logging
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fusion.exceptions import ConfigurationError
from fusion.kernel.importing import exists, task_modules
from fusion.settings import Settings, get_settings
from fusion.settings.handing_on import environment_for
from fusion.sidecar import SWITCH
from fusion.store.layout.names import check_queue_name, is_pattern

if TYPE_CHECKING:
    from fusion.sidecar.keeper import Keeper, WorkerPlace

log = logging.getLogger("fusion.sidecar")

_ZIP = f"python{sys.version_info.major}{sys.version_info.minor}.zip"


class EmbeddedWorker:
    """A worker beside a web application, for a small site: started as a process of its own, ended with the application.

        from fusion import EmbeddedWorker

        EmbeddedWorker(["sms", "email"], tasks=["shop.tasks"]).start()

    Every process of the application may start it: one per host keeps the worker, the others stand by and take over when that one ends.
    `with EmbeddedWorker(...):` starts and stops it.
    """

    def __init__(self, queues: Iterable[str] | str = (), *, settings: Settings | None = None, **named: Any) -> None:
        """Nothing runs yet.

        - `queues`: names, wildcards or `all`, as for the command `worker`; none: `queues` of the settings, else `default`;
        - `settings`: this process's own, if none are given;
        - others: settings by name (docs/settings.md), on top of those of the environment: `redis_url=`, `tasks=`, `slots=` ...

        ConfigurationError if one is not valid; TypeError for an unknown one; InvalidName for what can't be a queue.
        """
        if settings is not None and named:
            raise TypeError(f"give settings=, or single ones ({', '.join(named)}), not both")
        self._queues = (queues,) if isinstance(queues, str) else tuple(queues)
        for queue in self._queues:
            if not is_pattern(queue):
                check_queue_name(queue)
        self._settings = settings or (_load(named) if named else get_settings())
        self._keeper: Keeper | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process id, if it is this process that keeps it."""
        keeper = self._own_keeper
        return keeper.worker if keeper else None

    def start(self) -> EmbeddedWorker:
        """Start the worker, or stand by if another process of this host has; return this object.

        Returns at once, and does nothing if it was started already, inside of workers and jobs, or where FUSION_EMBEDDED_WORKER is 0.

        ConfigurationError if it can't work here: no such task modules, no Redis named, a setting that no other process can be given,
        Windows.
        """
        if not self._settings.embedded_worker or os.environ.get(SWITCH) == "0":
            log.debug("the embedded worker is switched off (%s)", SWITCH)
            return self
        if os.name != "posix":
            raise ConfigurationError("a worker needs Linux or macOS: run `fusion start` there; here only enqueue", code="FUS-227")
        from fusion.sidecar.host_lock import HostLock, WorkerSeats
        from fusion.sidecar.keeper import Keeper, guard

        place = self._place()
        with guard:
            if self._own_keeper is None:
                shared = self._shared(place)
                self._keeper = Keeper(place, HostLock(shared), WorkerSeats(shared))
                self._keeper.start()
        return self

    def stop(self, timeout: float | None = None) -> None:
        """End the worker and wait for it, or stand by no more. Another process of this host takes over; `start` begins anew.

        It takes no more jobs. Those that run have `timeout` seconds to finish, `shutdown_timeout` of the settings at most and by default;
        then they go back to their place and run again.
        """
        keeper = self._own_keeper
        self._keeper = None
        if keeper is not None:
            keeper.stop(keeper.patience if timeout is None else min(timeout, keeper.patience))
            keeper.join()

    def __enter__(self) -> EmbeddedWorker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    @property
    def _own_keeper(self) -> Keeper | None:
        """The keeper that this process started; a fork copies its parent's."""
        return self._keeper if self._keeper is not None and self._keeper.pid == os.getpid() else None

    def _place(self) -> WorkerPlace:
        from fusion.sidecar.keeper import WorkerPlace

        settings = self._settings
        _check_tasks(settings)
        paths = [part for path in own_paths() for part in ("--path", path)]
        return WorkerPlace(
            command=[
                python_program(),
                *safely(),
                "-m",
                "fusion",
                "worker",
                *paths,
                *(["--", *self._queues] if self._queues else ()),
            ],
            environment={**environment_for(settings, os.environ), SWITCH: "0"},
            queues=", ".join(self._queues) or "the queues of its settings",
            patience=settings.shutdown_timeout,
            hang_timeout=settings.hang_timeout,
        )

    def _shared(self, place: WorkerPlace) -> str:
        """Name of the lock: two applications, or two EmbeddedWorkers for other queues, have one each."""
        from fusion.store.client.connections import connect, url_of

        connection = connect(self._settings)
        try:
            return repr((url_of(connection), self._settings.prefix, place.queues, sorted(self._settings.tasks)))
        finally:
            connection.close()


def _load(named: dict[str, Any]) -> Settings:
    try:
        return Settings.load(**named)
    except ConfigurationError as error:
        raise ConfigurationError(_spelled(error.text()), code=error.code) from None


def _spelled(origin: str) -> str:
    """Name an argument in place of the command line's flag."""
    return re.sub(r"flag --([a-z-]+)", lambda found: f"argument {found[1].replace('-', '_')}", origin)


def _check_tasks(settings: Settings) -> None:
    """Refuse task modules that are not there: a worker without any would set all jobs aside."""
    found = task_modules(settings.tasks)
    if not found and "*" not in settings.tasks:
        raise ConfigurationError(
            "there is no module `tasks`, so the worker would have no tasks: name yours, EmbeddedWorker(tasks=['shop.tasks']) or FUSION_TASKS",
            code="FUS-227",
        )
    for name in found:
        if not exists(name):
            raise ConfigurationError(
                f"task module {name!r} (from {_spelled(settings.origin_of('tasks'))}) can't be found from here; "
                "correct the name, or add its directory to sys.path",
                code="FUS-227",
            )


def own_paths() -> list[str]:
    """The directories from which this process imports and a new one would not."""
    paths = sysconfig.get_paths()
    known = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    known |= {os.path.join(paths["stdlib"], "lib-dynload"), os.path.join(sys.base_prefix, sys.platlibdir, _ZIP)}
    return [path for path in dict.fromkeys(os.path.abspath(entry) for entry in sys.path) if path not in known]


def safely() -> list[str]:
    """Have Python import nothing from the current directory, where Fusion is installed: `runpy` would take a `types.py` there for its own."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return ["-P"] if home in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) else []


def python_program() -> str:
    """This Python's program. Inside of uWSGI and the like `sys.executable` is theirs."""
    names = [
        sys.executable,
        *(os.path.join(sys.exec_prefix, "bin", name) for name in (f"python{sysconfig.get_python_version()}", "python3")),
    ]
    for name in names:
        if re.match(r"(python|pypy)", os.path.basename(name or "")) and os.access(name, os.X_OK):
            return name
    raise ConfigurationError(
        f"sys.executable is {sys.executable!r}, which is not a Python that can run a worker; set it to one before start()",
        code="FUS-227",
    )
