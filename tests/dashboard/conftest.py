from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from fusion.dashboard.access import Sessions
from fusion.dashboard.app import DashboardApp
from fusion.web.auth import TokenFile
from tests.cli.conftest import invoke as invoke
from tests.cli.conftest import patient_searches as patient_searches
from tests.dashboard.browser import Browser
from tests.web.harness import Tokens


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens.write(tmp_path_factory.mktemp("tokens") / "tokens.txt")


@pytest.fixture
def app(conn: redis.Redis, tokens: Tokens) -> DashboardApp:
    """The dashboard on the test's empty Redis, opened by tokens."""
    return DashboardApp(conn, Sessions(conn, TokenFile(str(tokens.path))))


@pytest.fixture
def client(app: DashboardApp, tokens: Tokens) -> Browser:
    """Who may do everything."""
    return Browser(app).log_in(tokens.by_scope["admin"])


@pytest.fixture
def reader(app: DashboardApp, tokens: Tokens) -> Browser:
    """Who may only look."""
    return Browser(app).log_in(tokens.by_scope["read"])


@pytest.fixture
def restricted(app: DashboardApp, tmp_path: Path) -> Callable[..., Browser]:
    """`restricted("sms", scope="read")`: who may see only these queues, with a dashboard of their own file."""
    from fusion.web.auth import new_token

    def make(*queues: str, scope: str = "admin") -> Browser:
        token, line = new_token(f"some{len(list(tmp_path.iterdir()))}", [scope], queues)
        path = tmp_path / f"tokens{len(list(tmp_path.iterdir()))}.txt"
        path.write_text(line + "\n")
        assert app._sessions is not None
        return Browser(DashboardApp(app._sessions._connection, Sessions(app._sessions._connection, TokenFile(str(path))))).log_in(
            token
        )

    return make
