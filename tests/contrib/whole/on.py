"""On which databases a test of this folder runs."""

from __future__ import annotations

import pytest

from tests.kit.length import soak_case

#: In `make test-long` on the first, in `make soak` on both.
ON_SQLITE = pytest.mark.parametrize("database", ["SQLite", soak_case("PostgreSQL")], indirect=True, scope="session")
ON_POSTGRESQL = pytest.mark.parametrize("database", ["PostgreSQL", soak_case("SQLite")], indirect=True, scope="session")
