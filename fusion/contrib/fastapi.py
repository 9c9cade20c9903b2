"""FastAPI and Starlette integration: queues as dependencies, the application's lifespan around tasks, ids of requests (docs/fastapi.md)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

try:
    from fastapi import Depends
except ModuleNotFoundError as error:
    if error.name != "fastapi":
        raise
    raise ModuleNotFoundError(
        "fusion.contrib.fastapi needs FastAPI: pip install 'fusion-queue[fastapi]'", name="fastapi"
    ) from None

from starlette.datastructures import Headers, MutableHeaders

from fusion.async_queue import AsyncQueue
from fusion.contrib import request_ids
from fusion.queue import Queue

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

P = ParamSpec("P")
R = TypeVar("R")
_state: ContextVar[Mapping[str, Any] | None] = ContextVar("fusion_lifespan_state", default=None)


def async_queue(name: str) -> Any:
    """Return the dependency of an `async def` endpoint: `Orders = Annotated[AsyncQueue, async_queue("orders")]`. Tests replace it by
    `app.dependency_overrides[the dependency.dependency]`."""

    async def provided() -> AsyncQueue:  # a coroutine, so that no thread of FastAPI's pool is taken
        return AsyncQueue(name)

    return Depends(provided)


def queue(name: str) -> Any:
    """Return the dependency of a `def` endpoint: `Orders = Annotated[Queue, queue("orders")]`."""

    async def provided() -> Queue:
        return Queue(name)

    return Depends(provided)


class Lifespan:
    """`in_lifespan = Lifespan(app)`, or its path "shop.main:app". Below `@job()`, `@in_lifespan` runs the task between the two halves of the
    application's lifespan, on the event loop of the task.

    Each run has a lifespan of its own. What it yields is `in_lifespan.state`, as `request.state` is in a request.
    """

    def __init__(self, app: Starlette | str) -> None:
        self._app = app

    def __call__(self, task: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Wrap the task. TypeError for one that is no `async def`, as a lifespan needs a running event loop."""
        if not iscoroutinefunction(task):
            raise TypeError(
                f"{task!r} can't have a lifespan: write it as `async def`, and call what blocks by `await asyncio.to_thread(...)`"
            )

        @wraps(task)
        async def run(*args: P.args, **kwargs: P.kwargs) -> R:
            app = self._found()
            async with app.router.lifespan_context(app) as state:
                token = _state.set(state or {})
                try:
                    return await task(*args, **kwargs)
                finally:
                    _state.reset(token)

        return run

    @property
    def state(self) -> Mapping[str, Any]:
        """The value that the lifespan of this run has yielded. RuntimeError outside of a task that has one."""
        found = _state.get()
        if found is None:
            raise RuntimeError("no lifespan runs here: write `@in_lifespan` below the task's `@job()`")
        return found

    def _found(self) -> Starlette:
        if not isinstance(self._app, str):
            return self._app
        module, _, name = self._app.partition(":")
        found: Starlette = getattr(import_module(module), name or "app")
        self._app = found
        return found


def carry_request_ids(app: Starlette) -> None:
    """Give each request of the application an id, its own or a new one, which its response has too. Jobs that it enqueues carry it to their log
    lines: a worker must load a module that calls this."""
    app.add_middleware(RequestIdMiddleware)
    request_ids.install()


class RequestIdMiddleware:
    """The part of `carry_request_ids` that is ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or websocket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        found = request_ids.accepted(Headers(scope=scope).get(request_ids.HEADER))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault(request_ids.HEADER, found)
            await send(message)

        token = request_ids.request_id.set(found)
        try:
            await self._app(scope, receive, answer)
        finally:
            request_ids.request_id.reset(token)
