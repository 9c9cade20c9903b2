"""Opens the database that `--database` names: a URL of SQLAlchemy's, or `django:<alias>` of the Django project in DJANGO_SETTINGS_MODULE."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fusion.contrib.outbox.ledger import Ledger
from fusion.exceptions import ConfigurationError
from fusion.settings import mask_url

DJANGO = "django"


def opened(database: str) -> Ledger:
    """Return the outbox in that database, whose tables exist. ConfigurationError names what to do."""
    of_django = database.partition(":")[0] == DJANGO
    found = _django(database) if of_django else _sqlalchemy(database)
    ledger = Ledger(found)
    try:
        ready = found.has_tables()
        if ready:
            ledger.identity()
    except Exception as error:
        told = mask_url(" ".join(str(getattr(error, "orig", error)).split())[:300])
        raise ConfigurationError(
            f"the database {mask_url(database)} can't be used: {told}; start it, or mend {'DATABASES' if of_django else '--database'}",
            code="FUS-220",
        ) from error
    if not ready:
        mend = (
            f"manage.py migrate fusion_outbox{_aliased(database)}"
            if of_django
            else "outbox_tables(metadata) and create_all, or a migration, as docs/outbox.md says"
        )
        raise ConfigurationError(f"the outbox's tables are not in {mask_url(database)}; make them: {mend}", code="FUS-220")
    return ledger


def _aliased(database: str) -> str:
    alias = database.partition(":")[2]
    return "" if alias in ("", "default") else f" --database {alias}"


def _django(database: str) -> Any:
    try:
        django: Any = import_module("django")
        django.setup()
        from django.apps import apps
        from django.conf import settings
    except ImportError as error:
        raise ConfigurationError(f"--database {database}: {error}; pip install 'fusion-queue[django]'", code="FUS-220") from error
    except Exception as error:
        raise ConfigurationError(f"--database {database}: {error}; set DJANGO_SETTINGS_MODULE", code="FUS-220") from error
    alias = database.partition(":")[2] or "default"
    if not apps.is_installed("fusion.contrib.django.outbox"):
        raise ConfigurationError(
            "add 'fusion.contrib.django.outbox' to INSTALLED_APPS, and run manage.py migrate", code="FUS-220"
        )
    if alias not in settings.DATABASES:
        raise ConfigurationError(
            f"--database {database}: DATABASES has {', '.join(settings.DATABASES)}; use one of them", code="FUS-220"
        )
    return import_module("fusion.contrib.django.outbox.database").DjangoDatabase(alias)


def _sqlalchemy(database: str) -> Any:
    try:
        module = import_module("fusion.contrib.sqlalchemy.database")
    except ImportError as error:
        raise ConfigurationError(str(error), code="FUS-214") from error
    import sqlalchemy

    quiet: dict[str, Any] = {"hide_parameters": True}  # arguments of jobs must not appear in errors
    try:
        engine = sqlalchemy.create_engine(database, pool_size=1, max_overflow=1, pool_pre_ping=True, **quiet)
    except (sqlalchemy.exc.ArgumentError, TypeError):
        try:
            engine = sqlalchemy.create_engine(database, **quiet)
        except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
            raise ConfigurationError(
                f"--database {mask_url(database)}: {error}; use an URL as postgresql+psycopg://...", code="FUS-220"
            ) from error
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        raise ConfigurationError(
            f"--database {mask_url(database)}: {error}; use an URL as postgresql+psycopg://...", code="FUS-220"
        ) from error
    return module.SqlalchemyDatabase(engine, import_module("fusion.contrib.sqlalchemy.tables").outbox_tables())
