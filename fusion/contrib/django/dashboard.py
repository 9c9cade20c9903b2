"""The dashboard as a view of the project: for its staff, with roles from Django's permissions."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from fusion import get_current_connection
from fusion.dashboard import Dashboard

#: Permission -> what it allows on the dashboard, the strongest first. All other staff may read.
ROLES = {"fusion.administer_dashboard": "admin", "fusion.operate_dashboard": "operate"}
_USER = "fusion.contrib.django.user"
#: The dashboard of this process, and the client that it uses.
_made: tuple[object, Dashboard] | None = None


def scope_of(user: Any) -> str | None:
    """Return what this user may do: None for users who are not staff, at least `read` for staff."""
    if not is_staff(user):
        return None
    return next((scope for name, scope in ROLES.items() if user.has_perm(name)), "read")


def is_staff(user: Any) -> bool:
    """Return True for staff, as the admin decides it."""
    return bool(getattr(user, "is_active", False) and getattr(user, "is_staff", False))


@csrf_exempt  # the dashboard itself refuses requests that don't come from its own pages
def dashboard(request: HttpRequest, path: str) -> HttpResponse:
    """Return the dashboard's response, as Django's, for any path below the mount."""
    try:
        user = request.user
    except AttributeError:
        raise ImproperlyConfigured(
            "the dashboard of Fusion needs django.contrib.auth.middleware.AuthenticationMiddleware in MIDDLEWARE"
        ) from None
    if not user.is_authenticated:
        if request.headers.get("HX-Request"):  # a page that refreshes itself, after the session has ended
            return HttpResponse(headers={"HX-Redirect": request.path[: len(request.path) - len(path)]})
        return redirect_to_login(request.get_full_path(), _login_url())
    if not is_staff(user):
        raise PermissionDenied
    if not request.path_info.endswith(path):  # bytes that are not UTF-8
        raise Http404
    response = HttpResponse()

    def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
        response.status_code = int(status.split()[0])
        for name, value in headers:
            response[name] = value

    response.content = b"".join(_dashboard().wsgi(_environ(request, path, user), start))
    return response


def _environ(request: HttpRequest, path: str, user: Any) -> dict[str, Any]:
    """Return the request as a WSGI environ of the mount; under ASGI Django has none."""
    body = request.body
    mount = request.path[: len(request.path) - len(path)].rstrip("/")
    return {
        **{name: value for name, value in request.META.items() if isinstance(value, str)},
        "SCRIPT_NAME": _bytes(mount),
        "PATH_INFO": _bytes(f"/{path}"),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
        "wsgi.url_scheme": request.scheme,
        _USER: user,
    }


def _bytes(text: str) -> str:
    """Return UTF-8 bytes as latin-1 text, as WSGI requires."""
    return text.encode().decode("latin-1")


def _dashboard() -> Dashboard:
    global _made
    connection = get_current_connection()
    if _made is None or _made[0] is not connection:
        _made = (
            connection,
            Dashboard(
                connection,
                auth=lambda request: scope_of(request.origin[_USER]),
                actor=lambda request: str(request.origin[_USER].get_username()),
                links=[("Admin", admin)] if (admin := _path("admin:index")) else [],
            ),
        )
    return _made[1]


def _login_url() -> str | None:
    """Return None for LOGIN_URL; the admin's own page if the project has not set that."""
    return None if settings.is_overridden("LOGIN_URL") else _path("admin:login")


def _path(name: str) -> str | None:
    try:
        return str(reverse(name))
    except NoReverseMatch:
        return None
