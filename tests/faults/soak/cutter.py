"""A way to Redis that can be cut at the worst moment: after a request has arrived, before its answer is back."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from tests.kit import guarded


class Cutter:
    """Listens on the unix socket `path` and passes all on to `target`. Linux gives a reader of a unix socket whole requests here, as
    clients send each in one write."""

    def __init__(self, path: Path, target: Path) -> None:
        self.url = guarded.as_user(f"unix://{path}?db=0")
        self._target = str(target)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._to_cut = 0
        self.cuts = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """The next answer is not delivered: its connection ends instead."""
        with self._lock:
            self._to_cut += 1

    def close(self) -> None:
        with self._lock:
            doomed, self._open = [self._listener, *self._open], set()
        for each in doomed:
            _end(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                server.connect(self._target)
            except OSError:  # Redis is away
                client.close()
                server.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for source, sink, answers in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, sink, answers), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        try:
            while (data := source.recv(1 << 18)) and not (answers and self._strikes()):
                sink.sendall(data)
        except OSError:
            pass
        with self._lock:
            self._open -= {source, sink}
        _end(source)
        _end(sink)

    def _strikes(self) -> bool:
        with self._lock:
            if not self._to_cut:
                return False
            self._to_cut -= 1
            self.cuts += 1
            return True


def _end(one: socket.socket) -> None:
    """Close, also for a thread that waits in it."""
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()
