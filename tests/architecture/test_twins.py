"""AsyncQueue has what Queue has: every public method, with the same parameters."""

from __future__ import annotations

import inspect

import pytest

from fusion import AsyncQueue, Queue

#: What differs, and why.
OTHERWISE = {"count": "a property of Queue; reading it takes a round trip, so it is a coroutine method here"}
#: Parameters whose type differs: the client is one for asyncio.
CONNECTION = "connection"


def _public(kind: type) -> list[str]:
    return sorted(name for name in dir(kind) if not name.startswith("_") and hasattr(kind, name))


def _parameters(kind: type, name: str) -> list[tuple[object, ...]]:
    found = inspect.signature(getattr(kind, name)).parameters.values()
    return [(one.name, one.kind, one.default, None if one.name == CONNECTION else _type_of(one)) for one in found]


def _type_of(parameter: inspect.Parameter) -> str:
    return str(parameter.annotation).replace("_Func", "str | Callable[..., Any]")


@pytest.mark.parametrize("name", _public(Queue))
def test_async_queue_has_it_with_the_same_parameters(name: str) -> None:
    assert hasattr(AsyncQueue, name), f"AsyncQueue has no {name}: write it as steps that both run (fusion/enqueue/sending.py)"
    if name in OTHERWISE or not callable(getattr(Queue, name)):
        return
    assert _parameters(AsyncQueue, name) == _parameters(Queue, name)


def test_what_differs_is_there_and_still_differs() -> None:
    for name in OTHERWISE:
        assert callable(getattr(AsyncQueue, name)) != callable(getattr(Queue, name)), f"{name}: no exception any more"


def test_both_are_made_with_the_same_arguments() -> None:
    assert _parameters(AsyncQueue, "__init__") == _parameters(Queue, "__init__")
