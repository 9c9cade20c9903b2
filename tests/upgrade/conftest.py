from __future__ import annotations

from tests.cli.conftest import invoke
from tests.store.conftest import spawn
from tests.web.conftest import start as start_server
from tests.web.conftest import tokens

__all__ = ["invoke", "spawn", "start_server", "tokens"]
