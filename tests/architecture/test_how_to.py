"""Each page of docs/how-to answers one question on one screen; its Python runs against a real Redis, its commands are known to the program."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import redis

from fusion import middleware
from fusion.kernel import recurrence
from fusion.middleware import WorkerMiddleware
from tests.architecture.source import ROOT

FOLDER = ROOT / "docs" / "how-to"
PAGES = [page for page in sorted(FOLDER.glob("*.md")) if page.stem != "index"]
#: Pages of lists; and blocks that need what is not installed here.
_LONG = {"celery-words"}
_ELSEWHERE = {"sentry", "enqueue-after-commit"}
_BLOCKS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))
    if page.stem not in _ELSEWHERE
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_one_screen_and_leads_on(page: Path) -> None:
    text = page.read_text()
    assert page.stem in _LONG or len(text.splitlines()) <= 45
    assert re.search(r"\]\(\.\./[\w-]+\.md", text), "it names no page that has more"


@pytest.mark.parametrize("code", _BLOCKS)
def test_the_python_of_a_page_runs(code: str, conn: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_REDIS_URL", redis_url)
    monkeypatch.setattr(recurrence, "_declared", [])
    monkeypatch.setattr(middleware, "registered", ())
    shop = ModuleType("shop")
    shop.send = lambda to: "sent"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", shop)
    names: dict[str, object] = {"__name__": "how_to", "WorkerMiddleware": WorkerMiddleware}
    module = ModuleType("how_to")
    monkeypatch.setitem(sys.modules, "how_to", module)
    vars(module).update(names)
    exec(code, vars(module))  # noqa: S102
