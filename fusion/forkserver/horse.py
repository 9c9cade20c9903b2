"""The forked side: a process that waits for a job, runs it, answers and exits; a warm one waits for the next job.

It never returns to the fork server's code, and it talks only to the worker, over its socket.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import _thread
import atexit
import fcntl
import os
import resource
import select
import sys
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from importlib import import_module
from time import sleep

from fusion.execution.frames import FrameError, FrameReader, pack, unpack
from fusion.execution.perform import Performer
from fusion.forkserver.offspring import free_children, note_struck
from fusion.forkserver.patched import unfit
from fusion.forkserver.random_state import Chance
from fusion.kernel import bundled, titles
from fusion.kernel.failpoints import failpoint
from fusion.kernel.linux import become_subreaper, set_parent_death_signal
from fusion.kernel.timeouts import held, was_struck
from fusion.kernel.titles import title

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from typing import Any, NoReturn

#: Exit codes: the task broke the socket to the worker; the worker sent something that is not a job.
EXIT_NO_CHANNEL = 70
EXIT_BAD_FRAME = 76
#: Exit code: it should run jobs side by side, but an imported module does not allow that.
EXIT_UNFIT = 77

#: Seconds that flushing and atexit handlers may take once the outcome is sent.
EXIT_LIMIT = 2
#: Descriptors below this are what tasks close in bulk (`os.closerange(3, 1024)`).
SAFE_FD = 1024
#: Seconds for which a frame that may be dropped waits for another thread's frame.
_OFFER_LIMIT = 0.02
#: Bytes; only a guard against garbage: the real limit is the worker's `max_payload`.
_MAX_JOB_FRAME = 1 << 28
#: Milliseconds without a job after which a spare rehearses one. A busy worker's spares get a real job earlier.
_REHEARSE_AFTER = 30
#: Executions of keyed jobs that a warm process remembers as finished: more than wait in it at a time.
_CHAIN = 64
#: Bytes of one write: a socket with packets takes at most its buffer size at once, and the worker reads packets of this size.
_PIECE = 64 * 1024
#: Bytes of the first read in a process for one job. Most jobs are smaller, and a buffer of 64 KiB would touch more pages.
_FIRST = 2048


#: Module that runs many jobs at once, by executor. The fork server loads the one that it uses.
CROWDED = {"thread": "fusion.forkserver.thread_horse", "asyncio": "fusion.forkserver.asyncio_horse"}


#: What each horse needs at its start. It is one tuple, as each attribute of the settings would be one more name to touch:
#: the pid of the fork server; its own descriptors, from each first number up to the second; a free number for the socket; the limits of
#: descriptors to restore; and the channel, the rehearsal and the performer, or None if there is more to do before the job.
Start = tuple[
    int,
    tuple[tuple[int, int], ...],
    int | None,
    tuple[int, int] | None,
    tuple["Channel", Callable[[], object] | None, Performer] | None,
]


class HorseSettings:
    """The settings of a horse. The fork server makes them, and each horse inherits them with the fork."""

    performer = Performer(())
    chance = Chance()
    late: tuple[str, ...] = ()
    after_fork: Callable[[], Any] | None = None
    #: Soft and hard limit of descriptors to restore, if the fork server raised them for itself.
    nofile: tuple[int, int] | None = None
    #: `process`: run one job; `pool`: one after another; `thread`, `asyncio`: `places` of them at once.
    executor = "process"
    places = 1
    #: Configures logging if each process must do that itself; and makes handlers write JSON if the settings say so.
    log_to: Callable[[], object] | None = None
    log_json: Callable[[], object] | None = None
    #: Binds jobs to the log lines of the libraries that are imported.
    bind: Callable[[Performer], object] | None = None
    #: Runs a job that does nothing; None: no rehearsals.
    rehearsed: Callable[[], object] | None = None
    channel: Channel
    start: Start

    def __init__(self) -> None:
        self.channel = Channel(first=_FIRST)

    def ready(self, private_fds: tuple[tuple[int, int], ...], *, hooked: bool) -> None:
        """Set `start`, just before the first fork. `private_fds`: see `Start`. `hooked`: a hook of the user's runs before each fork."""
        settled = not (hooked or self.late or self.chance.found or self.after_fork or self.log_to or self.log_json)
        plain = None
        if settled and self.executor == "process" and "django.db" not in sys.modules:
            plain = self.channel, self.rehearsed, self.performer
        place = None if hooked or _is_open(SAFE_FD) else SAFE_FD
        self.start = os.getpid(), private_fds, place, self.nofile, plain


# The originals, from before any task module was loaded: replacements by gevent or eventlet may switch to the task's own threads. A look-up
# in a module after the fork would also copy pages: of the module, its dict, the name and their classes.
_read, _write, _poll, _POLLIN, _POLLHUP = os.read, os.write, select.poll, select.POLLIN, select.POLLHUP
_close, _closerange, _dup2, _fstat, _getpid, _getppid, _setpgid, _exit = (
    os.close,
    os.closerange,
    os.dup2,
    os.fstat,
    os.getpid,
    os.getppid,
    os.setpgid,
    os._exit,
)
_fcntl, _DUPLICATE, _setrlimit, _NOFILE = fcntl.fcntl, fcntl.F_DUPFD_CLOEXEC, resource.setrlimit, resource.RLIMIT_NOFILE
_set_handler, _set_wakeup_fd, _setitimer, _mask = (
    _signal.signal,
    _signal.set_wakeup_fd,
    _signal.setitimer,
    _signal.pthread_sigmask,
)
_SIGKILL, _SIGCHLD, _SIGALRM, _SIG_DFL = int(_signal.SIGKILL), int(_signal.SIGCHLD), int(_signal.SIGALRM), _signal.SIG_DFL
_REAL, _UNBLOCK, _getitimer, _getsignal = _signal.ITIMER_REAL, _signal.SIG_UNBLOCK, _signal.getitimer, _signal.getsignal
#: The index of the inode in `os.stat_result`: its name would be one more page.
_INODE = 1
_count_threads, _allocate_lock, _modules, _run_exitfuncs = (
    _thread._count,
    _thread.allocate_lock,
    sys.modules,
    atexit._run_exitfuncs,
)
#: Only Linux has this flag; elsewhere a closed socket shows as readable.
_POLLRDHUP = getattr(select, "POLLRDHUP", 0)
#: Seconds between two checks while a job lies in the socket before the awaited frame.
_MOMENT = 0.002


class Channel:
    """The horse's end of the socket. It writes whole frames, or nothing if the task broke the socket."""

    def __init__(self, fd: int = -1, first: int = _PIECE) -> None:
        """`fd`: -1 for one that is made before the fork, see `open`. `first`: bytes of the first reads, until a frame is longer."""
        self._room = first
        self.fd, self._owner = -1, 0
        self._inode = 0.0  # an integer, with the type that fields of `os.stat_result` have
        self._lock = _allocate_lock()
        self._rest = b""
        self._reader = FrameReader(_MAX_JOB_FRAME)
        self._held = held()  # its own, used under the lock
        self._waiting = _poll()
        if fd >= 0:
            self.open(fd)

    def open(self, fd: int) -> Channel:
        """Use this socket, in the process that runs now."""
        self.fd, self._inode, self._owner = fd, _fstat(fd)[_INODE], _getpid()
        return self

    def has_data(self, milliseconds: int) -> bool:
        """Wait for data, at most for this time."""
        waiting = self._waiting
        waiting.register(self.fd, _POLLIN)
        try:
            return bool(waiting.poll(milliseconds))
        finally:
            waiting.unregister(self.fd)

    def receive(self) -> dict[bytes, bytes] | None:
        """Return the next job; None at end of file, when no more will come. Empty frames only wake this process and are skipped."""
        reader = self._reader
        while True:
            try:
                data = _read(self.fd, self._room)
            except ConnectionResetError:  # the worker died before it read all of this process's frames
                return None
            if not data:
                return None
            if (frame := reader.only(data)) is None:
                reader.feed(data)
                self._room = _PIECE
                while (frame := reader.next()) is not None and not frame:
                    pass
            if frame:
                return frame

    def send(self, fields: dict[bytes, bytes]) -> None:
        """Send a frame. OSError if the socket is gone or its number belongs to another file."""
        frame = pack(fields)
        with self._lock, self._held:
            self._check_owner()
            self._check()
            frame, self._rest = self._rest + frame, b""
            sent = _write(self.fd, frame[:_PIECE])
            while sent < len(frame):
                sent += _write(self.fd, memoryview(frame)[sent : sent + _PIECE])

    def offer(self, fields: dict[bytes, bytes]) -> bool:
        """Send a frame if that is possible without waiting. False if it was not sent. OSError as for `send`."""
        with held():
            if _getpid() != self._owner or not self._lock.acquire(timeout=_OFFER_LIMIT):
                return False
            try:
                self._check()
                return self._try(pack(fields))
            finally:
                self._lock.release()

    def _try(self, frame: bytes) -> bool:
        os.set_blocking(self.fd, False)
        try:
            if self._rest:
                self._rest = self._rest[_write(self.fd, self._rest[:_PIECE]) :]
            if self._rest:
                return False
            self._rest = frame[_write(self.fd, frame[:_PIECE]) :]  # what did not fit goes ahead of whatever comes next
            return True
        except BlockingIOError:
            return False
        finally:
            os.set_blocking(self.fd, True)

    def asked_to_end(self) -> bool:
        """Return True if the worker sends nothing more: then this process should end when it can."""
        if _getpid() != self._owner:
            return False
        poll = _poll()
        poll.register(self.fd, _POLLRDHUP)
        return any(event & (_POLLRDHUP | _POLLHUP) for _, event in poll.poll(0))

    def wait_for(self, key: bytes, value: bytes) -> bool:
        """Wait for a frame of the worker in which `key` is `value`.

        False if none can come any more: the worker ends, or it does not know this thread or process. Jobs in front of the frame stay in the
        socket: the worker takes them back.
        """
        if _getpid() != self._owner:
            return False
        from _socket import MSG_PEEK, SO_TYPE, SOCK_STREAM, SOL_SOCKET, socket

        end = socket(fileno=os.dup(self.fd))
        try:
            end.setblocking(True)  # whatever time limit for sockets a task has set
            whole = end.getsockopt(SOL_SOCKET, SO_TYPE) != SOCK_STREAM
            while True:
                data = end.recv(_PIECE, MSG_PEEK)
                if not data:
                    return False
                with held():
                    if whole and _is_job(data):
                        frame = None
                    else:
                        self._reader.feed(end.recv(_PIECE if whole else len(data)))
                        frame = self._reader.next()
                while frame is not None:
                    if frame.get(key) == value:
                        return True
                    frame = self._reader.next()
                if whole and _is_job(data):
                    sleep(_MOMENT)
        except ConnectionResetError:
            return False
        finally:
            end.close()

    def _check_owner(self) -> None:
        if _getpid() != self._owner:
            raise OSError("only the job's own process can reach the worker, not one that its task has forked")

    def _check(self) -> None:
        if _fstat(self.fd)[_INODE] != self._inode:
            raise OSError("the task closed Fusion's socket")


def _is_job(packet: bytes) -> bool:
    """Return True if a packet is no known message of the worker, so that it must be a job."""
    return b"stored" not in (frame := unpack(packet[4:])) and b"running" not in frame and bool(frame)


def run_horse(fd: int, settings: HorseSettings) -> NoReturn:
    """Run this process as a horse, from just after the fork to its end."""
    code = EXIT_NO_CHANNEL
    try:
        code = _live(fd, settings)
    except FrameError:
        code = EXIT_BAD_FRAME
    except BaseException:  # an after_fork hook failed, say
        sys.excepthook(*sys.exc_info())
    finally:
        _exit(code)


def _live(fd: int, settings: HorseSettings) -> int:
    server_pid, private_fds, place, nofile, plain = settings.start
    _settle(server_pid, private_fds)
    if plain is None and settings.chance.found:
        settings.chance.after_fork()
    fd = _lift(fd, place, nofile)
    failpoint("horse.start")
    code = _live_simply(fd, *plain) if plain is not None else _live_otherwise(fd, settings)
    _wind_up()
    return code


def _live_simply(fd: int, channel: Channel, rehearsed: Callable[[], object] | None, performer: Performer) -> int:
    """Run one job, with nothing to do before it."""
    channel.open(fd)
    if rehearsed is not None:
        rehearse(channel, rehearsed)
    return run_one(channel, performer)


def _live_otherwise(fd: int, settings: HorseSettings) -> int:
    """Run jobs as the settings say, after hooks and late imports."""
    refusal = _prepare(settings)
    if refusal:
        Channel(fd).send(refusal)
        _exit(EXIT_UNFIT)
    if settings.executor in CROWDED:
        return int(import_module(CROWDED[settings.executor]).run_jobs(fd, settings))
    if settings.executor == "pool":
        return run_many(Channel(fd), settings.performer, settings.chance)
    if settings.late and not _tell_ready(Channel(fd)):
        _exit(EXIT_NO_CHANNEL)
    return _live_simply(fd, settings.channel, settings.rehearsed, settings.performer)


def run_one(channel: Channel, performer: Performer) -> int:
    """Wait for a job, run it and answer. Return the exit code."""
    fields = channel.receive()
    if fields is None:
        return 0
    if titles.shown:
        title(*_about(fields))
    answer = performer.run(fields, channel.send, channel.offer, channel)
    note_struck(answer)
    failpoint("horse.before_outcome")
    try:
        channel.send(answer)
    except OSError:
        return EXIT_NO_CHANNEL
    failpoint("horse.after_outcome")
    return 0


def _about(fields: dict[bytes, bytes]) -> tuple[object, ...]:
    return "runs", fields.get(b"func", b"a job"), fields.get(b"id", b"")


def run_many(channel: Channel, performer: Performer, chance: Chance) -> int:
    """Run jobs as they come, until no more come or one leaves something behind. Return the exit code."""
    from fusion.forkserver.contamination import Leftovers

    leftovers = Leftovers(SAFE_FD)
    finished: deque[bytes] = deque(maxlen=_CHAIN)
    while (fields := channel.receive()) is not None:
        if b"stored" in fields:  # its job waits for that no more
            continue
        if b"running" in fields:
            channel.send({b"kind": b"idle", b"execution_id": fields[b"running"]})
            continue
        if b"follows" in fields and not _may_follow(fields, finished):
            channel.send({b"kind": b"skipped", b"execution_id": fields[b"execution_id"]})
            continue
        title(*_about(fields))
        # What one job sets in a context variable, decimal's precision say, the next one must not find.
        answer = copy_context().run(performer.run, fields, channel.send, channel.offer, channel)
        answer[b"execution_id"] = fields.get(b"execution_id", b"")
        note_struck(answer)
        failpoint("horse.before_outcome")
        if b"ties" in fields and answer.get(b"kind") == b"finished":
            finished.append(fields[b"execution_id"])
        left = b"isolated" if fields.get(b"isolate") else b"a soft timeout or stop" if was_struck() else leftovers.found()
        if left:
            answer[b"recycle"] = left
        try:
            channel.send(answer)
        except OSError:
            return EXIT_NO_CHANNEL
        failpoint("horse.after_outcome")
        if left:
            return 0
        title("waits for a job")
        flush_stdio()
        chance.between_jobs()
        if "django.db" in sys.modules:
            renew_django_connections()
    return 0


def _may_follow(fields: dict[bytes, bytes], finished: deque[bytes]) -> bool:
    """Return True if a job may run in the slot of its predecessor: that one has finished in this process. So may one without a predecessor."""
    own, _, before = fields[b"follows"].partition(b" ")
    return own != fields[b"execution_id"] or before in finished


def _settle(server_pid: int, private_fds: tuple[tuple[int, int], ...]) -> None:
    """Give this process its own group, make it adopt orphans, and make it die with the fork server."""
    try:
        _setpgid(0, 0)
    except OSError:  # the fork server did it first
        pass
    set_parent_death_signal(_SIGKILL)
    if _getppid() != server_pid:
        _exit(0)
    become_subreaper()
    _set_wakeup_fd(-1)
    _set_handler(_SIGCHLD, _SIG_DFL)
    free_children()
    for first, end in private_fds:
        _closerange(first, end)


def _lift(fd: int, place: int | None, nofile: tuple[int, int] | None) -> int:
    try:
        # `fcntl` first tries to read its argument as text, which touches more pages.
        lifted: int = _fcntl(fd, _DUPLICATE, SAFE_FD) if place is None else _dup2(fd, place, False)
        _close(fd)
    except OSError:  # a hard limit of 1024 or less
        lifted = fd
    if nofile is not None:
        _setrlimit(_NOFILE, nofile)
    return lifted


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _prepare(settings: HorseSettings) -> dict[bytes, bytes]:
    """Run the hooks and late imports of each process, while it is still a spare.

    Return a report for the worker if jobs can't run side by side in this process.
    """
    if "django.db" in _modules:
        close_django_connections()
    if settings.after_fork is not None:
        settings.after_fork()
    if settings.log_to is not None:
        settings.log_to()
    for module in settings.late:
        try:
            bundled.load(module)
        except BaseException:
            pass  # the job that needs it imports it again and fails with the reason
        if settings.executor in CROWDED and (why := unfit(module)):
            return {b"kind": b"unfit", b"module": module.encode(), b"why": why.encode()}
    if settings.late:
        settings.chance.after_imports()
    if settings.late or settings.after_fork is not None:  # what has come since the fork
        if settings.log_json is not None:
            settings.log_json()
        if settings.bind is not None:
            settings.bind(settings.performer)
    return {}


def _tell_ready(channel: Channel) -> bool:
    """Report to the worker that this process has done its own imports; before that it sends no job. False if the worker is gone."""
    try:
        channel.send({b"kind": b"ready"})
    except OSError:
        return False
    return True


def rehearse(channel: Channel, run: Callable[[], object]) -> None:
    """Run a job that does nothing if none has come for a moment. So this process copies the pages that jobs write to before a real job
    waits."""
    if not channel.has_data(_REHEARSE_AFTER) and not _would_show():
        run()


def _would_show() -> bool:
    """Return True if user code runs here already: a thread, which could see the rehearsed job, or an alarm."""
    return bool(_count_threads() or _getsignal(_SIGALRM) != _SIG_DFL or _getitimer(_REAL)[0])


def close_django_connections() -> None:
    """Close inherited connections, so that each process opens its own: two processes on one connection would mix up their answers."""
    try:
        sys.modules["django.db"].connections.close_all()
    except Exception:  # imported, but without settings: then there are none
        pass


def renew_django_connections() -> None:
    """Close connections that are broken or too old, as Django does between two requests."""
    try:
        sys.modules["django.db"].close_old_connections()
    except Exception:  # imported, but without settings
        pass


def _wind_up() -> None:
    """Flush and run atexit handlers, with a time limit that the kernel enforces: the outcome is sent, so nothing may delay the exit."""
    _set_handler(_SIGALRM, _SIG_DFL)
    _setitimer(_REAL, EXIT_LIMIT)
    _mask(_UNBLOCK, (_SIGALRM,))
    try:
        _run_exitfuncs()
    except BaseException:  # it has printed the traceback; the job's outcome stands
        pass
    flush_stdio()


def flush_stdio() -> None:
    """Flush stdout and stderr. Before a fork, or both processes print the buffer; before `os._exit`, or it is lost."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # closed, or replaced by a task with something of its own
            pass
