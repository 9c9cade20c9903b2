"""Flask integration: jobs run in the context of the application, and their log lines have the id of the request (docs/flask.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

try:
    from flask import Flask, Response, g, request
except ModuleNotFoundError as error:
    if error.name != "flask":
        raise
    raise ModuleNotFoundError("fusion.contrib.flask needs Flask: pip install 'fusion-queue[flask]'", name="flask") from None

from fusion.contrib import request_ids
from fusion.middleware import WorkerMiddleware, register

if TYPE_CHECKING:
    from fusion.context import CurrentJob


class Fusion(WorkerMiddleware):
    """`Fusion(app)`, or `fusion = Fusion()` and `fusion.init_app(app)` in a factory. A worker must load a module that does it.

    Every job of this process then runs in `app.app_context()`: `current_app` and extensions work, and `teardown_appcontext` functions are
    called when its task has ended, with its error if it failed.
    """

    def __init__(self, app: Flask | None = None) -> None:
        self._app: Flask | None = None
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Run jobs in the context of this application, and give its requests ids. Of several, the last one is that of jobs."""
        self._app = app
        app.extensions["fusion"] = self
        register(self)
        request_ids.install()
        app.before_request(_begin)
        app.after_request(_answer)
        app.teardown_request(_end)

    def around_job(self, job: CurrentJob) -> Iterator[None]:
        """Push the application's context for the time of the run."""
        if self._app is None:
            yield
            return
        with self._app.app_context():
            yield


def _begin() -> None:
    g.fusion_request_id = request_ids.accepted(request.headers.get(request_ids.HEADER))
    request_ids.request_id.set(g.fusion_request_id)


def _answer(response: Response) -> Response:
    if found := g.get("fusion_request_id"):
        response.headers.setdefault(request_ids.HEADER, found)
    return response


def _end(error: BaseException | None) -> None:
    request_ids.request_id.set(None)  # the thread serves other requests
