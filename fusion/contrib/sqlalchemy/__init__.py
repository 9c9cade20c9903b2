"""SQLAlchemy integration: jobs are written in a session's transaction (docs/outbox.md)."""

from __future__ import annotations

try:
    import sqlalchemy as _sqlalchemy
except ModuleNotFoundError as error:
    if error.name != "sqlalchemy":
        raise
    raise ModuleNotFoundError(
        "fusion.contrib.sqlalchemy needs SQLAlchemy: pip install 'fusion-queue[sqlalchemy]'", name="sqlalchemy"
    ) from None

if tuple(map(int, _sqlalchemy.__version__.split(".")[:1])) < (2,):
    raise ImportError(
        f"fusion.contrib.sqlalchemy needs SQLAlchemy 2; here is {_sqlalchemy.__version__}: pip install -U sqlalchemy"
    )
