"""Imports the user's task modules into the fork server, so that horses need not.

It finds, module by module, what does not survive a fork: each horse would lack a thread, and all horses would share a connected socket.
"""

from __future__ import annotations

import _socket
import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial

import fusion.kernel.json_types  # noqa: F401  each process whose job has a tuple would import it
from fusion import middleware
from fusion.context import JobStream, keep_output
from fusion.execution.frames import FrameReader, pack
from fusion.execution.perform import Performer
from fusion.forkserver import packing
from fusion.forkserver.horse import CROWDED, SAFE_FD, Channel, HorseSettings, close_django_connections, rehearse, run_one
from fusion.forkserver.offspring import note_struck
from fusion.forkserver.patched import replaced, unfit
from fusion.forkserver.process_hooks import HooksWatched
from fusion.kernel import bundled
from fusion.kernel.importing import note_complete
from fusion.kernel.linux import connected_sockets, set_parent_death_signal, thread_count, threads_above
from fusion.kernel.standard import standard_first

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any

    Hook = Callable[[], Any]

#: Files whose frames don't help to see why an import failed.
_NOISE = (__file__, importlib.__file__, bundled.__file__)

#: Functions that run for each horse, besides those that run its job.
_BESIDE_JOBS = {
    "fusion.forkserver.server": (
        *(
            "ForkServer._turn",
            "ForkServer._patience",
            "ForkServer._listen",
            "ForkServer._pull",
            "ForkServer._obey",
            "ForkServer._fork",
        ),
        *("ForkServer._reap", "ForkServer._next_dead", "ForkServer._bury", "ForkServer._report", "ForkServer._sweep"),
        *("ForkServer._tell", "ForkServer._flush"),
    ),
    "fusion.forkserver.horse_process": ("HorseProcess.__init__", "HorseProcess.kill_at"),
    "fusion.kernel.linux": ("Children.pids", "set_parent_death_signal", "become_subreaper"),
    "fusion.kernel.failpoints": ("_nothing",),
    "fusion.forkserver.process_hooks": ("fork",),
    "fusion.forkserver.horse": (
        *("run_horse", "_live", "_settle", "_lift", "_live_simply", "rehearse", "run_one", "_wind_up", "flush_stdio"),
        *("Channel.open", "Channel.has_data", "Channel.receive", "Channel.send", "Channel._check", "Channel._check_owner"),
    ),
    "fusion.forkserver.offspring": ("free_children", "note_struck"),
    "fusion.execution.frames": ("FrameReader.only",),
    "fusion.kernel.timeouts": ("deferred.__enter__", "deferred.__exit__"),
}
#: Runs after which the interpreter has specialised the code.
WARM_UP_RUNS = 32


def prepare(raw_config: bytes, control_fd: int, say: Callable[[str], None]) -> tuple[HorseSettings, Hook | None] | None:
    """Apply CONFIG: do the imports, make the settings. None if the fork server should end; the reason was sent."""
    config = json.loads(raw_config)
    if config["sys_path"]:
        sys.path[:] = standard_first(config["sys_path"])
    bundled.settle()
    sys.argv[1:] = []
    settings = HorseSettings()
    named = tuple(config["middleware"])
    settings.performer = Performer(tuple(config["tasks"]), config["max_result"], config["allow_pickle"], named)
    settings.performer.without = config["without"]
    settings.nofile = _raise_file_limit()
    if config["core"] is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (config["core"], resource.getrlimit(resource.RLIMIT_CORE)[1]))
    settings.executor, settings.places = config["executor"], config["places"]
    if settings.executor in CROWDED:
        importlib.import_module(CROWDED[settings.executor])
    settings.late = tuple(config["late"])
    # An import may hang, and meanwhile no poll loop notices the worker's end.
    set_parent_death_signal(signal.SIGKILL)
    hooks: list[Hook | None] = []
    if config["job_logs"] and not config["log_json"]:
        keep_output(JobStream)
    with HooksWatched():
        if not _set_up_logging(config, settings, say):
            return None
        for module in config["modules"]:
            if module in settings.late:
                continue
            if not _preload(module, config["preload"] == "strict", settings, control_fd, say):
                return None
        for path in named:
            if not _preload_middleware(path, say) or _is_unfit(path, settings, say):
                return None
        if not _prepare_middleware(named, say):
            return None
        for path in (config["before_fork"], config["after_fork"]):
            try:
                hooks.append(_find(path) if path else None)
            except BaseException as error:
                say(_failure(path, error))
                return None
            if path and _is_unfit(path, settings, say):
                return None
    before_fork, settings.after_fork = hooks
    if settings.log_json is not None:
        settings.log_json()
    settings.bind = bind_jobs
    bind_jobs(settings.performer)
    set_parent_death_signal(0)
    note_complete()
    if "FUSION_FAILPOINTS" not in os.environ:  # else a horse's failpoints would act here
        settings.rehearsed = _warm_up(settings.channel)
    if middleware.workers(named):
        say("HOOKED")
    if alike := settings.chance.look():
        say("ALIKE " + json.dumps(alike))
    return settings, before_fork


def bind_jobs(performer: Performer) -> None:
    """Have log lines say of which job they are, in the libraries that are imported by now."""
    if "logging" in sys.modules or "structlog" in sys.modules:
        from fusion.forkserver import job_logs

        job_logs.bind()
        performer.bind = job_logs.bind_structlog if "structlog" in sys.modules else None


def _set_up_logging(config: dict[str, Any], settings: HorseSettings, say: Callable[[str], None]) -> bool:
    """Set up the logging of jobs as in their worker. False if the fork server should end; the reason was sent."""
    if config["log_config"] is None and not config["log_json"]:
        return True
    from fusion.forkserver import job_logs

    if config["log_json"]:
        settings.log_json = job_logs.write_json
        job_logs.print_json(keep=config["job_logs"])
    if config["log_config"] is None:
        return True
    set_up = partial(job_logs.set_up, config["log_config"])
    if job_logs.NAME in settings.late:
        settings.log_to = set_up
        return True
    threads = thread_count()
    try:
        set_up()
    except BaseException as error:
        say(_failure(job_logs.NAME, error))
        return False
    if threads_above(threads):
        say(
            "TAINTED "
            + json.dumps({"module": job_logs.NAME, "reason": "starts a thread, which can't be shared by forked processes"})
        )
        return False
    return True


def _preload(module: str, strict: bool, settings: HorseSettings, control_fd: int, say: Callable[[str], None]) -> bool:
    say(f"IMPORTING {module}")
    threads, sockets = thread_count(), connected_sockets()
    try:
        bundled.load(module)
        if "django.db" in sys.modules:
            close_django_connections()
    except BaseException as error:  # SystemExit too: the module may be a script
        say(_failure(module, error))
        return False
    if _is_unfit(module, settings, say):
        return False
    reasons = []
    if started := threads_above(threads):
        reasons.append(f"starts {started} thread(s)")
    if patched := replaced():
        reasons.append(patched)
    opened = connected_sockets() - sockets - {control_fd}
    if opened:
        reasons.append(f"opens {len(opened)} connection(s)")
    if not reasons:
        return True
    reason = " and ".join(reasons) + " when it is imported, which can't be shared by forked processes"
    if strict:
        advice = "do it on first use, or start the worker with --preload auto"
        say("IMPORT_FAILED " + json.dumps({"module": module, "error": f"{module} {reason}; {advice}", "traceback": ""}))
    else:
        say("TAINTED " + json.dumps({"module": module, "reason": reason}))
    return False


def _preload_middleware(path: str, say: Callable[[str], None]) -> bool:
    try:
        middleware.all_of((path,))
        if "django.db" in sys.modules:
            close_django_connections()
    except BaseException as error:
        say(_failure(path, error))
        return False
    return True


def _prepare_middleware(named: tuple[str, ...], say: Callable[[str], None]) -> bool:
    for hook in middleware.workers(named):
        try:
            hook.prepare()
        except BaseException as error:
            say(_failure(middleware.name_of(hook), error))
            return False
    return True


def _is_unfit(module: str, settings: HorseSettings, say: Callable[[str], None]) -> bool:
    """Return True, and tell the worker, if jobs should run side by side but can't in a process that imported the module."""
    if settings.executor not in CROWDED or not (reason := unfit(module)):
        return False
    say("IMPORT_FAILED " + json.dumps({"module": module, "error": reason, "traceback": ""}))
    return True


def _failure(module: str, error: BaseException) -> str:
    from fusion.execution.outcome import exc_line, failed

    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(("<frozen importlib", *_NOISE)):
        tb = tb.tb_next
    described = failed(error, tb)
    return "IMPORT_FAILED " + json.dumps(
        {
            "module": module,
            "error": exc_line(error).decode("utf-8", "replace"),
            "traceback": described[b"exc_info"].decode("utf-8", "replace"),
        }
    )


def _warm_up(channel: Channel) -> Callable[[], object]:
    """Run a job that does nothing a few times; return a function that runs it once more, without a socket.

    Python specialises code and fills caches as it runs. After that, horses share these pages instead of copying them one by one, and the
    functions that the job needs lie side by side.
    """
    frame = pack({b"data": b'["fusion.forkserver.preload.nothing",null,[1,"x"],{}]', b"timeout": b"60", b"meta": b"{}"})
    ours, theirs = _socket.socketpair()
    performer = Performer((__name__,))

    def run() -> bytes:
        """Run it without a socket."""
        reader = FrameReader(len(frame))
        reader.feed(frame)
        answer = performer.run(reader.next() or {}, _say_nothing)
        note_struck(answer)
        return pack(answer)

    packing.pack({**_beside_jobs(), **packing.called_by(run)}, "fusion")
    for _ in range(WARM_UP_RUNS):
        ours.send(frame)
        channel.open(theirs.fileno())
        rehearse(channel, run)
        run_one(channel, performer)
        ours.recv(65536)
    ours.close()
    theirs.close()
    return run


def _beside_jobs() -> dict[int, None]:
    """Return the ids of the code of `_BESIDE_JOBS`, in their order."""
    codes: dict[int, None] = {}
    for module, names in _BESIDE_JOBS.items():
        if (space := sys.modules.get(module)) is None:
            continue  # a test warms up without a fork server
        for name in names:
            found: Any = space
            for part in name.split("."):
                found = getattr(found, part)
            codes[id(found.__code__)] = None
    return codes


def _say_nothing(fields: object) -> None:
    return None


def nothing(*args: object) -> None:
    """A task for warming up."""


def _find(path: str) -> Hook:
    module, _, name = path.rpartition(".")
    hook = getattr(importlib.import_module(module), name)
    if not callable(hook):
        raise TypeError(f"{path} is not a function")
    return hook  # type: ignore[no-any-return]


def _raise_file_limit() -> tuple[int, int] | None:
    """Raise the limit for descriptors above 1024. Return the limits to restore for tasks; None if nothing was changed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SAFE_FD + 256
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    if hard != resource.RLIM_INFINITY and hard < wanted:
        return None
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, hard
