"""The site of docs/examples as it stands."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from urllib.request import urlopen

import redis

from tests.kit.process import ProcessUnderTest
from tests.kit.waiting import eventually

SITE = "docs/examples/embedded_worker/site_with_worker.py"


def test_the_example_sends_a_mail(conn: redis.Redis, redis_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    site = ProcessUnderTest(redis_url, tmp_path / "log", SITE, str(port), env={"FUSION_TASKS": "tasks"})
    try:
        site.says("ready for jobs")
        job_id = urlopen(f"http://127.0.0.1:{port}/", b"anna@example.com").read().decode().strip()
        eventually(lambda: urlopen(f"http://127.0.0.1:{port}/{job_id}").read() == b"finished: sent to anna@example.com\n", 15)
        site.signal(signal.SIGINT)
        site.wait()
        assert site.count("warm shutdown") == 1
    finally:
        site.stop()
