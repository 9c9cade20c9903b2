"""The event file: whole lines, nothing lost when it is changed for a new one or its writer is killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fusion.events.document import from_document, to_document, to_line
from fusion.events.sink import SinkUnavailable
from fusion.sinks.jsonl import JsonLinesSink
from tests.events.hands import event
from tests.kit.waiting import eventually

FAR = 10**9


def _ids(path: Path) -> list[str]:
    """Of all files, the oldest first. Every line must be whole."""
    files = sorted(path.parent.glob(f"{path.name}.[0-9]*"), key=lambda file: -int(file.suffix[1:]))
    lines = [line for file in [*files, path] for line in file.read_text().splitlines()]
    return [json.loads(line)["id"] for line in lines]


def test_a_line_holds_the_event(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    told = event(1, log_tag="SMS_OTP", priority=2, elapsed=0.5, payload='{"args":[]}', message="line\nbreak \x1b[31m \x7f ü")
    sink = JsonLinesSink(str(path), FAR, 3)
    assert sink.write([told]) == ()
    sink.close()
    (line,) = path.read_bytes().splitlines()
    assert all(32 <= byte < 127 for byte in line), "one line, whatever is in it"
    document = json.loads(line)
    assert from_document(document) == told
    assert (document["time"], document["task"], document["task_type"]) == ("1970-01-01T00:00:00.000000Z", "SMS", "OTP")
    assert (document["payload"], document["result"]) == ('{"args":[]}', "")
    assert "delay" not in document
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0, "not for everybody"


def test_a_malformed_document_is_not_an_event() -> None:
    document = to_document(event())
    with pytest.raises(ValueError, match="not an event"):
        from_document({"id": document["id"]})


def test_a_full_file_is_changed_for_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    size = len(to_line(event(10)))
    sink = JsonLinesSink(str(path), 3 * size, 2)
    for n in range(10, 20):
        sink.write([event(n)])
    assert sorted(os.listdir(tmp_path)) == ["events.jsonl", "events.jsonl.1", "events.jsonl.2", "events.jsonl.lock"]
    assert _ids(path) == [f"1-{n}" for n in range(13, 20)]
    assert all(file.stat().st_size <= 3 * size for file in tmp_path.glob("events.jsonl*"))


def test_without_old_files_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonLinesSink(str(path), 10, 0)
    for n in range(3):
        sink.write([event(n)])
    assert _ids(path) == ["1-2"]


def test_a_batch_larger_than_a_file_is_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    JsonLinesSink(str(path), 10, 1).write([event(n) for n in range(50)])
    assert _ids(path) == [f"1-{n}" for n in range(50)]


def test_a_rotated_file_is_left_alone(tmp_path: Path) -> None:
    """logrotate, say."""
    path = tmp_path / "events.jsonl"
    sink = JsonLinesSink(str(path), FAR, 1)
    sink.write([event(1)])
    path.rename(tmp_path / "moved")
    sink.write([event(2)])
    path.unlink()
    sink.write([event(3)])
    assert _ids(path) == ["1-3"]


@pytest.mark.parametrize("torn", [b'{"id":"1-2","mess', b"x" * 200_000, b'{"id":'])
def test_a_torn_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    """Its event was never acknowledged, and comes again."""
    path = tmp_path / "events.jsonl"
    JsonLinesSink(str(path), FAR, 1).write([event(1)])
    with path.open("ab") as file:
        file.write(torn)
    JsonLinesSink(str(path), FAR, 1).write([event(2)])
    assert _ids(path) == ["1-1", "1-2"]


def test_a_file_of_one_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"y" * 100_000)
    JsonLinesSink(str(path), FAR, 1).write([event(2)])
    assert _ids(path) == ["1-2"]


def _in_a_child(run: Callable[[], None]) -> int:
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(30)
    code = process.exitcode
    assert code is not None
    return code


def test_a_batch_that_does_not_fit_on_the_disk_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    JsonLinesSink(str(path), FAR, 1).write([event(1)])

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 300, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        sink = JsonLinesSink(str(path), FAR, 1)
        try:
            sink.write([event(n, payload="p" * 100) for n in range(2, 10)])
        except SinkUnavailable as error:
            os._exit(7 if str(path) in str(error) else 8)
        os._exit(9)

    assert _in_a_child(fill) == 7
    assert _ids(path) == ["1-1"]
    JsonLinesSink(str(path), FAR, 1).write([event(2)])
    assert _ids(path) == ["1-1", "1-2"]


@pytest.mark.parametrize("where", ["file/events.jsonl", "."])
def test_an_unwritable_file_is_reported_and_tried_again(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    sink = JsonLinesSink(str(tmp_path / where), FAR, 1)
    for _ in range(2):
        with pytest.raises(SinkUnavailable, match=str(tmp_path)):
            sink.write([event(1)])


def test_many_writers_lose_and_tear_nothing(tmp_path: Path) -> None:
    """Four processes, a file that is full all the time."""
    path = tmp_path / "events.jsonl"
    context = multiprocessing.get_context("fork")

    def write(writer: int) -> None:
        sink = JsonLinesSink(str(path), 2_000, 1000)
        for n in range(100):
            sink.write([event(writer * 1000 + 10 * n + k, payload="p" * k) for k in range(5)])
        os._exit(0)

    processes = [context.Process(target=write, args=(writer,)) for writer in range(4)]
    for process in processes:
        process.start()
    eventually(lambda: all(process.exitcode is not None for process in processes), 30, why="all have written")
    assert [process.exitcode for process in processes] == [0] * 4
    found = _ids(path)
    assert len(found) == len(set(found)) == 4 * 100 * 5
    assert len(list(tmp_path.glob("events.jsonl.[0-9]*"))) > 100
