"""Progress bars: the commands that show one, where, and from when on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.batch import Batch
from fusion.cli import progress as bars
from fusion.cli.output import kept
from fusion.settings import use_settings
from fusion.store.layout.names import CALLBACKS
from fusion.store.write.event_broker import EventBroker
from fusion.trash import Trash
from tests.cli.conftest import ROOT, Fail, Hands, Invoke
from tests.cli.terminal import terminal
from tests.events.hands import reader

TASK = "tasks.sms.sendSMS"
#: Commands that may last, by their words: the words before the bar. Of those with --json there is none.
LASTING = {
    "requeue --all": "requeueing",
    "requeue --all --queue sms": "reading failed jobs",
    "requeue sms-000": "requeueing",
    "requeue --query state:failed": "looking at jobs",
    "cancel --query queue:email": "operation ",
    "quarantine --error * --reason why": "quarantining",
    "failures --queue sms": "reading failed jobs",
    "cancel --queue email": "looking at jobs",
    "stop --queue email": "stopping",
    "cancel e0 e1": "canceling",
    "delete e0 --yes": "deleting",
    "reprioritise e0 --priority high": "moving",
    "trash restore --all": "restoring",
    "batch cancel b": "canceling",
    "jobs func:tasks.sms.sendSMS --count": "looking at jobs",
    "jobs e0": "looking at jobs",
    "doctor": "examining",
    "callbacks retry --all": "retrying",
    "events tail --job e0": "reading the stream",
}
#: Such commands that have no --json.
PLAIN = {
    "empty email --yes": "emptying email",
    "trash empty --yes": "emptying the trash",
    "events replay": "delivering to file",
    "jobs --csv": "looking at jobs",
}


@pytest.fixture
def all_there(conn: redis.Redis, fail: Fail, hands: Hands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Something for each of these commands."""
    monkeypatch.setenv("FUSION_EVENTS_FILE", str(tmp_path / "events"))
    use_settings(None)
    fail("sms", 3)
    queue = Queue("email", conn)
    for name in ("e0", "e1", "gone"):
        queue.enqueue(TASK, job_id=name)
    Trash(conn).delete(["gone"])
    with Batch(id="b", connection=conn) as batch:
        queue.enqueue(TASK, batch=batch)
    reader(EventBroker(conn), "host.1", "file").read(1, 0)
    conn.xadd("rq:events:parked:file", {"why": "w", "document": "none"})
    worker, courier = hands("q").register(), hands(CALLBACKS, name="host.1.courier").register()
    Queue("q", conn).enqueue(TASK, callback_url="https://hooks.example.com/fusion")
    worker.end("finished", worker.turn(slots=1))
    courier.end("failed", courier.turn(slots=1))
    yield
    use_settings(None)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if stderr were a terminal, and two seconds over."""
    monkeypatch.setattr(bars, "watched", lambda: True)
    monkeypatch.setattr(bars, "PATIENCE", 0.0)


@pytest.mark.usefixtures("all_there", "watched")
@pytest.mark.parametrize(("words", "label"), [*LASTING.items(), *PLAIN.items()])
def test_commands_that_may_last_have_a_bar(invoke: Invoke, words: str, label: str) -> None:
    assert label in invoke(*words.split(), *["--yes"] * ("--query" in words and "requeue" not in words), code=None).stderr


@pytest.mark.usefixtures("all_there", "watched")
@pytest.mark.parametrize(("words", "label"), LASTING.items())
def test_none_in_json(invoke: Invoke, words: str, label: str) -> None:
    said = invoke(*words.split(), "--json", *["--yes"] * ("--query" in words and "requeue" not in words), code=None)
    assert label not in said.stderr


def test_none_while_output_is_collected(watched: None, capsys: pytest.CaptureFixture[str]) -> None:
    with kept(), bars.progress("doing", 3) as advance:
        advance(3)
    assert capsys.readouterr().err == ""


# -- on a terminal

#: Each part takes 0.9 s by the clock of the bars, however fast the machine is.
SLOW = (
    "import time, types; import fusion.cli.progress as bars; from fusion.store.write.job_broker import JobBroker as B; "
    "clock = [time.time()]; bars.time = types.SimpleNamespace(time=lambda: clock[-1]); old = B.requeue; "
    "B.requeue = lambda *a, **k: (clock.append(clock[-1] + 0.9), old(*a, **k))[1]"
)


def test_a_bar_is_drawn_once_two_seconds_are_over(fail: Fail, redis_url: str) -> None:
    fail("sms", 401)
    with terminal("requeue", "--all", columns=60, first=SLOW, FUSION_REDIS_URL=redis_url) as screen:
        assert screen.end() == 0
    drawn = [int(percent) for percent in re.findall(r"(\d+)%", screen.drawn)]
    assert drawn[0] == 74, "the third part of a hundred jobs ends when two seconds are over"
    assert drawn == sorted(drawn) and drawn[-1] == 100
    bars = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", screen.drawn) if "%" in line]
    assert max(map(len, bars)) <= 60
    assert screen.drawn.rstrip().endswith("401 jobs requeued"), "what comes after begins a line of its own"


def test_short_commands_have_none(fail: Fail, redis_url: str) -> None:
    fail("sms", 5)
    patient = "import fusion.cli.progress as bars; bars.PATIENCE = 60.0"  # a busy machine may need two seconds for this
    with terminal("requeue", "--all", first=patient, FUSION_REDIS_URL=redis_url) as screen:
        assert screen.end() == 0
    assert "%" not in screen.drawn


@pytest.mark.parametrize("to", ["a pipe", "a file"])
def test_the_reader_of_a_pipe_has_the_terminal_for_itself(fail: Fail, redis_url: str, tmp_path: Path, to: str) -> None:
    fail("sms", 5)
    ours, theirs = os.openpty()
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import fusion.cli.progress as bars; bars.PATIENCE = 0.0; import runpy; "
    )
    code += f"runpy.run_path({str(ROOT / 'run_worker.py')!r}, run_name='__main__')"
    with (tmp_path / "out").open("wb") as file:
        ended = subprocess.run(
            [sys.executable, "-c", code, "jobs", "--csv"],
            stdout=subprocess.PIPE if to == "a pipe" else file,
            stderr=theirs,
            env={**os.environ, "FUSION_REDIS_URL": redis_url},
            timeout=30,
            check=True,
        )
    os.write(theirs, b"end\n")
    assert (b"looking at jobs" in os.read(ours, 65536)) is (to == "a file")
    rows = ended.stdout if to == "a pipe" else (tmp_path / "out").read_bytes()
    assert len(rows.splitlines()) == 6
    os.close(ours)
    os.close(theirs)
