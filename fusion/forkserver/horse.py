"""The forked side: a process that waits for a job, runs it, answers and exits; a warm one waits for the next job.

It never returns to the fork server's code, and it talks only to the worker, over its socket.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found, unused-ignore]  # the wrappers in `signal` make enum members: slow after a fork
import _thread
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
from fusion.kernel import bundled, stopping
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


#: Module that runs many jobs at once, by executor. The fork server loads the one that it uses.
CROWDED = {"thread": "fusion.forkserver.thread_horse", "asyncio": "fusion.forkserver.asyncio_horse"}


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
    server_pid = 0
    #: Descriptors of the fork server alone: from each first number up to the second.
    private_fds: tuple[tuple[int, int], ...] = ()
    #: Runs a job that does nothing; None: no rehearsals.
    rehearsed: Callable[[], object] | None = None


# The originals, from before any task module was loaded: replacements by gevent or eventlet may switch to the task's own threads.
_read, _write, _poll, _POLLIN, _POLLHUP = os.read, os.write, select.poll, select.POLLIN, select.POLLHUP
#: Only Linux has this flag; elsewhere a closed socket shows as readable.
_POLLRDHUP = getattr(select, "POLLRDHUP", 0)
#: Seconds between two checks while a job lies in the socket before the awaited frame.
_MOMENT = 0.002


class Channel:
    """The horse's end of the socket. It writes whole frames, or nothing if the task broke the socket."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._inode = os.fstat(fd).st_ino
        self._owner = os.getpid()
        self._lock = _thread.allocate_lock()
        self._rest = b""
        self._reader = FrameReader(_MAX_JOB_FRAME)

    def receive(self) -> dict[bytes, bytes] | None:
        """Return the next job; None at end of file, when no more will come. Empty frames only wake this process and are skipped."""
        reader = self._reader
        while True:
            try:
                data = _read(self.fd, 65536)
            except ConnectionResetError:  # the worker died before it read all of this process's frames
                return None
            if not data:
                return None
            if (frame := reader.only(data)) is None:
                reader.feed(data)
                while (frame := reader.next()) is not None and not frame:
                    pass
            if frame:
                return frame

    def send(self, fields: dict[bytes, bytes]) -> None:
        """Send a frame. OSError if the socket is gone or its number belongs to another file."""
        frame = pack(fields)
        with self._lock, held():
            self._check_owner()
            self._check()
            frame, self._rest = self._rest + frame, b""
            sent = _write(self.fd, frame[:_PIECE])
            while sent < len(frame):
                sent += _write(self.fd, memoryview(frame)[sent : sent + _PIECE])

    def offer(self, fields: dict[bytes, bytes]) -> bool:
        """Send a frame if that is possible without waiting. False if it was not sent. OSError as for `send`."""
        with held():
            if os.getpid() != self._owner or not self._lock.acquire(timeout=_OFFER_LIMIT):
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
        if os.getpid() != self._owner:
            return False
        poll = _poll()
        poll.register(self.fd, _POLLRDHUP)
        return any(event & (_POLLRDHUP | _POLLHUP) for _, event in poll.poll(0))

    def wait_for(self, key: bytes, value: bytes) -> bool:
        """Wait for a frame of the worker in which `key` is `value`.

        False if none can come any more: the worker ends, or it does not know this thread or process. Jobs in front of the frame stay in the
        socket: the worker takes them back.
        """
        if os.getpid() != self._owner:
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
        if os.getpid() != self._owner:
            raise OSError("only the job's own process can reach the worker, not one that its task has forked")

    def _check(self) -> None:
        if os.fstat(self.fd).st_ino != self._inode:
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
        os._exit(code)


def _live(fd: int, settings: HorseSettings) -> int:
    _settle(settings)
    if settings.chance.found:
        settings.chance.after_fork()
    fd = _lift(fd, settings)
    failpoint("horse.start")
    refusal = _prepare(settings)
    if refusal:
        Channel(fd).send(refusal)
        return EXIT_UNFIT
    if settings.executor in CROWDED:
        code = int(import_module(CROWDED[settings.executor]).run_jobs(fd, settings))
    elif settings.executor == "pool":
        code = run_many(Channel(fd), settings.performer, settings.chance)
    else:
        channel = Channel(fd)
        if settings.late and not _tell_ready(channel):
            return EXIT_NO_CHANNEL
        if settings.rehearsed is not None:
            rehearse(channel, settings.rehearsed)
        code = run_one(channel, settings.performer)
    _wind_up()
    return code


def run_one(channel: Channel, performer: Performer) -> int:
    """Wait for a job, run it and answer. Return the exit code."""
    fields = channel.receive()
    if fields is None:
        return 0
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


def _settle(settings: HorseSettings) -> None:
    """Give this process its own group, make it adopt orphans, and make it die with the fork server."""
    try:
        os.setpgid(0, 0)
    except OSError:  # the fork server did it first
        pass
    set_parent_death_signal(_signal.SIGKILL)
    if os.getppid() != settings.server_pid:
        os._exit(0)
    become_subreaper()
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    stopping.listen()
    free_children()
    for first, end in settings.private_fds:
        os.closerange(first, end)


def _lift(fd: int, settings: HorseSettings) -> int:
    try:
        lifted = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SAFE_FD)
        os.close(fd)
    except OSError:  # a hard limit of 1024 or less
        lifted = fd
    if settings.nofile is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, settings.nofile)
    return lifted


def _prepare(settings: HorseSettings) -> dict[bytes, bytes]:
    """Run the hooks and late imports of each process, while it is still a spare.

    Return a report for the worker if jobs can't run side by side in this process.
    """
    if "django.db" in sys.modules:
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
    if settings.log_json is not None and (settings.late or settings.after_fork is not None):
        settings.log_json()  # what has come since the fork
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
    poll = _poll()
    poll.register(channel.fd, _POLLIN)
    if not poll.poll(_REHEARSE_AFTER) and not _would_show():
        run()


def _would_show() -> bool:
    """Return True if user code runs here already: a thread, which could see the rehearsed job, or an alarm."""
    return bool(
        _thread._count() or _signal.getsignal(_signal.SIGALRM) != _signal.SIG_DFL or _signal.getitimer(_signal.ITIMER_REAL)[0]
    )


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
    _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
    _signal.setitimer(_signal.ITIMER_REAL, EXIT_LIMIT)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))
    atexit = sys.modules.get("atexit")
    if atexit is not None:
        try:
            atexit._run_exitfuncs()
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
