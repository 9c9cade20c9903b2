"""The dashboard in a Django project, at /ops, for its staff: those who may log in to the admin.

    pip install django 'fusion-queue[web]'
    DJANGO_SUPERUSER_PASSWORD=... python docs/examples/dashboard_in_django.py 5000

Open http://127.0.0.1:5000/ops/ and log in as anna with that password. In a project of your own only `dashboard`, `ops` and its path are new.
"""

from __future__ import annotations

import os
import sys
import tempfile

import django
from django.conf import settings

settings.configure(
    DEBUG=True,  # so that the admin's style is served, too
    SECRET_KEY="from your own configuration",
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.join(tempfile.mkdtemp(), "db")}},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "django.contrib.staticfiles",
    ],
    STATIC_URL="/static/",
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    USE_TZ=True,
)
django.setup()

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt

from fusion import get_current_connection
from fusion.dashboard import Dashboard


def scope_of(request) -> str | None:
    """Superusers may do everything, other staff may look."""
    user = request.origin["django.user"]
    return "admin" if user.is_superuser else "read" if user.is_staff else None


dashboard = Dashboard(
    get_current_connection(),
    auth=scope_of,
    actor=lambda request: request.origin["django.user"].get_username(),
    links=[("Admin", "/admin/")],
    url_prefix="/ops",
)


@csrf_exempt  # the dashboard itself refuses what was not sent from its own pages
def ops(request: HttpRequest) -> HttpResponse:
    """All below /ops: the dashboard's answer as Django's."""
    if not request.user.is_staff:
        if request.headers.get("HX-Request"):  # a page that refreshes itself, after the session's end
            return HttpResponse(headers={"HX-Redirect": "/ops/"})
        return redirect_to_login(request.get_full_path(), "/admin/login/")
    response = HttpResponse()

    def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
        response.status_code = int(status.split()[0])
        for name, value in headers:
            response[name] = value

    response.content = b"".join(dashboard.wsgi({**request.environ, "django.user": request.user}, start))
    return response


urlpatterns = [path("admin/", admin.site.urls), re_path("^ops(?:/|$)", ops)]
application = StaticFilesHandler(get_wsgi_application())

if __name__ == "__main__":
    from waitress import serve

    call_command("migrate", verbosity=0)
    call_command("createsuperuser", interactive=False, username="anna", email="anna@example.com")
    serve(application, host="127.0.0.1", port=int(sys.argv[1]))
