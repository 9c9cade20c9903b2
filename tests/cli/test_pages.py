"""Pages on frameworks and on RQ: their blocks, as they stand, in an environment with the packages that the page names and no others."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from fusion import Job
from tests.architecture.source import ROOT
from tests.kit.installed import install
from tests.kit.reader import Reader, free_port
from tests.kit.waiting import eventually, unhurried

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text()


def extra_of(page: str) -> str:
    """The extra of the line that installs it."""
    (found,) = re.findall(r"^pip install 'fusion-queue\[([\w,]+)\]'$", text_of(page), re.MULTILINE)
    return str(found)


@contextmanager
def reader(clone: Path, home: Path, redis_url: str, extras: str, also: tuple[str, ...], **environment: str) -> Iterator[Reader]:
    programs = install(clone, home / "installed", *extras.split(","), also=also)
    shop = home / "shop"
    shop.mkdir()
    with Reader(shop, programs, {"FUSION_REDIS_URL": redis_url, **environment}, skipped=("pip install ",)) as found:
        yield found


def register(port: int, name: str) -> str:
    """Call the page's view; the id of the job that it enqueued."""

    def called() -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/users/{name}", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return str(json.load(answer)["job"])
        except OSError:
            return ""

    return eventually(called, timeout=unhurried(60))


@pytest.mark.parametrize(
    ("page", "also", "result"),
    [("flask", ("sqlalchemy", "psycopg"), "shop welcomes anna"), ("fastapi", ("uvicorn",), "welcome, anna")],
)
def test_a_framework(
    page: str, also: tuple[str, ...], result: str, clone: Path, tmp_path: Path, redis_url: str, conn: redis.Redis
) -> None:
    port = free_port()
    ports = {"FLASK_RUN_PORT": str(port), "UVICORN_PORT": str(port)}
    with reader(clone, tmp_path, redis_url, extra_of(page), also, **ports) as following:
        assert following.follow(text_of(page)) >= 3
        job = Job.fetch(register(port, "anna"), conn)
        assert job.wait(unhurried(60)) == "finished"
        assert job.result == result


def test_from_rq(clone: Path, tmp_path: Path, redis_url: str, conn: redis.Redis) -> None:
    """A program for RQ is checked, changes its imports as the page has it, and its job runs in the page's worker."""
    with reader(clone, tmp_path, redis_url, "", ()) as following:
        project = following.here / "path" / "to" / "project"
        project.mkdir(parents=True)
        (project / "view.py").write_text("from rq import Queue\n")
        tasks = following.here / "shop"
        tasks.mkdir()
        for name in ("__init__", "tasks", "mail"):
            (tasks / f"{name}.py").write_text("def send(to):\n    return f'sent to {to}'\n")
        assert following.follow(text_of("from-rq")) == 3
        code = "from fusion.rq import Queue; print(Queue('high').enqueue('shop.mail.send', 'anna').id)"
        python = tmp_path / "installed" / "bin" / "python"
        sent = subprocess.run(
            [python, "-c", code],
            cwd=following.here,
            env={"FUSION_REDIS_URL": redis_url},
            capture_output=True,
            text=True,
            check=True,
        )
        job = Job.fetch(sent.stdout.strip(), conn)
        assert job.wait(unhurried(60)) == "finished"
        assert job.result == "sent to anna"
