"""Mount the dashboard in another application, or beside the API on one server."""

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
    """The mountable dashboard: `.wsgi` for a WSGI application, `.asgi` for an ASGI one.

    `auth(request)` returns the viewer's rights: an `Actor`, or a scope (`read`, `operate`, `admin`), or None: no access. Without it all are refused.
    `request.origin` is the WSGI environ or the ASGI scope, where the application keeps its user. `actor(request)`: the name of the viewer, for the
    audit. `read_only`: nothing can be changed. `url_prefix`: the mount's path, if the application leaves it in the request's path, like a Django
    view. `links`: names and addresses to show in the navigation. `tasks`: modules
    whose functions edited copies may call; by default the setting.
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
        # The surrounding application checks the Host.
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


#: Paths that the API answers; the dashboard answers all others.
OF_THE_API = ("/api/", "/healthz", "/readyz", "/retryTask", "/metrics")
PROBES = ("/healthz", "/readyz")


class Together(App):
    """The API and the dashboard as one service. `of_the_api`: the prefixes of paths that the API answers."""

    def __init__(self, api: App, dashboard: DashboardApp, of_the_api: tuple[str, ...] = OF_THE_API) -> None:
        self._api, self._dashboard, self._of_the_api = api, dashboard, of_the_api
        self.max_body = api.max_body

    def handle(self, request: Request) -> Response:
        """Return the answer, also for any error."""
        return (self._api if request.path.startswith(self._of_the_api) else self._dashboard).handle(request)

    def refuse(self, error: HttpError, request: Request) -> Response:
        """Return the answer to a request that the server could not parse."""
        return self._api.refuse(error, request)
