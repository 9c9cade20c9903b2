"""The worker's end of a horse that runs one job after another, and the jobs in it."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Mapping
from math import inf, isinf
from time import monotonic

from fusion.execution.callbacks import CALLBACKS
from fusion.execution.frames import pack, unpack
from fusion.executors import readings
from fusion.executors.session import HorseRun
from fusion.forkserver.client import ForkServerClient
from fusion.forkserver.horse_link import Horse

#: Largest packet in bytes, as the horse reads it; a frame above it goes in pieces.
PACKET = 64 * 1024
#: Packets read at a time: a horse that sends much must not delay the others.
_READS = 32
#: Packet boundaries separate the frames of jobs. Only Linux keeps them on such a socket; elsewhere nothing is prefetched.
_KIND = socket.SOCK_SEQPACKET if hasattr(socket, "MSG_CMSG_CLOEXEC") else socket.SOCK_STREAM


class WarmHorse(Horse):
    """A horse that runs one job after another. `waiting`: the jobs in its socket behind the one that it runs.

    The worker keeps the horse's end of the socket, too. So it can take back an unread job by reading it there: either the horse has a job
    or the worker, never both.
    """

    def __init__(self, server: ForkServerClient, serial: int, end: socket.socket, limit: int, kept: socket.socket | None) -> None:
        super().__init__(server, serial, end, limit)
        self.waiting: deque[HorseRun] = deque()
        self._given: deque[tuple[HorseRun, bytes]] = deque()
        #: Number of jobs that it has run.
        self.done = 0
        #: The peak memory that it reported last; empty before its first outcome.
        self.peak = b""
        #: True if it gets no more jobs.
        self.doomed = False
        #: True if its job was sent in pieces: unread data in the socket may be the rest of it.
        self.bulky = False
        #: The deadline that the fork server has, as a safety net: never before the time of each job in it is over.
        self.told = inf
        #: Monotonic time at which it was requested.
        self.born = monotonic()
        self._kept = kept
        self._owed = 0.0
        self._endless = 0

    @property
    def ahead(self) -> bool:
        """True if it can get a job while it runs another."""
        return self._kept is not None and not self.bulky and not self.doomed

    def owe(self, run: HorseRun, sign: int) -> None:
        """Add the time that a job of this horse may take, or subtract it with `sign` -1."""
        if isinf(run.limit):
            self._endless += sign
        else:
            self._owed += sign * run.limit

    def done_by(self, now: float) -> float:
        """Return when all its jobs must have ended, if each takes its whole time."""
        return inf if self._endless else now + self._owed

    def push(self, run: HorseRun, *, ahead: bool = False) -> bool:
        """Send a job, or begin to: see `unsent`. With `ahead`, `send_ahead` sends it later; False if it is too large for that."""
        claimed = run.claimed
        frame = pack({b"id": claimed.id.encode(), b"execution_id": claimed.execution_id.encode(), **claimed.fields})
        if not ahead:
            self.unsent = memoryview(frame)
            self.flush()
            self.bulky = len(frame) > PACKET or bool(self.unsent)
            return True
        if len(frame) > PACKET:
            return False
        self._given.append((run, frame))
        return True

    def send_ahead(self) -> list[HorseRun]:
        """Send the jobs that were pushed ahead, one after another, so that a running horse finds the next one without a wake-up.

        Return those for which its socket has no room: the horse no longer has them.
        """
        unsent = self._given
        try:
            while unsent:
                self._socket.send(unsent[0][1])
                unsent.popleft()
        except OSError:
            pass
        left = [run for run, _ in unsent]
        unsent.clear()
        for run in left:
            self.waiting.remove(run)
            self.owe(run, -1)
        return left

    def flush(self) -> None:
        """Send waiting data in packets, as much as the socket takes."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self._socket.send(self.unsent[:PACKET]) :]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent = memoryview(b"")
        if self._finishing:
            self._shut_if_done()

    def say(self, fields: Mapping[bytes, bytes]) -> None:
        """Send a frame to the running job, at once or not at all. Nothing may wait in the socket before it."""
        try:
            self._socket.send(pack(fields))
        except OSError:  # it is gone
            pass

    def ask(self, run: HorseRun) -> None:
        """Ask whether it still runs this job: if so, it reads the question only afterwards."""
        try:
            self._socket.send(pack({b"running": run.claimed.execution_id.encode()}))
        except OSError:  # no room, or it is gone
            pass

    def take_back(self) -> set[bytes]:
        """Read the unread jobs back from the socket; return their executions. Meanwhile the horse may have read one of those between
        them."""
        taken = {run.claimed.execution_id.encode() for run, _ in self._given}
        self._given.clear()
        if self._kept is None or self.bulky:
            return taken
        while True:
            try:
                # A flag of this call only: O_NONBLOCK would affect the horse, too.
                packet = self._kept.recv(PACKET, socket.MSG_DONTWAIT)
            except OSError:
                return taken
            if not packet:
                return taken
            if (execution := unpack(packet[4:]).get(b"execution_id")) is not None:
                taken.add(execution)

    def recall(self, head: HorseRun) -> list[HorseRun]:
        """Take back the jobs that the horse has not read, in their order. `head`: the first job in it, before the waiting ones."""
        if not (taken := self.take_back()):
            return []
        back = [run for run in (head, *self.waiting) if run.claimed.execution_id.encode() in taken]
        self.waiting = deque(run for run in self.waiting if run not in back)
        for run in back:
            self.owe(run, -1)
        return back

    def receive(self, limit: int = 256 * 1024) -> list[dict[bytes, bytes]]:
        """Receive frames as the base class does, but keep `callback` frames in order: the frames before one show which job it belongs
        to."""
        frames: list[dict[bytes, bytes]] = []
        for _ in range(_READS):
            if self.at_eof or limit <= 0:
                break
            try:
                data = self._socket.recv(PACKET)  # room for more costs more than reading it
            except BlockingIOError:
                break
            except OSError:
                data = b""
            limit -= len(data)
            self._take(data, frames)
        return frames

    def grant_callback(self, frame: Mapping[bytes, bytes], now: float) -> None:
        """Extend the deadline, as the running job is over and its hooks or its callback begin."""
        if (deadline := self.granted(frame, now)) is not None:
            self.deadline = deadline

    def expect_callbacks(self, fields: Mapping[bytes, bytes]) -> None:
        """Note the callbacks of a job that begins; forget those of the last job."""
        self.task_over = False
        if not CALLBACKS.isdisjoint(fields):
            super().expect_callbacks(fields)
        else:
            self._callbacks = []
            self.expect_hooks(fields)

    def why_replace(self, frame: Mapping[bytes, bytes], jobs: int, rss: int | None) -> str:
        """Return why it gets no more jobs after the one with this outcome; empty if it gets more.

        `jobs`: how many it may run, 0 for any number. `rss`: the most bytes of memory that it may have held.
        """
        if b"own" in frame:
            return "Fusion's own code failed in it"
        if left := frame.get(b"recycle"):
            return left.decode("utf-8", "replace")
        if rss is not None and readings.peak(frame) > rss:
            return "memory"
        return "jobs" if jobs and self.done >= jobs else ""

    def close(self) -> None:
        """Close both ends."""
        super().close()
        if self._kept is not None:
            self._kept.close()


class WarmForkServerClient(ForkServerClient):
    """A fork server whose horses run one job after another."""

    def tell_deadline(self, horse: WarmHorse, deadline: float) -> None:
        """Set when the fork server kills the horse's group if the worker does not; `inf` for never."""
        horse.told = deadline
        self._say(f"RUN {horse.serial} {deadline!r}")

    def fork(self) -> WarmHorse:
        """Request a horse, on a socket whose other end is kept here, too."""
        self._serial += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, _KIND)
        kept = None
        try:
            kept = theirs.dup() if _KIND == socket.SOCK_SEQPACKET else None
            ours.setblocking(False)
            horse = WarmHorse(self, self._serial, ours, self._limit, kept)
        except BaseException:
            for end in (ours, theirs, kept):
                if end is not None:
                    end.close()
            raise
        self._say(f"FORK {horse.serial}", theirs)
        return horse
