"""docs/django.md: a project made by its blocks, as they stand, does what the page says; from-steady-queue.md names what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from fusion.cli.main import COMMANDS
from fusion.contrib.django.conf import names
from tests.architecture.source import ROOT
from tests.contrib.harness import Manages
from tests.contrib.lessons import Follower

PAGE = (ROOT / "docs" / "django.md").read_text()
FROM = (ROOT / "docs" / "from-steady-queue.md").read_text()
LESSON = PAGE.split("## Ten minutes")[1].split("\n## ")[0]


def test_settings_and_commands_on_the_pages_are_there() -> None:
    told = PAGE + FROM
    ours = "\n".join(
        row.rsplit("|", 2)[1] for row in FROM.split("## Settings")[1].split("\n## ")[0].splitlines() if row.startswith("| ")
    )
    named = set(re.findall(r"`([A-Z_]{4,})`", ours)) | set(re.findall(r'"([A-Z]+(?:_[A-Z]+)*)"', FROM))
    named -= {"FUSION"}
    assert named and named <= set(names())
    words = set(re.findall(r"manage\.py fusion[ _](\w+)", told)) - {"COMMAND"}
    assert words and words <= set(COMMANDS)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_lesson_as_it_stands(manages: Manages, conn: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DJANGO_SETTINGS_MODULE", "SHOP_HOME", "FUSION_CONFIG"):
        monkeypatch.delenv(name)
    follower = Follower(manages, tmp_path)
    follower.follow(LESSON)
    said = follower.said
    assert "Hello, anna" in said[-3]
    assert "mail" in said[-2]
    assert "orders-tasks-remind_all" in said[-1]
