"""Loaded by every Python process of a run (PYTHONPATH): whatever connects to port 6379 reaches the run's own server. RQ's tests flush the
databases of that port. A process that was not given the server's port connects to nothing there."""

from __future__ import annotations

import os
import socket

_port = int(os.environ.get("FUSION_RQ_SUITE_PORT", "0"))
_connect, _connect_ex = socket.socket.connect, socket.socket.connect_ex


def _instead(address):
    if isinstance(address, tuple) and len(address) >= 2 and address[1] == 6379:
        if not _port:
            raise ConnectionRefusedError("a run of RQ's tests has no server of its own here")
        return ("127.0.0.1", _port) if len(address) == 2 else ("::ffff:127.0.0.1", _port, *address[2:])
    return address


def _connecting(self, address):
    return _connect(self, _instead(address))


def _connecting_ex(self, address):
    return _connect_ex(self, _instead(address))


socket.socket.connect, socket.socket.connect_ex = _connecting, _connecting_ex
