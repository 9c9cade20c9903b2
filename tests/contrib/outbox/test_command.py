"""`manage.py fusion_outbox`: run, status, retry and delete, as `fusion outbox` has them."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.settings import use_settings
from fusion.store.write.broker import Broker
from tests.contrib.databases import ShopDatabase
from tests.contrib.harness import manage
from tests.contrib.outbox.hands import TASK, in_queue
from tests.kit.hands import put

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def outbox(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`FUSION["OUTBOX"]` is on, here and in what the test starts."""
    from django.test import override_settings

    monkeypatch.setenv("SHOP_OUTBOX", "default")
    with override_settings(FUSION={"OUTBOX": True}):
        yield


def write(*ids: str) -> None:
    for job_id in ids:
        Queue("mail").enqueue(TASK, job_id=job_id)


def states(using: str = "default") -> dict[str, int]:
    from fusion.contrib.django.outbox.models import OutboxRow

    return dict(OutboxRow.objects.using(using).order_by("id").values_list("job_id", "state"))


@pytest.mark.long
def test_the_verbs_of_the_command_line(conn: redis.Redis, outbox: None) -> None:
    from fusion.contrib.django.outbox.models import OutboxRow
    from fusion.contrib.outbox.database import PARKED, SENT, WAITING

    put(Broker(conn), "mail", "taken")
    write("a", "taken", "b")
    shown = manage("fusion_outbox", "status")
    assert shown.returncode == 0, shown.stderr
    assert "3 rows wait" in shown.stdout
    assert "Nobody forwards: start `manage.py fusion outbox run`" in shown.stdout
    ran = manage("fusion_outbox", "--burst", "--poll", "0.02")
    assert ran.returncode == 0, ran.stderr
    assert in_queue(conn, "mail") == ["taken", "a", "b"], ran.stderr
    assert states() == {"a": SENT, "taken": PARKED, "b": SENT}
    shown = manage("fusion", "outbox", "status")  # the project's database here, too
    assert "1 parked; to try some again: manage.py fusion outbox retry ROW..." in shown.stdout
    (pk,) = OutboxRow.objects.filter(state=PARKED).values_list("pk", flat=True)
    assert manage("fusion_outbox", "retry", str(pk)).stdout == "1 rows wait again\n"
    assert states()["taken"] == WAITING
    OutboxRow.objects.filter(pk=pk).update(state=PARKED)
    assert json.loads(manage("fusion_outbox", "delete", "--all", "--yes", "--json").stdout)["deleted"] == 1
    assert states() == {"a": SENT, "b": SENT}


@pytest.mark.long
def test_errors_of_the_outbox_command_are_one_line(
    conn: redis.Redis, outbox: None, database: ShopDatabase, tmp_path: Path
) -> None:
    unmade = manage("fusion_outbox", "status", **database.another(tmp_path))
    assert (unmade.returncode, unmade.stdout) == (1, "")
    assert unmade.stderr.splitlines()[-1].endswith(
        "the outbox's tables are not in django:default; make them: manage.py migrate fusion_outbox [FUS-220]"
    )
    assert "Traceback" not in unmade.stderr
    gone = manage("fusion_outbox", "run", SHOP_POSTGRES="/nowhere")
    assert gone.returncode == 1
    assert "the database django:default can't be used: " in gone.stderr and "start it, or mend DATABASES" in gone.stderr
    unknown = manage("fusion_outbox", "status", "--using", "elsewhere")
    assert (unknown.returncode, "DATABASES has default, archive" in unknown.stderr) == (1, True)
    verb = manage("fusion_outbox", "runs")
    assert (verb.returncode, "Usage: manage.py fusion outbox" in verb.stderr, "No such command 'runs'" in verb.stderr) == (
        2,
        True,
        True,
    )


@pytest.mark.long
def test_another_database_of_the_project(conn: redis.Redis, outbox: None) -> None:
    from django.core.management import call_command
    from django.test import override_settings

    from fusion.contrib.outbox.database import SENT

    with override_settings(FUSION={"OUTBOX": "archive"}):
        write("a")
    assert (states(), list(states("archive"))) == ({}, ["a"])
    out = StringIO()
    call_command("fusion_outbox", "status", "--using", "archive", "--json", stdout=out)
    assert json.loads(out.getvalue())["waiting"] == 1
    ran = manage("fusion_outbox", "--using=archive", "--burst", "--keep", "60")
    assert ran.returncode == 0, ran.stderr
    assert (in_queue(conn, "mail"), states("archive")) == (["a"], {"a": SENT})


@pytest.mark.long
def test_the_command_line_alone_finds_redis_and_logging_as_the_project_has_them(
    conn: redis.Redis, redis_url: str, outbox: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without manage.py, and without FUSION_CONFIG."""
    write("a")
    monkeypatch.delenv("FUSION_CONFIG")
    monkeypatch.delenv("FUSION_REDIS_URL", raising=False)
    ran = manage(
        *("outbox", "run", "--database", "django:default", "--burst"),
        program=("-m", "fusion"),
        SHOP_REDIS=redis_url,
        SHOP_LOGGING="1",
    )
    assert ran.returncode == 0, ran.stderr
    assert in_queue(conn, "mail") == ["a"]
    assert "1 rows forwarded" in ran.stderr


def test_django_checks_report_a_missing_outbox(shop: Path) -> None:
    from django.conf import settings
    from django.core.checks import run_checks
    from django.test import override_settings

    def found(**changed: Any) -> list[str]:
        with override_settings(**changed):
            return [str(one.msg) for one in run_checks(tags=["fusion"]) if one.id == "fusion.E004"]

    without = [app for app in settings.INSTALLED_APPS if app != "fusion.contrib.django.outbox"]
    assert found(FUSION={"OUTBOX": True}) == []
    assert found(INSTALLED_APPS=without) == []
    (told,) = found(FUSION={"OUTBOX": True}, INSTALLED_APPS=without)
    assert "there is no outbox" in told
    (told,) = found(FUSION={"OUTBOX": "elsewhere"})
    assert "no such database" in told
    use_settings(None)
