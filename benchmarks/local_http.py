"""A server on this machine that answers any request with an empty 200: what it costs is to be little beside the task that asks it."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
from types import TracebackType

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class LocalHTTP:
    """The server as a process of its own, as a context manager. `url` leads to it."""

    def __enter__(self) -> LocalHTTP:
        self._process = subprocess.Popen([sys.executable, "-m", "benchmarks.local_http"], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait(10)


def main() -> None:
    """Print the port and answer until killed."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                client = listener.accept()[0]
                selector.register(client, selectors.EVENT_READ)
            else:
                assert isinstance(key.fileobj, socket.socket)
                try:
                    if key.fileobj.recv(65536).endswith(b"\r\n\r\n"):
                        key.fileobj.sendall(_ANSWER)
                except OSError:
                    pass  # the client is gone
                selector.unregister(key.fileobj)
                key.fileobj.close()


if __name__ == "__main__":
    main()
