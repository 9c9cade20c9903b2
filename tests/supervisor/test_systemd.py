"""Messages to systemd, over a real datagram socket."""

from __future__ import annotations

import os
import re
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator

import pytest
import redis

from fusion import Queue
from fusion.job import Job
from fusion.supervisor.supervisor import Notifier
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.supervisor.harness import Services


class Listener:
    """systemd's end. It reads at once, as systemd does: a few datagrams that nobody reads hold up whoever sends the next."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.messages: list[dict[str, str]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while text := self.socket.recv(4096).decode():
            self.messages.append(dict(line.split("=", 1) for line in text.split("\n")))

    def said(self, name: str) -> list[str]:
        """All values of a variable so far."""
        return [message[name] for message in list(self.messages) if name in message]

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@pytest.fixture
def listener() -> Iterator[tuple[Listener, str]]:
    with tempfile.TemporaryDirectory(prefix="fus", dir="/tmp") as directory:
        path = f"{directory}/notify"
        found = Listener(path)
        yield found, path
        found.close()


@pytest.mark.long
def test_ready_when_all_are_then_watchdog_then_stopping(
    services: Services, conn: redis.Redis, listener: tuple[Listener, str]
) -> None:
    heard, path = listener
    env = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000", "FUSION_TASKS": "tests.supervisor.tasks"}
    service = services.start(2, "s", env=env)
    eventually(lambda: heard.said("READY") == ["1"], why="READY=1")
    assert len(service.ready_pids()) == 2
    begun = len(heard.said("WATCHDOG"))
    eventually(lambda: len(heard.said("WATCHDOG")) > begun + 3, why="pings come")
    eventually(lambda: "2 idle" in heard.said("STATUS"))
    job = Queue("s", conn).enqueue("tests.supervisor.tasks.environment")
    eventually(lambda: status_of(conn, job.id) == "finished")
    names = Job.fetch(job.id, conn).result
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "FUSION_SUPERVISOR"} & set(names)
    service.signal(signal.SIGTERM)
    service.ended(0)
    assert heard.said("STOPPING") == ["1"]
    assert heard.said("READY") == ["1"]


@pytest.mark.long
def test_not_ready_before_every_worker_is(services: Services, listener: tuple[Listener, str], redis_url: str) -> None:
    heard, path = listener
    env = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000", "FUSION_TASKS": "no_such_module_here"}
    service = services.start(1, "s", ready=False, env=env)
    service.says("can't be imported", 2)
    eventually(lambda: len(heard.said("WATCHDOG")) > 3)
    assert heard.said("READY") == []
    service.signal(signal.SIGTERM)
    service.ended(0)


def test_an_abstract_address_and_nobody_there() -> None:
    name = f"@fusion-test-{os.getpid()}"
    heard = Listener("\0" + name[1:])
    notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.send(READY=1, STATUS="2 idle")
    eventually(lambda: heard.said("STATUS") == ["2 idle"])
    heard.close()
    notifier.send(READY=1)
    Notifier({}).send(READY=1)


@pytest.mark.parametrize(
    ("env", "every"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "10000000"}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_whose_watchdog_it_is(env: dict[str, str], every: float | None) -> None:
    assert Notifier(env).watchdog_every == every


def unit() -> dict[str, str]:
    text = (ROOT / "deploy" / "systemd" / "fusion.service").read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def test_the_unit_outwaits_the_supervisor() -> None:
    found = unit()
    assert (found["Type"], found["KillMode"], found["Restart"]) == ("notify", "mixed", "always")
    assert "-HUP $MAINPID" in found["ExecReload"]
    shutdown = re.search(r"--shutdown-timeout (\d+)", found["ExecStart"])
    assert shutdown is not None
    # QUIT and KILL come 10 s after one another, once the time is over.
    assert int(found["TimeoutStopSec"]) >= int(shutdown[1]) + 25


def test_the_unit_starts_what_the_command_line_takes() -> None:
    from click.testing import CliRunner

    from fusion.cli.main import cli

    flags = unit()["ExecStart"].split(" start ", 1)[1].split()
    result = CliRunner().invoke(cli, ["start", *flags, "--slots", "none"])
    assert result.exit_code == 2
    assert "setting slots" in result.output, "the only thing wrong with it"


def test_a_manager_that_does_not_read_holds_nobody_up() -> None:
    """The kernel queues ten datagrams or so; the next ones are dropped."""
    with (
        tempfile.TemporaryDirectory(prefix="fus", dir="/tmp") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf,
    ):
        deaf.bind(f"{directory}/notify")
        notifier = Notifier({"NOTIFY_SOCKET": f"{directory}/notify"})
        for number in range(1000):
            notifier.send(WATCHDOG=1, STATUS=number)
        assert deaf.recv(100).decode().split("\n") == ["WATCHDOG=1", "STATUS=0"]
