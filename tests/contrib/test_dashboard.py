"""The dashboard in the urls of a project, and its row in the admin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from tests.jobs import basic

PAUSE = "/ops/fusion/queues/mail/pause"
FORM = "application/x-www-form-urlencoded"
OURS = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def client(conn: redis.Redis, shop: Path) -> Iterator[Any]:
    from django.test import Client, override_settings

    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield Client()


def user(name: str, *permissions: str, **fields: Any) -> Any:
    from django.contrib.auth.models import Permission, User

    found = User.objects.create_user(name, **{"is_staff": True, **fields})
    found.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return found


def paused(conn: redis.Redis) -> bool:
    return bool(conn.exists("rq:paused:mail"))


def test_users_who_are_not_staff_are_sent_to_the_login(client: Any, conn: redis.Redis) -> None:
    from django.test import override_settings

    Queue("mail", conn).enqueue(basic.noop)
    answer = client.get("/ops/fusion/queues?by=name")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/login/?next=/ops/fusion/queues%3Fby%3Dname")
    with override_settings(LOGIN_URL="/enter/"):
        assert client.get("/ops/fusion/")["Location"].startswith("/enter/?next=")
    assert client.get("/ops/fusion/queues", headers={"HX-Request": "true"})["HX-Redirect"] == "/ops/fusion/"
    assert client.post(PAUSE, headers=OURS).status_code == 302
    for name, fields in {"customer": {"is_staff": False}, "former": {"is_active": False}}.items():
        client.force_login(user(name, "administer_dashboard", **fields))
        answer = client.post(PAUSE, headers=OURS)
        assert answer.status_code in (302, 403)
        assert b"mail" not in client.get("/ops/fusion/queues").content
    assert not paused(conn)


@pytest.mark.parametrize(
    ("name", "permissions", "fields", "may"),
    [
        ("reader", (), {}, ""),
        ("operator", ("operate_dashboard",), {}, "operate"),
        ("chief", ("administer_dashboard",), {}, "operate and administer"),
        ("root", (), {"is_superuser": True}, "operate and administer"),
    ],
)
def test_staff_may_look_and_change_what_its_permissions_say(
    client: Any, conn: redis.Redis, name: str, permissions: tuple[str, ...], fields: dict[str, Any], may: str
) -> None:
    job = Queue("mail", conn).enqueue(basic.noop)
    client.force_login(user(name, *permissions, **fields))
    page = client.get("/ops/fusion/queues")
    assert page.status_code == 200
    assert b'href="/ops/fusion/' in page.content
    assert (b'action="/ops/fusion/queues/mail/pause"' in page.content) == ("administer" in may)
    assert client.get("/ops/fusion/static/nothing.css").status_code == 404
    done = client.post(PAUSE, "back=/queues", FORM, headers=OURS)
    assert (done.status_code, paused(conn)) == ((303, True) if "administer" in may else (403, False))
    gone = client.post(f"/ops/fusion/jobs/{job.id}/cancel", "back=/jobs", FORM, headers=OURS)
    assert gone.status_code == (303 if "operate" in may else 403)
    assert job.get_status() == ("canceled" if "operate" in may else "queued")
    assert {entry[b"who"] for _, entry in conn.xrange("rq:audit") if b"who" in entry} == ({name.encode()} if may else set())
    if may:
        assert gone["Location"].startswith("/ops/fusion/jobs")


def test_a_change_from_another_site_is_refused(client: Any, conn: redis.Redis) -> None:
    Queue("mail", conn).enqueue(basic.noop)
    client.force_login(user("chief", "administer_dashboard"))
    for headers in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://elsewhere.example"}):
        assert client.post(PAUSE, headers=headers).status_code == 403
    assert not paused(conn)


def test_it_is_served_under_asgi(client: Any, conn: redis.Redis) -> None:
    from django.test import AsyncClient

    Queue("mail", conn).enqueue(basic.noop)
    browser = AsyncClient()

    async def ask() -> Any:
        chief = await asyncio.to_thread(user, "chief", "administer_dashboard")
        await browser.aforce_login(chief)
        page = await browser.get("/ops/fusion/queues")
        done = await browser.post(PAUSE, "back=/queues", FORM, headers=OURS)
        return page, done

    page, done = asyncio.run(ask())
    assert page.status_code == 200
    assert b'href="/ops/fusion/' in page.content
    assert (done.status_code, paused(conn)) == (303, True)


def test_the_admin_shows_the_number_of_jobs_and_links_to_the_dashboard(
    client: Any, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusion.contrib.django import admin

    monkeypatch.setattr(admin, "_seen", (0.0, ""))
    Queue("mail", conn).enqueue(basic.noop)
    client.force_login(user("reader"))
    index = client.get("/admin/").content.decode()
    assert "Jobs: 1 waiting, 0 running, 0 failed" in index
    assert 'href="/admin/fusion/dashboard/"' in index
    assert client.get("/admin/fusion/dashboard/")["Location"] == "/ops/fusion/"
    assert client.get("/admin/fusion/dashboard/add/").status_code == 403


def test_the_admin_is_there_without_redis(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusion.contrib.django import admin
    from fusion.settings import use_settings

    monkeypatch.setattr(admin, "_seen", (0.0, ""))
    monkeypatch.setenv("FUSION_REDIS_URL", "unix:///nowhere/redis.sock")
    use_settings(None)
    client.force_login(user("reader"))
    assert "Jobs (Redis can&#x27;t be reached)" in client.get("/admin/").content.decode()


def test_the_model_of_the_permissions_needs_no_other_migration(shop: Path) -> None:
    from django.core.management import call_command

    call_command("makemigrations", "fusion", check=True, dry_run=True, verbosity=0)
