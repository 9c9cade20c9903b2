"""The event loop of a long-running process: descriptors with handlers, nothing else."""

from __future__ import annotations

import select
from collections.abc import Callable

Handler = Callable[[], None]
#: The longest wait in seconds: a timer may be months away, and poll() takes only a C int of milliseconds.
_LONGEST = 3600.0
_READ = select.POLLIN | select.POLLPRI
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Loop:
    """poll(2) with a handler for each descriptor. A worker watches a few, and two change with each job: a change is cheap here."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._readers: dict[int, Handler] = {}
        self._writers: dict[int, Handler] = {}
        self._followed: dict[str, int | None] = {}

    def watch(self, fd: int, on_read: Handler) -> None:
        """Call `on_read` whenever `fd` has data, or is at its end."""
        self._readers[fd] = on_read
        self._poll.register(fd, _READ)

    def handler(self, fd: int) -> Handler | None:
        """The handler of `fd`, None if nobody watches it."""
        return self._readers.get(fd)

    def follow(self, name: str, fd: int | None, on_read: Handler) -> None:
        """Watch the current descriptor of `name` in place of its last one: a connection may close and open again."""
        before = self._followed.get(name)
        if before == fd and (fd is None or self._readers.get(fd) == on_read):
            return
        # The number of a broken connection may belong to another socket by now.
        if before is not None and before != fd and self.handler(before) == on_read:
            self.unwatch(before)
        if fd is not None and self.handler(fd) != on_read:
            self.watch(fd, on_read)
        self._followed[name] = fd

    def want_write(self, fd: int, on_write: Handler | None) -> None:
        """Call `on_write` when `fd` takes data again; None to stop."""
        if on_write is None:
            self._writers.pop(fd, None)
            self._poll.register(fd, _READ)
        else:
            self._writers[fd] = on_write
            self._poll.register(fd, _READ | select.POLLOUT)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor; nothing if nobody watches it."""
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)
        self._writers.pop(fd, None)

    def run_once(self, timeout: float) -> None:
        """Wait up to `timeout` seconds, then call the handlers of what is ready. A handler may unwatch any descriptor."""
        for fd, event in self._poll.poll(max(0, int(min(timeout, _LONGEST) * 1000 + 0.999))):
            if event & select.POLLOUT and (writer := self._writers.get(fd)):
                writer()
            if event & (_READ | _GONE) and (reader := self._readers.get(fd)):
                reader()
