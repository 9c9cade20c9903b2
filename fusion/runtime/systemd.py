"""Reports to systemd (sd_notify(3)): readiness, watchdog, a status line. Does nothing without systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends states to the service manager that started this process, if there is one. `env`: the environment, for tests."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self._address = env.get("NOTIFY_SOCKET", "")
        usec, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
        mine = not pid.isdecimal() or int(pid) == os.getpid()
        #: Seconds between two pings of the watchdog, half of what it allows; None without one.
        self.watchdog_every = int(usec) / 2e6 if usec.isdecimal() and mine else None

    def send(self, **values: str | int) -> None:
        """Send values, such as `send(READY=1, STATUS="4 workers")`."""
        if not self._address.startswith(("/", "@")):
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        message = "\n".join(f"{name}={value}" for name, value in values.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                # Don't wait for a manager that does not read: the eleventh datagram would block this process.
                channel.sendto(message.encode(), socket.MSG_DONTWAIT, address)
        except OSError:
            pass  # an error of the service manager must not end this process
