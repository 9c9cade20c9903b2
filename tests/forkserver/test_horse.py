"""What a horse does with a job: outcome, timeouts, current job, callbacks."""

from __future__ import annotations

import fcntl
import socket
import subprocess
import sys
import termios
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest

from fusion.execution.frames import pack
from fusion.forkserver.horse import Channel
from fusion.kernel.serializers import JSONSerializer
from tests.forkserver.driver import ROOT, Driver, job_fields
from tests.kit.waiting import eventually

PLAIN = "tests.jobs.plain."


def test_runs_a_job(driver: Driver) -> None:
    ran = driver.run("add", 2, kwargs={"b": 3})
    assert ran.result == 5
    assert (ran.exited.status, ran.exited.why) == (0, "-")
    assert ran.exited.maxrss > 1000
    assert 0 <= float(ran.outcome[b"elapsed"]) < 5
    assert int(ran.outcome[b"maxrss"]) > 1000


@pytest.mark.parametrize("wakes", [1, 3])
def test_a_horse_that_is_woken_runs_the_job_that_comes_then(driver: Driver, wakes: int) -> None:
    horse = driver.server.fork()
    for _ in range(wakes):
        horse.wake()
    driver.hand_out(job_fields(f"{PLAIN}add", 2, kwargs={"b": 3}), horse)
    assert driver.finish(horse).result == 5


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
@pytest.mark.parametrize("apart", [True, False])
def test_an_empty_frame_is_no_job(kind: int, apart: bool) -> None:
    """Whether it is read before the job has come, or with it, or with the job's beginning."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    job = {b"id": b"job-1", b"data": b"x" * 100}
    channel = Channel(theirs.fileno())
    with ours, theirs:
        got: list[dict[bytes, bytes] | None] = []
        reads = threading.Thread(target=lambda: got.extend(channel.receive() for _ in range(2)))
        if apart:
            reads.start()
        for sent in (pack({}), pack({}), pack(job)):
            ours.send(sent)
            if apart:
                eventually(lambda: not unread(theirs), why="it is read")
        ours.shutdown(socket.SHUT_WR)
        if not apart:
            reads.start()
        reads.join(10)
        assert got == [job, None]


def unread(end: socket.socket) -> int:
    """Bytes that wait in a socket."""
    return int.from_bytes(fcntl.ioctl(end, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_horse_that_was_woken_in_vain_ends_with_its_socket(driver: Driver) -> None:
    horse = driver.server.fork()
    horse.wake()
    horse.close()
    exited = driver.wait_until(lambda: driver.exits.get(horse.serial), "it ends")
    assert exited.status == 0


def test_a_result_of_none_is_absent(driver: Driver) -> None:
    assert b"result" not in driver.run("nothing").outcome


def test_a_horse_runs_one_job_in_its_own_group_with_few_descriptors(driver: Driver) -> None:
    first, second = driver.run("where_am_i").result, driver.run("where_am_i").result
    assert first["pid"] != second["pid"]
    for seen in (first, second):
        assert seen["pgid"] == seen["pid"]
        assert seen["ppid"] == driver.server.pid
        assert len(seen["channel"]) == 1
        # 0, 1, 2, the listing itself, and the socket: nothing of the fork server's or of other horses.
        assert len(seen["fds"]) == 5
        assert seen["chld"] is True


def test_the_file_limit_is_put_back(tmp_path: Path) -> None:
    script = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
sys.path.insert(0, {ROOT!r})
from tests.forkserver.driver import Driver
with Driver() as driver:
    seen = driver.run("where_am_i").result
    print(seen["nofile"], len(seen["channel"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split("\n")[0] == "[256, 4096] 1"


def test_failure_has_traceback_line_and_classes(driver: Driver) -> None:
    ran = driver.run("fail", "no such number")
    assert ran.kind == "failed"
    assert ran.line == "ValueError: no such number"
    text = ran.outcome[b"exc_info"].decode()
    assert text.startswith("Traceback (most recent call last):\n")
    assert "tests/jobs/plain.py" in text
    assert "executor.py" not in text
    assert ran.outcome[b"exc_classes"].decode().split("\n") == [
        "builtins.ValueError",
        "builtins.Exception",
        "builtins.BaseException",
    ]


def test_wrong_arguments_fail(driver: Driver) -> None:
    ran = driver.run("needs_two", 1)
    assert ran.kind == "failed"
    assert ran.line.startswith("TypeError: needs_two() missing 1 required positional argument")


def test_coroutine(driver: Driver) -> None:
    assert driver.run("coroutine", 41).result == 42


def test_coroutine_is_subject_to_the_timeout(driver: Driver) -> None:
    ran = driver.run("coroutine_hangs", timeout="0.3")
    assert ran.line == "fusion.exceptions.JobTimeoutException: Task exceeded maximum timeout value (0.3 seconds) [FUS-157]"
    assert ran.seconds < 3


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (
            "os.system",
            "os.system is not among the tasks of this worker; os is part of Python: a task is a function in a module of yours",
        ),
        ("tests.jobs.plain.not_there", "module tests.jobs.plain has no function 'not_there'"),
        ("tests.jobs.nowhere.job", "there is no module tests.jobs.nowhere here"),
        ("tests.jobs.plain.get_current_job", "is fusion.context.get_current_job, imported there"),
        ("tests.jobs.plain.os.system", "tests.jobs.plain.os.system goes through a module"),
    ],
)
def test_a_task_this_worker_does_not_have_is_held(driver: Driver, func: str, reason: str) -> None:
    ran = driver.run(func)
    assert ran.kind == "held"
    assert reason in ran.line
    assert b"exc_info" not in ran.outcome


@pytest.mark.parametrize("name", ["a." * 33 + "b", "tests." + "a" * 250, "a." * 100_000 + "b"], ids=len)
def test_a_name_that_is_too_long_fails_where_it_is_met(driver: Driver, name: str) -> None:
    """Nothing that enqueues lets it in: another program wrote it."""
    ran = driver.run(name)
    assert ran.kind == "failed"
    assert ran.outcome[b"exc_classes"].startswith(b"fusion.exceptions.NameTooLong\n")
    assert len(ran.line) < 400


def test_data_that_is_not_a_call_fails(driver: Driver) -> None:
    ran = driver.finish(driver.hand_out({**job_fields("x.y"), b"data": b"\x80\x04garbage"}))
    assert ran.kind == "failed"
    assert ran.outcome[b"exc_classes"].startswith(b"fusion.exceptions.DeserializationError\n")


def test_pickle_is_refused_unless_allowed(driver: Driver) -> None:
    ran = driver.run("nothing", serializer="pickle")
    assert ran.kind == "failed"
    assert "FUSION_ALLOW_PICKLE=1" in ran.line


def test_current_job(driver: Driver) -> None:
    ran = driver.run("about_me", meta='{"k":[1]}', log_tag="SMS_OTP", attempts="2", priority="2")
    assert ran.result == {
        "id": "job-1",
        "origin": "sms",
        "func_name": PLAIN + "about_me",
        "args": [],
        "meta": {"k": [1]},
        "description": PLAIN + "about_me",
        "priority": 2,
        "timeout": 10.0,
        "attempts": 2,
        "log_tag": "SMS_OTP",
        "created_at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc),
    }
    assert b"meta" not in ran.outcome, "reading meta does not change it"


def test_meta_is_sent_at_once_and_at_the_end(driver: Driver) -> None:
    ran = driver.run("sets_meta", True)
    assert [(frame[b"kind"], frame[b"meta"]) for frame in ran.frames] == [(b"meta", b'{"step":1}'), (b"finished", b'{"step":2}')]
    assert [frame[b"kind"] for frame in driver.run("sets_meta", False).frames] == [b"finished"]


def callback(func: str, timeout: float | None = None) -> str:
    more = "" if timeout is None else f', "timeout": {timeout}'
    return f'{{"func": "{PLAIN}{func}"{more}}}'


def test_success_callback(driver: Driver) -> None:
    ran = driver.run("add", 1, on_success=callback("ok_callback"))
    assert JSONSerializer().loads(ran.outcome[b"meta"]) == {"callback": ["job-1", None, 1]}
    assert b"callback_error" not in ran.outcome


def test_failure_callback(driver: Driver) -> None:
    ran = driver.run("fail", on_failure=callback("failure_callback"))
    assert ran.kind == "failed"
    assert JSONSerializer().loads(ran.outcome[b"meta"]) == {"callback": ["ValueError", "it broke", True]}


@pytest.mark.parametrize(("task", "key", "kind"), [("add", "on_success", "finished"), ("fail", "on_failure", "failed")])
def test_a_callback_that_raises_does_not_change_the_outcome(driver: Driver, task: str, key: str, kind: str) -> None:
    ran = driver.run(task, 1, **{key: callback("raising_callback")})
    assert ran.kind == kind
    assert ran.outcome[b"callback_error"] == f"{key}: RuntimeError: the callback broke".encode()


def test_a_callback_has_its_own_timeout_and_moves_the_deadline(driver: Driver) -> None:
    ran = driver.run("nothing", timeout="0.1", on_success=callback("slow_callback", 3))
    assert ran.kind == "finished", "the callback took longer than timeout + grace"
    assert JSONSerializer().loads(ran.outcome[b"meta"]) == {"callback": "slow"}
    ran = driver.run("nothing", on_success=callback("hanging_callback", 0.2))
    assert ran.kind == "finished"
    assert b"JobTimeoutException: Callback exceeded maximum timeout value (0.2 seconds)" in ran.outcome[b"callback_error"]


def test_a_callback_must_be_allowed(driver: Driver) -> None:
    ran = driver.run("nothing", on_success='{"func": "os.getpid"}')
    assert ran.kind == "finished"
    assert b"os is part of Python" in ran.outcome[b"callback_error"]


def test_no_timeout(driver: Driver) -> None:
    assert driver.run("sleep", 0.05, timeout="-1").result == "slept"
    assert driver.run("sleep", 0.05, timeout=b"").result == "slept"


def test_the_channel_takes_no_number_that_a_task_module_uses(tmp_path: Path) -> None:
    (tmp_path / "holder.py").write_text(
        "import fcntl, os\n"
        "held = fcntl.fcntl(os.pipe()[0], fcntl.F_DUPFD, 1024)\n"
        "node = os.fstat(held).st_ino\n"
        "def same():\n    return held, os.fstat(held).st_ino == node\n"
    )
    with Driver(path=tmp_path, tasks=("holder",), modules=("holder",)) as driver:
        assert driver.run("holder.same").result == (1024, True)


def test_a_job_longer_than_the_first_read_arrives_whole() -> None:
    text = "x" * 300_000
    with Driver() as driver:
        assert [driver.run("echo", given).result for given in (text, "short")] == [[(text,), {}], [("short",), {}]]
