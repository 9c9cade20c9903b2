"""Rows of a database as arguments: a job stores their key, and its task receives them as they are when it runs. It has no models.

`fusion.kernel.json_types` loads this if values may be Django's.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from django.apps import apps
from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured, ValidationError
from django.db import connections, transaction
from django.db.models import Manager, Model, QuerySet
from django.db.models.query import RawQuerySet

from fusion.exceptions import DeserializationError, SerializationError
from fusion.kernel.json_types import register_type

M = TypeVar("M", bound=Model)

_renamed: dict[str, str] = {}


class Locked(Generic[M]):
    """A row that is locked while a block uses it. Made by `locked`; it may be an argument of a job::

        queue.enqueue(pay, locked(order))

        def pay(order):
            with order as row:  # a transaction, and the row as it is now, by select_for_update
                row.paid = True
                row.save()

    The transaction is committed when the block ends, and rolled back if it raises. DeserializationError if the row is gone. On a database
    without such locks (SQLite) there is only the transaction.
    """

    def __init__(self, model: type[M], pk: Any, using: str) -> None:
        self.model, self.pk, self.using = model, pk, using
        self._stack: ExitStack | None = None

    def __repr__(self) -> str:
        return f"<Locked {self.model._meta.label} {self.pk!r}>"

    def __enter__(self) -> M:
        with ExitStack() as stack:
            stack.enter_context(transaction.atomic(using=self.using))
            found: M | None = self.model._base_manager.using(self.using).select_for_update().filter(pk=self.pk).first()
            if found is None:
                raise _gone(self.model, self.pk, self.using)
            self._stack = stack.pop_all()
        return found

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        assert self._stack is not None
        return self._stack.__exit__(kind, error, trace)


def locked(instance: M) -> Locked[M]:
    """Return the row of this instance, to be locked by `with`: here, or in a task that has it as an argument. SerializationError if it is not
    saved."""
    _, pk, using = _encode_model(instance)
    return Locked(type(instance), pk, using or "default")


def renamed(old: str, new: str) -> None:
    """Read models of the label `old` (`app.Model`) in stored jobs as `new`, once the model has moved. Call it in a module that workers load."""
    _renamed[old.lower()] = new


def _gone(model: type[Model], pk: Any, using: str) -> DeserializationError:
    return DeserializationError(f"the {model._meta.label} with primary key {pk!r} is gone from the database {using!r}")


def _encode_model(value: Any) -> list[Any]:
    if not value._is_pk_set() or value._state.adding:
        raise SerializationError(f"this {value._meta.label} is not saved yet; save it before enqueueing")
    return [value._meta.label_lower, value.pk, value._state.db]


def _decode_model(value: Any) -> Model:
    model, pk, using = _row(value)
    try:
        return model._base_manager.using(using).get(pk=pk)
    except model.DoesNotExist:
        raise _gone(model, pk, using) from None
    except (TypeError, ValueError, ValidationError) as error:
        raise DeserializationError(f"{pk!r} is not a primary key of {model._meta.label}: {error}") from None


def _decode_locked(value: Any) -> Locked[Model]:
    return Locked(*_row(value))


def _row(value: Any) -> tuple[type[Model], Any, str]:
    try:
        label, pk, using = value
        label = _renamed.get(label, label)
        model = apps.get_model(label)
    except (AppRegistryNotReady, ImproperlyConfigured) as error:
        raise DeserializationError(
            f"a stored model needs Django's apps: call django.setup() where the task lives ({error})"
        ) from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        advice = "put its app into INSTALLED_APPS, or call fusion.contrib.django.models.renamed(old, new)"
        raise DeserializationError(f"a stored model is not known here: {error}; {advice}") from None
    using = using or "default"
    if using not in connections.settings:
        raise DeserializationError(f"the database {using!r} of a {model._meta.label} is not among this process's DATABASES")
    return model, pk, using


def _refuse_rows(value: Any) -> NoReturn:
    label = value.model._meta.label if value.model is not None else "model"
    raise SerializationError(
        f"a {type(value).__name__} of {label} is a question, not its rows: send the keys, list(rows.values_list('pk', flat=True)), or a job a row"
    )


def _refuse_load(value: Any) -> NoReturn:
    raise DeserializationError("rows that nobody could have sent")


register_type("model", lambda value: isinstance(value, Model), _encode_model, _decode_model)
register_type(
    "locked",
    lambda value: isinstance(value, Locked),
    lambda value: [value.model._meta.label_lower, value.pk, value.using],
    _decode_locked,
)
register_type("rows", lambda value: isinstance(value, (QuerySet, RawQuerySet, Manager)), _refuse_rows, _refuse_load)
