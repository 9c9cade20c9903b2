"""The process that forks, kills and reaps horses, and nothing else: a lean interpreter forks four times faster than a worker.

It has one thread and waits only in its poll. Only it signals and reaps horses, so a pid that it uses is always the right one. It enforces
hard deadlines by its own clock, even if the worker is stuck.
"""

from __future__ import annotations

import _socket
import errno
import gc
import os
import select
import signal
import sys
from math import ceil, inf
from time import monotonic

from fusion.forkserver.horse import HorseSettings, flush_stdio, run_horse
from fusion.forkserver.horse_process import HorseProcess
from fusion.forkserver.offspring import PASSING, let_pass
from fusion.forkserver.packing import fill_gaps
from fusion.forkserver.preload import prepare
from fusion.forkserver.process_hooks import end, fork
from fusion.kernel import stopping, titles
from fusion.kernel.failpoints import failpoint
from fusion.kernel.linux import Children, become_subreaper, give_back_memory

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Callable, Iterable
    from resource import struct_rusage
    from typing import Any, NoReturn

    from fusion.forkserver.preload import Hook

#: Seconds in which an orphan must die, before the horse's EXIT is sent anyway.
SWEEP_LIMIT = 1.0
#: Seconds between two sweeps while orphans are dying, and until the sweep after the last EXIT.
SWEEP_INTERVAL = 0.05
SWEEP_AGAIN = 0.25
#: EXITs of horses that ended well are sent together: this many, or those of this many seconds.
EXITS_TOGETHER = 4
EXITS_WITHIN = 0.005
#: The longest wait in milliseconds: a limit may be months away, and poll() takes only a C int.
LONGEST_WAIT = 3_600_000
#: Seconds of the last sweep when the worker is gone.
FAREWELL_LIMIT = 2.0
#: Exit code if processes were left even after that.
EXIT_LEFT = 75

_CLOEXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
_ANCILLARY = _socket.CMSG_SPACE(16 * 4)
#: Bytes of one read: a larger buffer would need more pages.
_PIECE = 2048


# The originals that the loop needs, from before any task module was loaded: gevent and similar libraries replace them.
_read, _close, _kill, _killpg, _getpgid, _setpgid = os.read, os.close, os.kill, os.killpg, os.getpgid, os.setpgid
_wait4, _waitid = os.wait4, getattr(os, "waitid", None)
_poll, _select, _set_handler = select.poll, select.select, signal.signal
# Constants, as integers. A look-up in a module writes to it, and each page that is written between two forks is copied.
_POLLOUT, _SIGKILL, _BYTEORDER = select.POLLOUT, int(signal.SIGKILL), sys.byteorder
_SOL_SOCKET, _SCM_RIGHTS, _CTRUNC = _socket.SOL_SOCKET, _socket.SCM_RIGHTS, _socket.MSG_CTRUNC
_P_ALL, _LOOK = getattr(os, "P_ALL", 0), getattr(os, "WEXITED", 0) | os.WNOHANG | getattr(os, "WNOWAIT", 0)
_MAXRSS_UNIT = 1024 if sys.platform == "darwin" else 1
#: The handler of SIGCHLD. It does nothing, and runs no Python code: the wake-up pipe reports the signal.
_NOTHING: Callable[..., Any] = {}.get


class ForkServer:
    """The loop. `control` is the socket to the worker."""

    def __init__(self, control: _socket.socket) -> None:
        self._control = control
        self._control_fd = control.fileno()
        self._in = b""
        self._out = bytearray()
        self._fds: list[int | None] = []
        self._horses: dict[int, HorseProcess] = {}
        self._by_pid: dict[int, HorseProcess] = {}
        self._ended: list[bytes] = []
        self._tell_at = inf
        self._sweep_at = inf
        self._sweep_until = inf
        self._stuck: set[int] = set()
        self._settings = HorseSettings()
        #: The exit code of this process.
        self.code = 0
        self._before_fork: Hook | None = None
        self._poll: select.poll | None = None
        self._writing = False

    def run(self) -> None:
        """Run until the worker closes the socket."""
        try:
            config = self._read_config()
            become_subreaper()
            prepared = prepare(config, self._control_fd, self._say)
        except _Gone:
            return
        if prepared is None:
            return
        self._settings, self._before_fork = prepared
        self._children = Children()
        self._stuck.update(self._children.pids())  # ignore children that a task module started at import
        self._wake_fd, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else _pipe()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # unblock all signals: soft timeouts need theirs
        for signum in PASSING:
            _set_handler(signum, let_pass)
        _set_handler(signal.SIGCHLD, _NOTHING)
        stopping.listen()  # each horse inherits it
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        own = (self._control_fd, self._wake_fd, wake_writer, self._children.fd)
        self._settings.ready(_ranges(fd for fd in own if fd >= 0), hooked=self._before_fork is not None)
        self._control.setblocking(False)
        poll = self._poll = _poll()
        poll.register(self._control_fd, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        flush_stdio()
        gc.collect()
        give_back_memory()
        self._filled = fill_gaps()
        gc.freeze()
        try:
            self._say("READY")
            while True:
                self._turn(poll)
        except _Gone:
            pass
        finally:
            self._farewell()

    def _turn(self, poll: select.poll) -> None:
        for fd, event in poll.poll(self._patience()):
            if fd == self._wake_fd:
                _read(fd, 4096)
                self._reap()
            elif event & ~_POLLOUT:
                self._listen()
            else:
                self._flush()
        now = monotonic()
        if self._sweep_at <= now:
            self._reap()
        if self._tell_at <= now and self._sweep_until == inf:
            self._tell()
        for horse in self._horses.values():
            if horse.next_at <= now:
                horse.tick(now)

    def _patience(self) -> int | None:
        soonest = self._sweep_at if self._sweep_until < inf else min(self._sweep_at, self._tell_at)
        for horse in self._horses.values():
            if horse.next_at < soonest:
                soonest = horse.next_at
        return None if soonest == inf else max(0, ceil(min((soonest - monotonic()) * 1000, LONGEST_WAIT)))

    # -- requests of the worker

    def _read_config(self) -> bytes:
        data = b""
        while b"\n" not in data:
            data += self._pull()
        line, _, self._in = data.partition(b"\n")
        if not line.startswith(b"CONFIG "):
            raise SystemExit("the fork server's first line must be CONFIG; it is started by a worker, not by hand")
        return line[7:]

    def _listen(self) -> None:
        *lines, self._in = (self._in + self._pull()).split(b"\n")
        for line in lines:
            self._obey(line.split())

    def _pull(self) -> bytes:
        """Read the arrived data; queue its descriptors in the order of the FORK lines. Raise _Gone at the end of file."""
        try:
            data, ancillary, flags, _ = self._control.recvmsg(_PIECE, _ANCILLARY, _CLOEXEC)
        except BlockingIOError:
            return b""
        except OSError:
            raise _Gone from None
        if not data:
            raise _Gone
        if flags & _CTRUNC:
            self._fds.append(None)
        for level, kind, payload in ancillary:
            if level == _SOL_SOCKET and kind == _SCM_RIGHTS:
                self._fds += memoryview(payload[: len(payload) & ~3]).cast("i")
        return data

    def _obey(self, words: list[bytes]) -> None:
        verb, serial = words[0], int(words[1])
        if verb == b"FORK":
            self._fork(serial, self._fds.pop(0) if self._fds else None)
            return
        horse = self._horses.get(serial)
        if horse is None:
            return  # it has ended and its EXIT is on the way
        if verb == b"RUN":
            horse.kill_at(float(words[2]))
        elif verb == b"STOP":
            horse.stop(float(words[2]), monotonic())
        elif verb == b"WHO":
            self._say(f"PID {serial} {horse.pid}")
        elif verb == b"KILL":
            if horse.why == "-":
                horse.why = "killed"
            horse.signal(int(words[2]))

    def _fork(self, serial: int, fd: int | None) -> None:
        if fd is None:
            self._say(f"FORK_FAILED {serial} {errno.EMFILE}")
            return
        try:
            if self._before_fork is not None:
                self._before_fork()
                flush_stdio()
            failpoint("fork.before")
            pid = fork()
        except Exception as error:
            _close(fd)
            number = error.errno if isinstance(error, OSError) else None
            if number is None:  # the hook failed
                sys.excepthook(type(error), error, error.__traceback__)
            self._say(f"FORK_FAILED {serial} {number or errno.ECANCELED}")
            return
        if pid == 0:
            run_horse(fd, self._settings)
        failpoint("fork.after")
        try:
            _setpgid(pid, pid)
        except OSError:  # the child did it first, or is gone already
            pass
        _close(fd)
        self._horses[serial] = self._by_pid[pid] = HorseProcess(serial, pid)

    # -- deaths of horses

    def _reap(self) -> None:
        while (pid := self._next_dead()) is not None:
            self._bury(pid)
        self._sweep()

    def _next_dead(self) -> int | None:
        """Return a child that has ended and is not reaped yet."""
        if _waitid is None:  # macOS before Python 3.13 has no way to look without reaping
            for pid in list(self._by_pid):
                found, status, usage = _wait4(pid, os.WNOHANG)
                if found:
                    self._report(self._by_pid.pop(pid), status, usage)
            return None
        try:
            info = _waitid(_P_ALL, 0, _LOOK)
        except ChildProcessError:
            return None
        return None if info is None else info[0]

    def _bury(self, pid: int) -> None:
        horse = self._by_pid.pop(pid, None)
        if horse is not None:
            # While the zombie is not reaped, its pid identifies only this group.
            try:
                _killpg(pid, _SIGKILL)
            except OSError:
                pass
        _, status, usage = _wait4(pid, 0)
        self._stuck.discard(pid)
        if horse is not None:
            self._report(horse, status, usage)

    def _report(self, horse: HorseProcess, status: int, usage: struct_rusage) -> None:
        del self._horses[horse.serial]
        maxrss = usage[2] // _MAXRSS_UNIT
        self._ended.append(b"EXIT %d %d %d %s\n" % (horse.serial, status, maxrss, horse.why.encode()))
        ended_well = status == 0 and horse.why == "-" and len(self._ended) < EXITS_TOGETHER
        self._tell_at = min(self._tell_at, monotonic() + EXITS_WITHIN) if ended_well else 0.0

    def _sweep(self) -> None:
        """Kill children that are no horses, as they are orphans of dead ones. Once none is left, tell the worker."""
        now = monotonic()
        known = self._by_pid
        orphans = []
        for pid in self._children.pids():
            if pid not in known and pid not in self._stuck:
                orphans.append(pid)  # noqa: PERF401  a comprehension would make a function
        if orphans:
            if self._sweep_until == inf:
                self._sweep_until = now + SWEEP_LIMIT
            for pid in orphans:
                _kill_orphan(pid)
            if now < self._sweep_until:
                self._sweep_at = now + SWEEP_INTERVAL
                return
            self._stuck.update(orphans)  # it can't be killed (a hung disk): the worker must not wait for it
        self._sweep_until = inf
        # Reading the list is not atomic: a second read finds what the first missed.
        self._sweep_at = now + SWEEP_AGAIN if self._ended else inf
        if self._tell_at <= now:
            self._tell()

    def _tell(self) -> None:
        """Tell the worker which horses have ended, with all their descendants."""
        self._tell_at = inf
        self._out += b"".join(self._ended)
        self._ended.clear()
        self._flush()

    def _farewell(self) -> None:
        """Kill everything, as the worker is gone."""
        deadline = monotonic() + FAREWELL_LIMIT
        while monotonic() < deadline:
            for horse in list(self._horses.values()):
                horse.signal(signal.SIGKILL)
            while (pid := self._next_dead()) is not None:
                self._bury(pid)
            orphans = [pid for pid in self._children.pids() if pid not in self._by_pid and pid not in self._stuck]
            for orphan in orphans:
                _kill_orphan(orphan)
            if not orphans and not self._horses:
                return
            _select([self._wake_fd], [], [], SWEEP_INTERVAL)
            try:
                _read(self._wake_fd, 4096)
            except BlockingIOError:
                pass
        self.code = EXIT_LEFT

    # -- sending

    def _say(self, line: str) -> None:
        self._out += line.encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        try:
            sent = self._control.send(self._out)
            del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            raise _Gone from None
        if bool(self._out) is not self._writing and self._poll is not None:
            self._writing = not self._writing
            self._poll.modify(self._control_fd, select.POLLIN | select.POLLOUT if self._writing else select.POLLIN)


class _Gone(Exception):
    """The worker closed its end."""


def _kill_orphan(pid: int) -> None:
    try:
        if _getpgid(pid) == pid:
            _killpg(pid, signal.SIGKILL)
        _kill(pid, signal.SIGKILL)
    except OSError:
        pass


def _ranges(fds: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the numbers as ranges, each from its first up to its end: one call closes a range."""
    ranges: list[tuple[int, int]] = []
    for fd in sorted(fds):
        if ranges and ranges[-1][1] == fd:
            ranges[-1] = ranges[-1][0], fd + 1
        else:
            ranges.append((fd, fd + 1))
    return tuple(ranges)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends


def main(argv: list[str] | None = None) -> NoReturn:
    """`<control_fd>`: the descriptor of the socket to the worker."""
    arguments = sys.argv[1:] if argv is None else argv
    control = _socket.socket(fileno=int(arguments[0]))
    server = ForkServer(control)
    titles.find()  # for the processes that it forks, too, not only for itself
    titles.title("forks processes for the worker", os.getppid())
    server.run()
    end()
    flush_stdio()
    os._exit(server.code)


if __name__ == "__main__":
    main()
