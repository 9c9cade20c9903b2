"""The dashboard as a part of another application, or beside the API on one server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from redis import Redis

from fusion.dashboard.access import Host, HostAuth
from fusion.dashboard.app import DashboardApp
from fusion.web.app import App
from fusion.web.asgi import Asgi
from fusion.web.exchange import HttpError, Request, Response
from fusion.web.hosts import Hosts


class Dashboard:
    """The dashboard, to be mounted: `.wsgi` under a WSGI application, `.asgi` under an ASGI one.

    `auth(request)` says who may do what: an `Actor`, or a scope (`read`, `operate`, `admin`), or None for no access; without it nobody has any.
    `request.origin` is the WSGI environ or the ASGI scope, where the application keeps its user. `actor(request)`: the name of the viewer, for the
    audit. `read_only`: nothing can be changed. `url_prefix`: where the application leaves the mount's path in that of the request, like a Django
    view. `links`: names and addresses to stand in the navigation. `tasks`: modules
    of whose functions edited copies may be made; by default the setting.
    """

    def __init__(
        self,
        connection: Redis,
        *,
        auth: HostAuth | None = None,
        read_only: bool = False,
        url_prefix: str = "",
        actor: Callable[[Request], str] | None = None,
        links: Iterable[tuple[str, str]] = (),
        tasks: Sequence[str] | None = None,
    ) -> None:
        # The application around checks the Host.
        self.app = DashboardApp(
            connection, Host(auth, actor), read_only=read_only, hosts=Hosts("*"), links=links, url_prefix=url_prefix, tasks=tasks
        )

    @property
    def wsgi(self) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
        """A WSGI application."""
        return self.app

    @cached_property
    def asgi(self) -> Asgi:
        """An ASGI application."""
        return Asgi(self.app)


#: What the API answers; all else is the dashboard's.
OF_THE_API = ("/api/", "/healthz", "/readyz", "/retryTask")
PROBES = ("/healthz", "/readyz")


class Together(App):
    """The API with the dashboard beside it, as one service. `of_the_api`: how the paths begin that are answered by the API."""

    def __init__(self, api: App, dashboard: DashboardApp, of_the_api: tuple[str, ...] = OF_THE_API) -> None:
        self._api, self._dashboard, self._of_the_api = api, dashboard, of_the_api
        self.max_body = api.max_body

    def handle(self, request: Request) -> Response:
        """The answer, whatever happens."""
        return (self._api if request.path.startswith(self._of_the_api) else self._dashboard).handle(request)

    def refuse(self, error: HttpError, request: Request) -> Response:
        """The answer to a request that a server could not even read."""
        return self._api.refuse(error, request)
