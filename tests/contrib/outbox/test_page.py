"""docs/outbox.md: its blocks, as they stand, do what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import redis
import sqlalchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fusion import Job, Queue
from fusion.contrib.outbox.database import PARKED, SENT, WAITING
from tests.architecture.source import ROOT
from tests.contrib.harness import Manages, manage
from tests.contrib.lessons import Follower
from tests.contrib.outbox.hands import TASK, Base, in_queue
from tests.contrib.test_django_page import LESSON
from tests.kit.waiting import eventually, unhurried

PAGE = (ROOT / "docs" / "outbox.md").read_text()
OF_DJANGO, OF_SQLALCHEMY, OF_PARKED = (
    PAGE.split(f"## {title}\n")[1].split("\n## ")[0] for title in ("Django", "SQLAlchemy", "What is refused is parked")
)


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_blocks_for_a_django_project(
    manages: Manages, conn: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DJANGO_SETTINGS_MODULE", "SHOP_HOME", "FUSION_CONFIG"):
        monkeypatch.delenv(name)
    follower = Follower(manages, tmp_path, without=("python manage.py fusion", "python manage.py shell", "DJANGO_SUPERUSER"))
    follower.follow(LESSON)
    reader = Follower(manages, tmp_path)
    reader.follow(OF_DJANGO)
    job_id, status = reader.said[-2].split()[-1], reader.said[-1]
    assert re.search(r"^\d rows wait, \d are on their way", status) and "Forwarder: " in status
    eventually(lambda: in_queue(conn, "mail") == [job_id], unhurried(20), why=reader.started[0].output)
    assert Job.fetch(job_id, conn).args == (1,)


@pytest.mark.long
def test_the_blocks_for_sqlalchemy(conn: redis.Redis, redis_url: str, tmp_path: Path) -> None:
    class Tables(DeclarativeBase):
        pass

    class Order(Tables):
        __tablename__ = "shop_order"
        id: Mapped[int] = mapped_column(primary_key=True)

    url = f"sqlite:///{tmp_path / 'shop.sqlite3'}"
    engine = sqlalchemy.create_engine(url)
    (code,) = blocks(OF_SQLALCHEMY, "python")
    tables, use = code.split("with Session", 1)
    names = {"Base": Tables, "engine": engine, "Session": Session, "order": Order(), "Queue": Queue, "confirm": TASK}
    exec(tables, names)  # noqa: S102
    Tables.metadata.create_all(engine)
    exec("with Session" + use, names)  # noqa: S102
    assert in_queue(conn, "mail") == []
    (line,) = blocks(OF_SQLALCHEMY, "sh")[-1:]
    words = shlex.split(line)
    assert words[:1] == ["fusion"]
    ran = manage(*_here(words[1:], url), "--burst", program=("run_worker.py",))
    assert ran.returncode == 0, ran.stderr
    (job_id,) = in_queue(conn, "mail")
    assert Job.fetch(job_id, conn).args == (1,)
    engine.dispose()


@pytest.mark.long
def test_parked_rows_are_listed_retried_and_deleted(conn: redis.Redis, tmp_path: Path) -> None:
    base = Base(f"sqlite:///{tmp_path / 'outbox.sqlite3'}")
    base.add("q", *(f"j{nth}" for nth in range(1, 20)))
    with base.engine.begin() as connection:
        table = base.tables.rows
        connection.execute(sqlalchemy.update(table).where(table.c.id >= 17).values(state=PARKED, reason="QueueFull: of the test"))
        connection.execute(sqlalchemy.update(table).where(table.c.id < 17).values(state=SENT))
    said = []
    for line in blocks(OF_PARKED, "sh")[0].splitlines():
        words = shlex.split(line, comments=True)
        more = ["--yes"] if "--yes" in line else []
        done = manage(*_here(words[1:], base.url), *more, program=("run_worker.py",))
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        said.append(done.stdout)
    assert "3 parked" in said[0]
    assert said[1:] == ["2 rows wait again\n", "1 rows are deleted\n"]
    assert base.column(state=WAITING) == ["j17", "j18"] and base.column(state=PARKED) == []


def _here(words: list[str], url: str) -> list[str]:
    """With the database of the test."""
    return [url if before == "--database" else word for before, word in zip(["", *words], words, strict=False)]
